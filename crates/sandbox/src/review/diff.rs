//! Changes as patches in git's format.
//!
//! The old content is the host's current file, the new content is the saved one. Both are read up to a limit. A comparison
//! that takes too long is cut short: the patch is then longer than necessary, but correct.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::time::Duration;

use rustix::fs::FileType;
use similar::{Algorithm, ChangeTag, TextDiff};

use super::content_store::ContentStore;
use super::json_path::quoted;
use super::{LineCount, SavedChange, SavedChanges, SavedEntry};
use crate::beneath;

/// Of larger files only the size is shown.
const MAX_BYTES: u64 = 2 << 20;
/// After this time the comparison is no longer minimal.
const DIFF_TIMEOUT: Duration = Duration::from_millis(500);

/// One side of a comparison.
enum DiffSide {
    /// No file, or a directory.
    Nothing,
    Text(String),
    Binary {
        size: u64,
    },
}

/// Returns the patch of one change.
pub(crate) fn patch(saved: &SavedChanges, change: &SavedChange) -> io::Result<String> {
    let header = header(change).join("\n");
    let (before, after) = (before(saved, change)?, after(saved, change)?);
    let body = match texts(&before, &after) {
        None => format!("Binary files differ: {} bytes before, {} after\n", before.bytes(), after.bytes()),
        Some((old, new)) if old != new => {
            let (old_name, new_name) =
                (side_name("a", change, before.exists()), side_name("b", change, after.exists()));
            compare(old, new).unified_diff().header(&old_name, &new_name).to_string()
        }
        Some(_) => String::new(),
    };
    Ok(format!("{header}\n{body}"))
}

/// Returns the number of added and removed lines of one change.
pub(crate) fn count(saved: &SavedChanges, change: &SavedChange) -> io::Result<LineCount> {
    let (before, after) = (before(saved, change)?, after(saved, change)?);
    let Some((old, new)) = texts(&before, &after) else {
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

/// Returns the `diff --git` line and the lines about mode, kind and conflict.
fn header(change: &SavedChange) -> Vec<String> {
    let (a, b) = (quoted(&Path::new("a").join(&change.path)), quoted(&Path::new("b").join(&change.path)));
    let mut lines = vec![format!("diff --git {a} {b}")];
    let old = change.base.map(|base| git_mode(base.mode));
    match (old, change.entry.as_ref().and_then(mode)) {
        (None, Some(new)) => lines.push(format!("new file mode {new:06o}")),
        (Some(old), None) if change.entry.is_none() => lines.push(format!("deleted file mode {old:06o}")),
        (Some(old), Some(new)) if old != new => {
            lines.push(format!("old mode {old:06o}"));
            lines.push(format!("new mode {new:06o}"));
        }
        _ => {}
    }
    match &change.entry {
        Some(SavedEntry::Special { .. }) => lines.push("special file: never applied".to_owned()),
        Some(SavedEntry::Unsaved { reason }) => lines.push(format!("not saved: {}", super::render::unsaved(*reason))),
        _ => {}
    }
    if change.conflict {
        lines.push("conflict: the file on the host changed as well".to_owned());
    }
    lines
}

/// Returns the mode as git has it: links have no permissions.
fn git_mode(mode: u32) -> u32 {
    if FileType::from_raw_mode(mode) == FileType::Symlink { 0o120_000 } else { mode }
}

/// Returns type and permission bits as git writes them.
fn mode(entry: &SavedEntry) -> Option<u32> {
    Some(match entry {
        SavedEntry::Regular { mode, .. } => 0o100_000 | mode,
        SavedEntry::Directory { mode } => 0o040_000 | mode,
        SavedEntry::Symlink { .. } => 0o120_000,
        SavedEntry::Special { mode } => *mode,
        SavedEntry::Unsaved { .. } => return None,
    })
}

fn side_name(side: &str, change: &SavedChange, exists: bool) -> String {
    if exists { quoted(&Path::new(side).join(&change.path)) } else { "/dev/null".to_owned() }
}

fn before(saved: &SavedChanges, change: &SavedChange) -> io::Result<DiffSide> {
    let Some(base) = change.base else { return Ok(DiffSide::Nothing) };
    let workspace = match beneath::root(saved.workspace()) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(DiffSide::Nothing),
        other => other?,
    };
    match base.kind() {
        FileType::RegularFile => {
            beneath::regular(workspace, &change.path)?.map_or(Ok(DiffSide::Nothing), DiffSide::read)
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
        Some(SavedEntry::Unsaved { .. }) => Ok(DiffSide::Binary { size: 0 }),
        Some(SavedEntry::Directory { .. } | SavedEntry::Special { .. }) | None => Ok(DiffSide::Nothing),
    }
}

impl DiffSide {
    fn read(file: File) -> io::Result<Self> {
        let size = file.metadata()?.len();
        let mut content = Vec::new();
        file.take(MAX_BYTES + 1).read_to_end(&mut content)?;
        // A text that ends with a carriage return cannot be written as a patch.
        if content.len() as u64 > MAX_BYTES || content.contains(&0) || content.ends_with(b"\r") {
            return Ok(Self::Binary { size });
        }
        Ok(String::from_utf8(content).map_or(Self::Binary { size }, Self::Text))
    }

    /// Returns a link as a file whose content is its target, without a line feed.
    fn link(target: &Path) -> Self {
        target
            .to_str()
            .map_or(Self::Binary { size: target.as_os_str().len() as u64 }, |text| Self::Text(text.to_owned()))
    }

    fn exists(&self) -> bool {
        !matches!(self, Self::Nothing)
    }

    fn bytes(&self) -> u64 {
        match self {
            Self::Nothing => 0,
            Self::Text(text) => text.len() as u64,
            Self::Binary { size } => *size,
        }
    }
}

/// Returns both sides as text; `None` when one of them is binary.
fn texts<'a>(before: &'a DiffSide, after: &'a DiffSide) -> Option<(&'a str, &'a str)> {
    let text = |side: &'a DiffSide| match side {
        DiffSide::Nothing => Some(""),
        DiffSide::Text(text) => Some(text.as_str()),
        DiffSide::Binary { .. } => None,
    };
    Some((text(before)?, text(after)?))
}
