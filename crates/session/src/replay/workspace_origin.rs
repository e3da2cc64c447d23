//! The initial state of a workspace, saved to detect changes before a replay.
//!
//! Small files are compared by digest, large files by size and modification time. In a `.git` folder only the refs
//! count, because other files change with every git command.

use std::collections::BTreeMap;
use std::fs::{self, DirEntry, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use base::Digest;
use serde::{Deserialize, Serialize};

/// Entries that a scan covers at most.
const MAX_ENTRIES: usize = 50_000;
/// Larger files are compared by size and modification time.
const MAX_FILE_BYTES: u64 = 4 << 20;
/// Bytes that a scan reads in all.
const MAX_TOTAL_BYTES: u64 = 64 << 20;
/// Differences that are reported at most.
const MAX_DIFFERENCES: usize = 10;

/// The initial state of a workspace.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkspaceOrigin {
    entries: BTreeMap<PathBuf, EntryState>,
    /// Whether the scan covered every entry.
    whole: bool,
}

/// The state of one path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum EntryState {
    Directory,
    Link(PathBuf),
    File { executable: bool, sha256: Digest },
    Large { executable: bool, bytes: u64, modified_ns: i64 },
    Special,
}

impl WorkspaceOrigin {
    /// Scans `directory`. Skips entries that cannot be read, because the session cannot read them either.
    pub fn scan(directory: &Path) -> Self {
        let mut scan = WorkspaceScan {
            root: directory,
            origin: Self { whole: true, ..Self::default() },
            remaining_bytes: MAX_TOTAL_BYTES,
        };
        scan.folder(directory);
        scan.origin
    }

    pub(crate) fn load(path: &Path) -> Option<Self> {
        serde_json::from_slice(&fs::read(path).ok()?).ok()
    }

    pub(crate) fn save(&self, path: &Path) -> io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // Renamed at the end: a partial file would look like a workspace with missing files.
        let beside = path.with_extension("part");
        fs::write(&beside, serde_json::to_vec(self)?)?;
        fs::rename(beside, path)
    }

    /// Returns the differences between this state and `now`, one line for each path.
    pub(crate) fn differences(&self, now: &Self) -> Vec<String> {
        let missing_or_changed = self.entries.iter().filter_map(|(path, state)| match now.entries.get(path) {
            None => Some(format!("{} is missing", path.display())),
            Some(other) if other != state => Some(format!("{} has changed", path.display())),
            Some(_) => None,
        });
        let new = now.entries.keys().filter(|path| self.whole && !self.entries.contains_key(*path));
        let mut all: Vec<String> =
            missing_or_changed.chain(new.map(|path| format!("{} is new", path.display()))).collect();
        if all.len() > MAX_DIFFERENCES {
            let more = all.len() - MAX_DIFFERENCES;
            all.truncate(MAX_DIFFERENCES);
            all.push(format!("and {more} more"));
        }
        all
    }
}

struct WorkspaceScan<'a> {
    root: &'a Path,
    origin: WorkspaceOrigin,
    /// Bytes that the scan may still read.
    remaining_bytes: u64,
}

impl WorkspaceScan<'_> {
    fn folder(&mut self, folder: &Path) {
        let Ok(entries) = fs::read_dir(folder) else { return };
        let mut entries: Vec<DirEntry> = entries.flatten().collect();
        // Sorted, so that the limit always falls on the same entries.
        entries.sort_by_key(DirEntry::file_name);
        for entry in entries {
            if self.origin.entries.len() >= MAX_ENTRIES {
                self.origin.whole = false;
                return;
            }
            self.entry(&entry.path());
        }
    }

    fn entry(&mut self, path: &Path) {
        let Ok(relative) = path.strip_prefix(self.root) else { return };
        if !is_compared(relative) {
            return;
        }
        let Ok(metadata) = path.symlink_metadata() else { return };
        let relative = relative.to_owned();
        if metadata.is_dir() {
            self.origin.entries.insert(relative, EntryState::Directory);
            self.folder(path);
        } else if let Some(state) = self.state_of(path, &metadata) {
            self.origin.entries.insert(relative, state);
        }
    }

    fn state_of(&mut self, path: &Path, metadata: &Metadata) -> Option<EntryState> {
        if metadata.is_symlink() {
            return fs::read_link(path).ok().map(EntryState::Link);
        }
        if !metadata.is_file() {
            return Some(EntryState::Special);
        }
        let (executable, bytes) = (metadata.mode() & 0o100 != 0, metadata.len());
        if bytes > MAX_FILE_BYTES.min(self.remaining_bytes) {
            let modified_ns = metadata.mtime().saturating_mul(1_000_000_000).saturating_add(metadata.mtime_nsec());
            return Some(EntryState::Large { executable, bytes, modified_ns });
        }
        self.remaining_bytes -= bytes;
        Some(EntryState::File { executable, sha256: Digest::of(&fs::read(path).ok()?) })
    }
}

/// Returns whether a path is compared.
fn is_compared(path: &Path) -> bool {
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
    fn changed_paths_are_reported_and_the_git_index_is_ignored() {
        let temporary = tempfile::tempdir().unwrap();
        let path = |name: &str| temporary.path().join(name);
        fs::create_dir_all(path(".git/objects")).unwrap();
        for (name, text) in [("same", "1"), ("gone", "2"), ("other", "3"), (".git/HEAD", "a"), (".git/index", "b")] {
            fs::write(path(name), text).unwrap();
        }
        let origin = WorkspaceOrigin::scan(temporary.path());
        let saved = path("origins/s.json");
        origin.save(&saved).unwrap();
        assert_eq!(WorkspaceOrigin::load(&saved).unwrap(), origin);
        fs::remove_dir_all(path("origins")).unwrap();
        assert_eq!(origin.differences(&WorkspaceOrigin::scan(temporary.path())), [""; 0]);

        fs::remove_file(path("gone")).unwrap();
        fs::write(path("other"), "4").unwrap();
        fs::write(path("new"), "5").unwrap();
        fs::write(path(".git/index"), "c").unwrap();
        let now = WorkspaceOrigin::scan(temporary.path());
        assert_eq!(origin.differences(&now), ["gone is missing", "other has changed", "new is new"]);
    }
}
