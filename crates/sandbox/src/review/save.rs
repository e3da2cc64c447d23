//! Saving of changes: copies the upper layer, which is lost with the host process, to files on disk.

use std::collections::HashMap;
use std::fs::File;
use std::io::{self, Seek};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use rustix::fs::{FileType, fstat};

use super::change_set::{SetNote, SetOrigin};
use super::commits::{RepositoryStart, commit_tips};
use super::content_store::{ContentStore, are_equal};
use super::file_stamp::nanos_of;
use super::manifest::{KnownFile, Manifest, ManifestEntry};
use super::save_lock::SaveLock;
use super::set_store::{CurrentSet, SetStore};
use super::upper_walk::{SkipReason, TouchedPath, touched_paths};
use super::{FileStamp, SavedChange, SavedChanges, SavedEntry, UnsavedReason};
use crate::beneath;
use crate::overlay::{ChangeKind, OverlayLayers};

/// The largest file that is saved. The sandbox's quota does not bound it, because holes of sparse files do not count.
const MAX_FILE_BYTES: u64 = 4 << 30;
/// The most bytes that are saved of all files together.
const MAX_TOTAL_BYTES: u64 = 16 << 30;
/// File system clocks are coarse: a file that changed this recently may change again with the same time.
const RACY_NANOS: i64 = 100_000_000;

/// The files that a save reads again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RereadScope {
    /// Files whose stamp differs from the last save.
    Changed,
    /// All files.
    All,
}

pub(crate) fn save(
    layers: &OverlayLayers,
    into: &Path,
    reread: RereadScope,
    note: &SetNote,
) -> io::Result<SavedChanges> {
    let mut contents = ContentStore::create(into)?;
    let _lock = SaveLock::take(into)?;
    let sets = SetStore::of(into);
    let last = PreviousSave::read(into, &sets)?;
    let marker = SaveMarker::set(into)?;
    let lower = beneath::root(&layers.lower)?;
    let since_nanos = nanos_of(layers.since);
    let saved_nanos = now_nanos();
    let mut changes = Vec::new();
    let mut keeper = EntrySaver {
        upper: &layers.upper,
        lower: &lower,
        last: &last,
        contents: &mut contents,
        reread,
        left: MAX_TOTAL_BYTES,
    };
    for touched in touched_paths(&layers.upper, &lower, &layers.denials)? {
        let Some((entry, upper)) = keeper.entry(&touched)? else { continue };
        let conflict = last.is_conflict(&touched, since_nanos);
        let TouchedPath { path, kind, below: base, .. } = touched;
        changes.push(ManifestEntry { change: SavedChange { path, kind, entry, base, conflict }, upper });
    }
    contents.sync()?;
    let before = last.set;
    // A later sandbox of the session continues the branches of the first.
    let repository = last.repository.clone().unwrap_or_else(|| layers.repository.clone());
    let manifest = Manifest {
        version: Manifest::VERSION,
        workspace: layers.lower.clone(),
        since_nanos,
        saved_nanos,
        changes,
        known: last.known(),
        denials: layers.denials.clone(),
        repository: Some(repository),
        set: before.number,
        commits: Vec::new(),
    };
    let mut saved = SavedChanges::new(into, manifest);
    saved.manifest.commits = commit_tips(&saved)?.iter().map(|tip| format!("{} {}", tip.reference, tip.id)).collect();
    sets.commit(&mut saved.manifest, before, SetOrigin::Save, note)?;
    sets.prune(&saved.manifest, &contents, MAX_TOTAL_BYTES, marker.was_interrupted())?;
    marker.clear()?;
    Ok(saved)
}

/// Returns the time in nanoseconds since 1970.
pub(crate) fn now_nanos() -> i64 {
    nanos_of(SystemTime::now())
}

/// A file that exists while contents are saved. If it exists before, a save was interrupted, and contents that nothing
/// names may be left.
struct SaveMarker {
    path: PathBuf,
    existed: bool,
}

impl SaveMarker {
    fn set(saved: &Path) -> io::Result<Self> {
        let path = saved.join("saving");
        match File::options().write(true).create_new(true).open(&path) {
            Ok(_) => Ok(Self { path, existed: false }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(Self { path, existed: true }),
            Err(error) => Err(error),
        }
    }

    fn was_interrupted(&self) -> bool {
        self.existed
    }

    fn clear(self) -> io::Result<()> {
        std::fs::remove_file(self.path)
    }
}

/// The result of the previous save.
struct PreviousSave {
    set: CurrentSet,
    saved_nanos: i64,
    records: HashMap<PathBuf, ManifestEntry>,
    known: HashMap<PathBuf, FileStamp>,
    repository: Option<RepositoryStart>,
}

impl PreviousSave {
    fn read(saved: &Path, sets: &SetStore) -> io::Result<Self> {
        let manifest = match Manifest::read(saved) {
            Ok(manifest) => manifest,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                let (records, known) = (HashMap::new(), HashMap::new());
                return Ok(Self { set: CurrentSet::none(), saved_nanos: 0, records, known, repository: None });
            }
            Err(error) => return Err(error),
        };
        sets.adopt(&manifest)?;
        Ok(Self {
            set: CurrentSet::of(&manifest),
            saved_nanos: manifest.saved_nanos,
            records: manifest.changes.into_iter().map(|record| (record.change.path.clone(), record)).collect(),
            known: manifest.known.into_iter().map(|known| (known.path, known.stamp)).collect(),
            repository: manifest.repository,
        })
    }

    /// Returns the entry of a file that the previous save kept and that was not changed since.
    fn unchanged(&self, path: &Path, now: &FileStamp) -> Option<&ManifestEntry> {
        let record = self.records.get(path)?;
        let settled = now.ctime_nanos < self.saved_nanos - RACY_NANOS;
        (settled && record.upper.as_ref() == Some(now)).then_some(record)
    }

    /// Returns whether the host's file changed since the sandbox was made.
    fn is_conflict(&self, touched: &TouchedPath, since_nanos: i64) -> bool {
        let before = self.records.get(&touched.path).map(|record| &record.change);
        let Some(below) = touched.below else {
            // The file existed once, and no apply removed it.
            return before.is_some_and(|change| change.base.is_some()) || self.known.contains_key(&touched.path);
        };
        // A directory changes with its entries, which are checked one by one.
        let young = below.ctime_nanos > since_nanos;
        // The file changed between two sandboxes of one session: before the second, but after the first.
        let replaced = before.is_some_and(|change| change.base != Some(below));
        let ours = self.known.get(&touched.path) == Some(&below);
        let accepted = before.is_some_and(|change| !change.conflict && change.base == Some(below));
        let still = before.is_some_and(|change| change.conflict);
        !below.is_directory() && (young || replaced || still) && !ours && !accepted
    }

    fn known(self) -> Vec<KnownFile> {
        let mut known: Vec<_> = self.known.into_iter().map(|(path, stamp)| KnownFile { path, stamp }).collect();
        known.sort_by(|a, b| a.path.cmp(&b.path));
        known
    }
}

/// Reads the entries that the sandbox left, and saves them.
struct EntrySaver<'a> {
    upper: &'a OwnedFd,
    lower: &'a OwnedFd,
    last: &'a PreviousSave,
    contents: &'a mut ContentStore,
    reread: RereadScope,
    /// How many bytes may still be saved.
    left: u64,
}

/// The entry at a path, and the stamp of the file that it was copied from.
type SavedState = (Option<SavedEntry>, Option<FileStamp>);

impl EntrySaver<'_> {
    /// Saves one entry; returns `None` when it is the same as on the host.
    fn entry(&mut self, touched: &TouchedPath) -> io::Result<Option<SavedState>> {
        let Some(above) = touched.above else { return Ok(Some((None, None))) };
        if let Some(closed) = touched.closed {
            let reason = match closed {
                SkipReason::TooDeep => UnsavedReason::TooDeep,
                SkipReason::Unreadable => UnsavedReason::Unreadable,
            };
            return Ok(Some((Some(SavedEntry::Unsaved { reason }), None)));
        }
        let entry = match above.kind() {
            FileType::RegularFile => return self.regular(touched),
            FileType::Directory => SavedEntry::Directory { mode: above.permissions() },
            FileType::Symlink => match self.link(touched)? {
                Some(entry) => entry,
                None => return Ok(None),
            },
            _ => SavedEntry::Special { mode: above.mode },
        };
        Ok(Some((Some(entry), None)))
    }

    fn link(&self, touched: &TouchedPath) -> io::Result<Option<SavedEntry>> {
        let Some(target) = beneath::link(self.upper, &touched.path)? else {
            return Ok(Some(SavedEntry::Unsaved { reason: UnsavedReason::Vanished }));
        };
        let is_link = touched.below.is_some_and(|below| below.kind() == FileType::Symlink);
        let same = is_link && beneath::link(self.lower, &touched.path)?.is_some_and(|before| before == target);
        Ok((!same).then_some(SavedEntry::Symlink { target }))
    }

    fn regular(&mut self, touched: &TouchedPath) -> io::Result<Option<SavedState>> {
        let unsaved = |reason| Ok(Some((Some(SavedEntry::Unsaved { reason }), None)));
        let mut file = match beneath::regular(self.upper, &touched.path) {
            Ok(Some(file)) => file,
            Ok(None) => return unsaved(UnsavedReason::Vanished),
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
                return unsaved(UnsavedReason::Unreadable);
            }
            Err(error) => return Err(error),
        };
        // The stamp is read before the content, so that a concurrent write makes the next save read the file again.
        let upper = FileStamp::of(&fstat(&file)?);
        if self.is_as_below(touched, &upper, &mut file)? {
            return Ok(None);
        }
        if self.reread == RereadScope::Changed
            && let Some(record) = self.last.unchanged(&touched.path, &upper)
            && record.change.sha256().is_some_and(|sha256| self.contents.holds(sha256))
        {
            self.left = self.left.saturating_sub(upper.size);
            return Ok(Some((record.change.entry.clone(), Some(upper))));
        }
        let limit = self.left.min(MAX_FILE_BYTES);
        if upper.size > limit {
            return unsaved(UnsavedReason::TooLarge);
        }
        let Some((size, sha256)) = self.contents.keep(&mut file, limit)? else {
            return unsaved(UnsavedReason::TooLarge);
        };
        self.left -= size;
        Ok(Some((Some(SavedEntry::Regular { mode: upper.permissions(), size, sha256 }), Some(upper))))
    }

    /// Returns whether a file has the same mode and content as on the host.
    fn is_as_below(&self, touched: &TouchedPath, upper: &FileStamp, file: &mut File) -> io::Result<bool> {
        // As in git, of the permissions only that to execute is compared: an apply writes no other permission.
        let compared = |stamp: &FileStamp| (stamp.kind(), stamp.mode & 0o7100, stamp.size);
        let alike = |below: &FileStamp| compared(below) == compared(upper);
        if touched.kind != ChangeKind::Modified || !touched.below.is_some_and(|below| alike(&below)) {
            return Ok(false);
        }
        let Some(mut before) = beneath::regular(self.lower, &touched.path)? else { return Ok(false) };
        let equal = are_equal(file, &mut before)?;
        file.rewind()?;
        Ok(equal)
    }
}
