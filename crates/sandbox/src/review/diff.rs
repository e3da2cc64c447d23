//! Changes as patches in git's format.
//!
//! The old content is the host's current file, the new content is the saved one. Both are read up to a limit. A comparison
//! that takes too long is cut short: the patch is then longer than necessary, but correct. A secret that the host wrote
//! after the session began is not shown.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use base::is_plain;
use policy::{SecretClue, SecretContent, secret_clue};
use rustix::fs::FileType;
use similar::{Algorithm, ChangeTag, TextDiff};

use super::binary_patch;
use super::content_store::ContentStore;
use super::json_path::quoted;
use super::render::visible;
use super::{LineCount, SavedChange, SavedChanges, SavedEntry};
use crate::beneath;

/// Of larger files only the size is shown.
const MAX_BYTES: u64 = 2 << 20;
/// After this time the comparison is no longer minimal.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// Stands in place of the content of a file that the policy hides.
pub(crate) const HIDDEN: &str = "hidden by the policy";

/// One side of a comparison.
enum DiffSide {
    /// No file, or a directory.
    Nothing,
    /// Text that can be printed as it is.
    Text(String),
    Binary(Vec<u8>),
    /// A file that is not shown.
    Large {
        size: u64,
    },
}

/// Returns the patch of one change, which is safe to print and which `git apply` accepts. git has no patches for directories
/// and special files; they are lines that start with `#`, which `git apply` skips.
pub(crate) fn patch(saved: &SavedChanges, change: &SavedChange) -> io::Result<String> {
    if saved.is_hidden(change) {
        return Ok(super::render::note(&change.path, HIDDEN));
    }
    let mut text = notes(change);
    let base = change.base.filter(|base| is_in_patches(base.kind()));
    let entry = change.entry.as_ref().filter(|entry| is_file(entry));
    let is_removed = change.entry.is_none() || matches!(change.entry, Some(SavedEntry::Directory { .. }));
    let (before, after) = (before(saved, change)?, after(saved, change)?);
    match (base, entry) {
        // git writes a file that becomes a link, or a link that becomes a file, as a removal and an addition.
        (Some(base), Some(entry)) if file_type(base.mode) != file_type(mode(entry)) => {
            text += &section(change, Some(base.mode), None, &before, &DiffSide::Nothing);
            text += &section(change, None, Some(mode(entry)), &DiffSide::Nothing, &after);
        }
        (base, Some(entry)) => {
            text += &section(change, base.map(|base| base.mode), Some(mode(entry)), &before, &after);
        }
        (Some(base), None) if is_removed => {
            text += &section(change, Some(base.mode), None, &before, &DiffSide::Nothing);
        }
        _ => {}
    }
    Ok(text)
}

/// Returns one patch with its header.
fn section(change: &SavedChange, old: Option<u32>, new: Option<u32>, before: &DiffSide, after: &DiffSide) -> String {
    let (a, b) = (quoted(&Path::new("a").join(&change.path)), quoted(&Path::new("b").join(&change.path)));
    let mut text = format!("diff --git {a} {b}\n");
    text += &match (old.map(git_mode), new.map(git_mode)) {
        (None, Some(new)) => format!("new file mode {new:06o}\n"),
        (Some(old), None) => format!("deleted file mode {old:06o}\n"),
        (Some(old), Some(new)) if old != new => format!("old mode {old:06o}\nnew mode {new:06o}\n"),
        _ => String::new(),
    };
    let name = |name: String, mode: Option<u32>| if mode.is_some() { name } else { "/dev/null".to_owned() };
    let (a, b) = (name(a, old), name(b, new));
    match texts(before, after) {
        None => text + &binary_section(before, after, &a, &b),
        Some((one, other)) if one != other => {
            // git reads a name up to a tab, so that a name may contain spaces.
            let named = |name: String| if name.contains(' ') { name + "\t" } else { name };
            text + &compare(one, other).unified_diff().header(&named(a), &named(b)).to_string()
        }
        Some(_) => text,
    }
}

/// Returns the part of a patch for content that is not printable text. The sizes, and the text with escapes, are in notes.
fn binary_section(before: &DiffSide, after: &DiffSide, a: &str, b: &str) -> String {
    let mut text = String::new();
    if let (Some(one), Some(other)) = (before.any_text(), after.any_text()) {
        let shown = compare(one, other).unified_diff().to_string();
        text.extend(shown.lines().map(|line| format!("# {}\n", visible(line))));
    }
    let sizes = format!("# {} bytes before, {} after\n", before.bytes(), after.bytes());
    binary_patch::render(before.content(), after.content()).map_or_else(
        || format!("Binary files {a} and {b} differ\n{sizes}{text}"),
        |patch| format!("{patch}{sizes}{text}"),
    )
}

/// Returns the number of added and removed lines of one change.
pub(crate) fn count(saved: &SavedChanges, change: &SavedChange) -> io::Result<LineCount> {
    if saved.is_hidden(change) {
        return Ok(LineCount::default());
    }
    let (before, after) = (before(saved, change)?, after(saved, change)?);
    let (Some(old), Some(new)) = (before.any_text(), after.any_text()) else {
        return Ok(LineCount { binary: true, ..LineCount::default() });
    };
    let mut lines = LineCount::default();
    for change in compare(old, new).iter_all_changes() {
        match change.tag() {
            ChangeTag::Insert => lines.added += 1,
            ChangeTag::Delete => lines.removed += 1,
            ChangeTag::Equal => {}
        }
    }
    Ok(lines)
}

/// Compares by line. As in git, only a line feed ends a line, and a carriage return is part of it.
fn compare<'a>(old: &'a str, new: &'a str) -> TextDiff<'a, 'a, str> {
    let split = |text: &'a str| text.split_inclusive('\n').collect::<Vec<_>>();
    TextDiff::configure()
        .algorithm(Algorithm::Myers)
        .timeout(DIFF_TIMEOUT)
        .newline_terminated(true)
        .diff_slices(&split(old), &split(new))
}

/// Returns the lines about everything that a patch of git cannot say.
fn notes(change: &SavedChange) -> String {
    let directory = |mode: u32| FileType::from_raw_mode(mode) == FileType::Directory;
    let was_directory = change.base.is_some_and(|base| directory(base.mode));
    let mut notes = Vec::new();
    match &change.entry {
        Some(SavedEntry::Directory { mode }) if was_directory => notes.push(format!("directory, now mode {mode:04o}")),
        Some(SavedEntry::Directory { .. }) => notes.push("new directory".to_owned()),
        Some(SavedEntry::Special { .. }) => notes.push("special file: never applied".to_owned()),
        Some(SavedEntry::Unsaved { reason }) => notes.push(format!("not saved: {}", super::render::unsaved(*reason))),
        _ if was_directory => notes.push("removed directory".to_owned()),
        _ => {}
    }
    if change.conflict {
        notes.push("conflict: the file on the host changed as well".to_owned());
    }
    notes.iter().map(|note| super::render::note(&change.path, note)).collect()
}

/// Returns the mode as git has it: a link has no permissions, and a file only that to execute.
fn git_mode(mode: u32) -> u32 {
    match FileType::from_raw_mode(mode) {
        FileType::Symlink => 0o120_000,
        _ if mode & 0o100 != 0 => 0o100_755,
        _ => 0o100_644,
    }
}

fn file_type(mode: u32) -> u32 {
    mode & 0o170_000
}

/// Returns type and permission bits of a file or link.
fn mode(entry: &SavedEntry) -> u32 {
    match entry {
        SavedEntry::Symlink { .. } => 0o120_000,
        SavedEntry::Regular { mode, .. } | SavedEntry::Directory { mode } | SavedEntry::Special { mode } => {
            0o100_000 | mode
        }
        SavedEntry::Unsaved { .. } => 0o100_000,
    }
}

fn is_in_patches(kind: FileType) -> bool {
    matches!(kind, FileType::RegularFile | FileType::Symlink)
}

fn is_file(entry: &SavedEntry) -> bool {
    matches!(entry, SavedEntry::Regular { .. } | SavedEntry::Symlink { .. })
}

fn before(saved: &SavedChanges, change: &SavedChange) -> io::Result<DiffSide> {
    let Some(base) = change.base else { return Ok(DiffSide::Nothing) };
    let workspace = match beneath::root(saved.workspace()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DiffSide::Nothing),
        other => other?,
    };
    match base.kind() {
        FileType::RegularFile => {
            let is_later = beneath::stamp(&workspace, &change.path).unwrap_or_default() != Some(base);
            let side = beneath::regular(workspace, &change.path)?.map_or(Ok(DiffSide::Nothing), DiffSide::read)?;
            Ok(if is_later { side.without_secret(&change.path) } else { side })
        }
        FileType::Symlink => {
            Ok(beneath::link(&workspace, &change.path)?.map_or(DiffSide::Nothing, |link| DiffSide::link(&link)))
        }
        _ => Ok(DiffSide::Nothing),
    }
}

fn after(saved: &SavedChanges, change: &SavedChange) -> io::Result<DiffSide> {
    match &change.entry {
        Some(SavedEntry::Regular { sha256, .. }) => DiffSide::read(ContentStore::of(saved.directory()).open(sha256)?),
        Some(SavedEntry::Symlink { target }) => Ok(DiffSide::link(target)),
        Some(SavedEntry::Unsaved { .. }) => Ok(DiffSide::Large { size: 0 }),
        Some(SavedEntry::Directory { .. } | SavedEntry::Special { .. }) | None => Ok(DiffSide::Nothing),
    }
}

impl DiffSide {
    fn read(file: File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let mut content = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut content)?;
        if content.len() as u64 > MAX_BYTES {
            return Ok(Self::Large { size });
        }
        Ok(Self::of(content))
    }

    fn of(content: Vec<u8>) -> Self {
        match String::from_utf8(content) {
            Ok(text) if is_printable(&text) => Self::Text(text),
            Ok(text) => Self::Binary(text.into_bytes()),
            Err(error) => Self::Binary(error.into_bytes()),
        }
    }

    /// Returns a link as a file whose content is its target, without a line feed.
    fn link(target: &Path) -> Self {
        Self::of(target.as_os_str().as_bytes().to_vec())
    }

    /// Returns only the size of a secret. A secret that was written after the session began is not hidden by the policy.
    fn without_secret(self, path: &Path) -> Self {
        let kind = match secret_clue(path) {
            Some(SecretClue::Content(kind)) => kind,
            Some(SecretClue::Name) | None => SecretContent::PrivateKey,
        };
        if self.content().is_some_and(|content| kind.is_in(content)) {
            Self::Large { size: self.bytes() }
        } else {
            self
        }
    }

    /// Returns the content; `None` when the file is too large to be in a patch.
    fn content(&self) -> Option<&[u8]> {
        match self {
            Self::Nothing => Some(&[]),
            Self::Text(text) => Some(text.as_bytes()),
            Self::Binary(content) => Some(content),
            Self::Large { .. } => None,
        }
    }

    /// Returns the content as text, even if it needs escapes to be printed.
    fn any_text(&self) -> Option<&str> {
        let content = self.content().filter(|content| !content.contains(&0))?;
        std::str::from_utf8(content).ok()
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Large { size } => *size,
            other => other.content().map_or(0, |content| content.len() as u64),
        }
    }
}

/// Returns whether a text can be printed as it is, and written as a patch. A carriage return is part of the end of a line.
fn is_printable(text: &str) -> bool {
    let mut signs = text.chars().peekable();
    while let Some(sign) = signs.next() {
        let plain = match sign {
            '\n' | '\t' => true,
            '\r' => signs.peek() == Some(&'\n'),
            sign => is_plain(sign),
        };
        if !plain {
            return false;
        }
    }
    true
}

/// Returns both sides as printable text; `None` when one of them is not.
fn texts<'a>(before: &'a DiffSide, after: &'a DiffSide) -> Option<(&'a str, &'a str)> {
    let text = |side: &'a DiffSide| match side {
        DiffSide::Nothing => Some(""),
        DiffSide::Text(text) => Some(text.as_str()),
        DiffSide::Binary(_) | DiffSide::Large { .. } => None,
    };
    Some((text(before)?, text(after)?))
}
