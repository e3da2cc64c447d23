//! How a workspace was when a session began: enough to tell later whether it still is.
//!
//! Small files are known by their content, large ones by size and time. Of a repository's own folder only what names
//! the commit counts: the rest changes whenever somebody looks.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::Digest;
use serde::{Deserialize, Serialize};

/// More entries are not looked at.
const ENTRIES: usize = 50_000;
/// A larger file is known by its size and time.
const FILE_BYTES: u64 = 4 << 20;
/// So much is read of all files together.
const ALL_BYTES: u64 = 64 << 20;
/// So many differences are told.
const TOLD: usize = 10;

/// How a workspace was.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceOrigin {
    entries: BTreeMap<PathBuf, Mark>,
    /// Whether every entry was looked at.
    whole: bool,
}

/// What one path was.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Mark {
    Directory,
    Link(PathBuf),
    File { executable: bool, sha256: Digest },
    Large { executable: bool, bytes: u64, modified_ns: i64 },
    Special,
}

impl WorkspaceOrigin {
    /// Looks at `directory`. What cannot be read is as if it were not there: the session could not read it either.
    pub fn scan(directory: &Path) -> Self {
        let mut look = Look { root: directory, origin: Self { whole: true, ..Self::default() }, left: ALL_BYTES };
        look.folder(directory);
        look.origin
    }

    pub(crate) fn load(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // Whole or not at all: half of it would be a workspace of which half is gone.
        let beside = path.with_extension("part");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(beside, path)
    }

    /// What of `now` is not as it was, a line a path.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
        let gone = self.entries.iter().filter_map(|(path, mark)| match now.entries.get(path) {
            None => Some(format!("{} is gone", path.display())),
            Some(other) if other != mark => Some(format!("{} has changed", path.display())),
            Some(_) => None,
        });
        let new = now.entries.keys().filter(|path| self.whole && !self.entries.contains_key(*path));
        let mut all: Vec<String> = gone.chain(new.map(|path| format!("{} is new", path.display()))).collect();
        if all.len() > TOLD {
            let more = all.len() - TOLD;
            all.truncate(TOLD);
            all.push(format!("and {more} more"));
        }
        all
    }
}

struct Look<'a> {
    root: &'a Path,
    origin: WorkspaceOrigin,
    /// Bytes that may still be read.
    left: u64,
}

impl Look<'_> {
    fn folder(&mut self, folder: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut entries: Vec<DirEntry> = entries.flatten().collect();
        // The bound falls on the same entries every time.
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            if self.origin.entries.len() >= ENTRIES {
                self.origin.whole = false;
                return;
            }
            self.entry(&entry.path());
        }
    }

    fn entry(&mut self, path: &Path) {
        let Ok(relative) = path.strip_prefix(self.root) else { return };
        if !counts(relative) {
            return;
        }
        let Ok(metadata) = path.symlink_metadata() else { return };
        let relative = relative.to_owned();
        if metadata.is_dir() {
            self.origin.entries.insert(relative, Mark::Directory);
            self.folder(path);
        } else if let Some(mark) = self.mark(path, &metadata) {
            self.origin.entries.insert(relative, mark);
        }
    }

    fn mark(&mut self, path: &Path, metadata: &Metadata) -> Option<Mark> {
        if metadata.is_symlink() {
            return fs::read_link(path).ok().map(Mark::Link);
        }
        if !metadata.is_file() {
            return Some(Mark::Special);
        }
        let (executable, bytes) = (metadata.mode() & 0o100 != 0, metadata.len());
        if bytes > FILE_BYTES.min(self.left) {
            let modified_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
            return Some(Mark::Large { executable, bytes, modified_ns });
        }
        self.left -= bytes;
        Some(Mark::File { executable, sha256: Digest::of(&fs::read(path).ok()?) })
    }
}

/// Whether a path is part of the work.
fn counts(path: &Path) -> bool {
    let mut parts = path.iter();
    if parts.next().is_none_or(|first| first != ".git") {
        return true;
    }
    parts.next().is_none_or(|second| ["HEAD", "packed-refs", "refs"].iter().any(|name| second == *name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changed_is_told_and_a_repository_may_be_looked_at() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        fs::create_dir_all(path(".git/objects")).unwrap();
        for (name, text) in [("same", "1"), ("gone", "2"), ("other", "3"), (".git/HEAD", "a"), (".git/index", "b")] {
            fs::write(path(name), text).unwrap();
        }
        let began = WorkspaceOrigin::scan(place.path());
        let kept = path("origins/s.json");
        began.save(&kept).unwrap();
        assert_eq!(WorkspaceOrigin::load(&kept).unwrap(), began);
        fs::remove_dir_all(path("origins")).unwrap();
        assert_eq!(began.differences(&WorkspaceOrigin::scan(place.path())), [""; 0]);

        fs::remove_file(path("gone")).unwrap();
        fs::write(path("other"), "4").unwrap();
        fs::write(path("new"), "5").unwrap();
        fs::write(path(".git/index"), "c").unwrap();
        let now = WorkspaceOrigin::scan(place.path());
        assert_eq!(began.differences(&now), ["gone is gone", "other has changed", "new is new"]);
    }
}
