//! The digest of a change set: it covers everything that an apply of the set uses.
//!
//! Two sets with the same digest change the same paths in the same way, compared with the same files of the host. Every
//! field is preceded by its length, so that no two sets have the same bytes.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use base::Digest;
use sha2::{Digest as _, Sha256};

use super::git_directory::is_inside_git_directory;
use super::{FileStamp, SavedChange, SavedEntry};
use crate::overlay::ChangeKind;

/// The first bytes of every set, so that the digest of a set is never that of something else.
const PREFIX: &[u8] = b"viv change set 1";

/// Returns the digest of `changes`, which are sorted, to `workspace`, with the tips of the set's commits. Files of `.git` are
/// never applied; the tips stand for them.
pub(crate) fn digest_of<'a>(
    workspace: &Path,
    changes: impl Iterator<Item = &'a SavedChange>,
    commits: &[String],
) -> Digest {
    let changes: Vec<&SavedChange> = changes.filter(|change| !is_inside_git_directory(&change.path)).collect();
    let mut hasher = SetHasher(Sha256::new_with_prefix(PREFIX));
    // A set without changes is the same for all workspaces.
    if !changes.is_empty() || !commits.is_empty() {
        hasher.bytes(workspace.as_os_str().as_bytes());
    }
    hasher.number(changes.len() as u64);
    for change in changes {
        hasher.change(change);
    }
    hasher.number(commits.len() as u64);
    for commit in commits {
        hasher.bytes(commit.as_bytes());
    }
    Digest::finish(hasher.0)
}

struct SetHasher(Sha256);

impl SetHasher {
    fn number(&mut self, number: u64) {
        self.0.update(number.to_le_bytes());
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.number(bytes.len() as u64);
        self.0.update(bytes);
    }

    fn change(&mut self, change: &SavedChange) {
        self.bytes(change.path.as_os_str().as_bytes());
        self.number(match change.kind {
            ChangeKind::Deleted => 0,
            ChangeKind::Added => 1,
            ChangeKind::Modified => 2,
        });
        self.number(u64::from(change.conflict));
        self.entry(change.entry.as_ref());
        self.stamp(change.base.as_ref());
    }

    fn entry(&mut self, entry: Option<&SavedEntry>) {
        match entry {
            None => self.number(0),
            Some(SavedEntry::Regular { mode, size, sha256 }) => {
                self.number(1);
                self.number(u64::from(*mode));
                self.number(*size);
                self.bytes(sha256.as_bytes());
            }
            Some(SavedEntry::Directory { mode }) => {
                self.number(2);
                self.number(u64::from(*mode));
            }
            Some(SavedEntry::Symlink { target }) => {
                self.number(3);
                self.bytes(target.as_os_str().as_bytes());
            }
            Some(SavedEntry::Special { mode }) => {
                self.number(4);
                self.number(u64::from(*mode));
            }
            Some(SavedEntry::Unsaved { reason }) => {
                self.number(5);
                self.number(*reason as u64);
            }
        }
    }

    /// Adds the parts of a stamp that an apply compares. A directory changes with its entries, which are separate.
    fn stamp(&mut self, stamp: Option<&FileStamp>) {
        let Some(stamp) = stamp else { return self.number(0) };
        self.number(1);
        self.number(stamp.ino);
        self.number(u64::from(stamp.mode));
        if !stamp.is_directory() {
            self.number(stamp.size);
            self.0.update(stamp.mtime_nanos.to_le_bytes());
            self.0.update(stamp.ctime_nanos.to_le_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn entry() -> impl Strategy<Value = Option<SavedEntry>> {
        let name = "[a-c]{1,3}";
        prop_oneof![
            Just(None),
            (0_u32..3, 0_u64..3, name).prop_map(|(mode, size, sha256)| Some(SavedEntry::Regular {
                mode,
                size,
                sha256
            })),
            (0_u32..3).prop_map(|mode| Some(SavedEntry::Directory { mode })),
            name.prop_map(|target| Some(SavedEntry::Symlink { target: target.into() })),
            (0_u32..3).prop_map(|mode| Some(SavedEntry::Special { mode })),
        ]
    }

    fn stamp() -> impl Strategy<Value = FileStamp> {
        (0_u64..2, 0_u64..2, 0_i64..2, 0_i64..2).prop_map(|(ino, size, mtime_nanos, ctime_nanos)| FileStamp {
            dev: 0,
            ino,
            size,
            mode: 0o100_644,
            mtime_nanos,
            ctime_nanos,
        })
    }

    fn change() -> impl Strategy<Value = SavedChange> {
        let kind = prop_oneof![Just(ChangeKind::Deleted), Just(ChangeKind::Added), Just(ChangeKind::Modified)];
        ("[a-c]{1,2}", kind, entry(), proptest::option::of(stamp()), any::<bool>()).prop_map(
            |(path, kind, entry, base, conflict)| SavedChange { path: path.into(), kind, entry, base, conflict },
        )
    }

    proptest! {
        #[test]
        fn sets_have_the_same_digest_exactly_if_they_are_equal(
            one in proptest::collection::vec(change(), 0..3),
            two in proptest::collection::vec(change(), 0..3),
            tip in proptest::collection::vec("[a-b]{1,2}", 0..2),
        ) {
            let digest = |changes: &[SavedChange], tips: &[String]| digest_of(Path::new("/w"), changes.iter(), tips);
            prop_assert_eq!(digest(&one, &tip) == digest(&two, &tip), one == two);
            prop_assert_eq!(digest(&one, &tip) == digest(&one, &[]), tip.is_empty());
            prop_assert_eq!(digest(&one, &[]), digest(&one.clone(), &[]));
        }
    }

    #[test]
    fn new_entries_of_a_host_directory_do_not_change_the_digest() {
        let base = FileStamp { dev: 1, ino: 2, size: 3, mode: 0o040_755, mtime_nanos: 4, ctime_nanos: 5 };
        let entry = Some(SavedEntry::Directory { mode: 0o700 });
        let change = |base| SavedChange {
            path: "d".into(),
            kind: ChangeKind::Modified,
            entry: entry.clone(),
            base: Some(base),
            conflict: false,
        };
        let digest = |base| digest_of(Path::new("/w"), [change(base)].iter(), &[]);
        assert_eq!(digest(base), digest(FileStamp { size: 9, mtime_nanos: 9, ctime_nanos: 9, ..base }));
        assert_ne!(digest(base), digest(FileStamp { ino: 9, ..base }));
    }
}
