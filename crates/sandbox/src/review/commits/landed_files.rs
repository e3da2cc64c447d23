//! Files that landed with commits: they are no longer pending changes, and the host's files are no conflicts.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::path::Path;

use super::commit::CommitChange;
use crate::beneath;
use crate::review::change_set::{SetNote, SetOrigin};
use crate::review::content_store::digest;
use crate::review::manifest::{KnownFile, Manifest};
use crate::review::save_lock::SaveLock;
use crate::review::set_store::{CurrentSet, SetStore};
use crate::review::{SavedChange, SavedChanges, SavedEntry};

/// Removes saved changes that are on the host now, among the paths of `landed`.
pub(super) fn record_landed(saved: &SavedChanges, landed: &[CommitChange]) -> io::Result<()> {
    let _lock = SaveLock::take(saved.directory())?;
    let mut manifest = Manifest::read(saved.directory())?;
    let (sets, before) = (SetStore::of(saved.directory()), CurrentSet::of(&manifest));
    sets.adopt(&manifest)?;
    let workspace = beneath::root(saved.workspace())?;
    let paths: HashSet<&Path> = landed.iter().flat_map(|change| change.path.ancestors()).collect();
    let (mut pending, mut known) = (Vec::new(), Vec::new());
    for record in std::mem::take(&mut manifest.changes) {
        let path = &record.change.path;
        if !paths.contains(path.as_path()) || !is_on_host(&workspace, &record.change)? {
            pending.push(record);
            continue;
        }
        let stamp = beneath::stamp(&workspace, path).unwrap_or_default().filter(|stamp| !stamp.is_directory());
        known.extend(stamp.map(|stamp| KnownFile { path: path.clone(), stamp }));
    }
    manifest.changes = pending;
    manifest.known.retain(|old| known.iter().all(|new: &KnownFile| new.path != old.path));
    manifest.known.extend(known);
    sets.commit(&mut manifest, before, SetOrigin::Apply, &SetNote::default())
}

/// Returns whether the host has the entry that the session left.
fn is_on_host(workspace: &OwnedFd, change: &SavedChange) -> io::Result<bool> {
    let stamp = match beneath::stamp(workspace, &change.path) {
        Err(error) if beneath::is_absence(error) => None,
        stamp => stamp?,
    };
    Ok(match &change.entry {
        None => stamp.is_none(),
        Some(SavedEntry::Directory { .. }) => stamp.is_some_and(|stamp| stamp.is_directory()),
        Some(SavedEntry::Symlink { target }) => beneath::link(workspace, &change.path)?.as_ref() == Some(target),
        Some(SavedEntry::Regular { mode, size, sha256 }) => {
            let same = stamp.is_some_and(|stamp| stamp.size == *size && (stamp.mode ^ mode) & 0o100 == 0);
            let file = if same { beneath::regular(workspace, &change.path)? } else { None };
            file.map(|mut file| digest(&mut file)).transpose()?.as_ref() == Some(sha256)
        }
        Some(SavedEntry::Special { .. } | SavedEntry::Unsaved { .. }) => false,
    })
}
