//! Reader of git's index file, versions 2 to 4, and a writer that marks entries as absent from the worktree.
//!
//! The file is read without running git: the search must not depend on the repository's settings, which can name programs.
//! A file of another format is treated like a missing index.

const SIGNATURE: &[u8] = b"DIRC";
const HEADER_BYTES: usize = 12;
/// Times, device, inode, mode, owner and size of an entry.
const STAT_BYTES: usize = 40;
/// Lengths of SHA-1 and SHA-256 object names.
const HASH_BYTES: [usize; 2] = [20, 32];
/// The flag of an entry with a second field of flags.
const EXTENDED: u16 = 0x4000;
/// The second flag of an entry whose file is not in the worktree.
const SKIP_WORKTREE: u16 = 0x4000;
/// Extensions that depend on positions in the file, or on a program that watches the host's files. All are optional.
const DROPPED_EXTENSIONS: [&[u8]; 3] = [b"EOIE", b"IEOT", b"FSMN"];

/// A parsed index.
#[derive(Debug)]
pub(super) struct GitIndex {
    bytes: Vec<u8>,
    version: u32,
    hash_bytes: usize,
    /// In the order of the file, which is sorted by name.
    entries: Vec<IndexEntry>,
    entries_end: usize,
}

#[derive(Debug)]
struct IndexEntry {
    start: usize,
    /// The position of the flags.
    flags: usize,
    /// The position after the flags.
    rest: usize,
    end: usize,
    name: Vec<u8>,
}

impl GitIndex {
    /// Parses an index; returns `None` for an unknown format.
    pub(super) fn parse(bytes: Vec<u8>) -> Option<Self> {
        let version = number(&bytes, 4)?;
        if !bytes.starts_with(SIGNATURE) || !(2..=4).contains(&version) {
            return None;
        }
        let (hash_bytes, entries) =
            HASH_BYTES.iter().find_map(|hash| Some((*hash, entries(&bytes, version, *hash)?)))?;
        let entries_end = entries.last().map_or(HEADER_BYTES, |entry| entry.end);
        Some(Self { bytes, version, hash_bytes, entries, entries_end })
    }

    /// Returns whether the index has the file `path`, or a file in the directory `path`.
    pub(super) fn tracks(&self, path: &[u8]) -> bool {
        let is_within = |name: &[u8]| name == path || is_below(name, path);
        // In byte order, `a-b` stands between `a` and `a/b`, so the file and its entries are searched separately.
        let directory = [path, b"/"].concat();
        [path, &*directory].into_iter().any(|from| {
            let first = self.entries.partition_point(|entry| &*entry.name < from);
            self.entries.get(first).is_some_and(|entry| is_within(&entry.name))
        })
    }

    /// Returns the shared part of a split index: the name of its file beside this one.
    pub(super) fn shared_file(&self) -> Option<String> {
        let (_, link) = self.extensions()?.into_iter().find(|(name, _)| *name == b"link")?;
        let hash = link.get(..self.hash_bytes)?;
        Some(format!("sharedindex.{}", base::encode_hex(hash)))
    }

    /// Returns the file with every entry that `is_absent` accepts marked as not in the worktree, so that git does not take
    /// it for deleted. `None` when the index is split or its extensions cannot be read.
    pub(super) fn marked(&self, is_absent: impl Fn(&[u8]) -> bool) -> Option<Vec<u8>> {
        let extensions = self.extensions()?;
        if extensions.iter().any(|(name, _)| *name == b"link") {
            return None;
        }
        let mut bytes = Vec::with_capacity(self.bytes.len() + self.entries.len());
        bytes.extend(SIGNATURE);
        // Version 2 has no second field of flags.
        bytes.extend(self.version.max(3).to_be_bytes());
        bytes.extend(&self.bytes[8..HEADER_BYTES]);
        for entry in &self.entries {
            self.write(entry, is_absent(&entry.name), &mut bytes)?;
        }
        for (name, content) in extensions.into_iter().filter(|(name, _)| !DROPPED_EXTENSIONS.contains(name)) {
            bytes.extend(name);
            bytes.extend(u32::try_from(content.len()).ok()?.to_be_bytes());
            bytes.extend(content);
        }
        // Zeros mean that there is no checksum; git writes one with its next change.
        bytes.resize(bytes.len() + self.hash_bytes, 0);
        Some(bytes)
    }

    fn write(&self, entry: &IndexEntry, absent: bool, to: &mut Vec<u8>) -> Option<()> {
        let start = to.len();
        let flags = short(&self.bytes, entry.flags)?;
        let more = if flags & EXTENDED == 0 { 0 } else { short(&self.bytes, entry.flags + 2)? };
        let more = if absent { more | SKIP_WORKTREE } else { more };
        to.extend(&self.bytes[entry.start..entry.flags]);
        if more == 0 {
            to.extend((flags & !EXTENDED).to_be_bytes());
        } else {
            to.extend((flags | EXTENDED).to_be_bytes());
            to.extend(more.to_be_bytes());
        }
        if self.version == 4 {
            to.extend(&self.bytes[entry.rest..entry.end]);
        } else {
            to.extend(&entry.name);
            let length = to.len() - start;
            to.resize(start + padded(length), 0);
        }
        Some(())
    }

    /// Returns the extensions with their names; `None` when they do not end where the checksum begins.
    fn extensions(&self) -> Option<Vec<(&[u8], &[u8])>> {
        let end = self.bytes.len().checked_sub(self.hash_bytes)?;
        let mut found = Vec::new();
        let mut at = self.entries_end;
        while at < end {
            let size = usize::try_from(number(&self.bytes, at + 4)?).ok()?;
            let content = self.bytes.get(at + 8..at + 8 + size)?;
            found.push((&self.bytes[at..at + 4], content));
            at += 8 + size;
        }
        (at == end).then_some(found)
    }
}

/// Returns whether `name` is in the directory `directory`.
pub(super) fn is_below(name: &[u8], directory: &[u8]) -> bool {
    name.strip_prefix(directory).is_some_and(|rest| rest.starts_with(b"/"))
}

/// Returns all entries; `None` when the file has another format or another length of object names.
fn entries(bytes: &[u8], version: u32, hash_bytes: usize) -> Option<Vec<IndexEntry>> {
    let count = usize::try_from(number(bytes, 8)?).ok()?;
    let mut entries: Vec<IndexEntry> = Vec::with_capacity(count.min(bytes.len() / STAT_BYTES));
    let mut start = HEADER_BYTES;
    for _ in 0..count {
        let last = entries.last().map_or(&[][..], |entry| &entry.name);
        let entry = entry(bytes, start, version, hash_bytes, last)?;
        start = entry.end;
        entries.push(entry);
    }
    (start + hash_bytes <= bytes.len()).then_some(entries)
}

fn entry(bytes: &[u8], start: usize, version: u32, hash_bytes: usize, last: &[u8]) -> Option<IndexEntry> {
    let kind = number(bytes, start + 24)? >> 12;
    // A file, a link, a submodule, or a directory of a sparse index.
    if ![0o10, 0o12, 0o16, 0o04].contains(&kind) {
        return None;
    }
    let flags = start + STAT_BYTES + hash_bytes;
    let extended = short(bytes, flags)? & EXTENDED != 0;
    let rest = flags + if extended { 4 } else { 2 };
    let (kept, name_start) = if version == 4 { removed_bytes(bytes, rest)? } else { (0, rest) };
    let tail = bytes.get(name_start..)?;
    let length = tail.iter().position(|byte| *byte == 0)?;
    let mut name = if version == 4 { last[..last.len().checked_sub(kept)?].to_vec() } else { Vec::new() };
    name.extend(&tail[..length]);
    let end = if version == 4 { name_start + length + 1 } else { start + padded(name_start + length - start) };
    // The name is empty where a split index replaces an entry of its shared part.
    (end <= bytes.len()).then_some(IndexEntry { start, flags, rest, end, name })
}

/// Reads how many bytes of the last name are removed; returns it with the position after it.
fn removed_bytes(bytes: &[u8], mut at: usize) -> Option<(usize, usize)> {
    let mut byte = *bytes.get(at)?;
    let mut value = usize::from(byte & 0x7f);
    while byte & 0x80 != 0 {
        at += 1;
        byte = *bytes.get(at)?;
        value = value.checked_add(1)?.checked_mul(128)? + usize::from(byte & 0x7f);
    }
    Some((value, at + 1))
}

/// Returns the length of an entry with its final zeros, of which there is at least one.
fn padded(length: usize) -> usize {
    (length + 8) & !7
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn short(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_be_bytes(bytes.get(at..at + 2)?.try_into().ok()?))
}
