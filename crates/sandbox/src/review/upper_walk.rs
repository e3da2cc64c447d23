//! A walk over the upper layer of an overlay, in the format of overlayfs.
//!
//! A character device 0/0 is a deletion. An opaque directory hides the host's entries. Everything in a directory that did
//! not merge is new. The sandbox wrote all of this, so directories are opened one at a time from the top: no depth, link
//! or concurrent rename leads out of the layer.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use policy::FileDenials;
use rustix::fs::{AtFlags, FileType, Stat, statat};
use rustix::io::Errno;

use super::FileStamp;
use crate::beneath;
use crate::overlay::ChangeKind;

/// The longest path that can be opened in one call. A deeper directory is listed as one entry that cannot be saved.
const MAX_PATH_BYTES: usize = 3800;
/// The most touched paths, as a bound on memory.
const MAX_TOUCHED: usize = 1_000_000;

/// One path that the sandbox touched.
#[derive(Debug, Clone)]
pub(crate) struct TouchedPath {
    pub(crate) path: PathBuf,
    pub(crate) kind: ChangeKind,
    /// The stamp in the upper layer; `None` when the path was deleted.
    pub(crate) above: Option<FileStamp>,
    /// The stamp on the host; `None` when the path is new.
    pub(crate) below: Option<FileStamp>,
    /// Why the entries of this directory are not known.
    pub(crate) closed: Option<SkipReason>,
}

/// Why a directory was not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SkipReason {
    TooDeep,
    Unreadable,
}

/// Returns every touched path, deletions first, then by path. Entries of a deleted directory are listed one by one,
/// because each may be denied or have changed on the host. Files that were hidden from the sandbox are not deleted, and
/// neither are the directories that contain them.
pub(crate) fn touched_paths(upper: &OwnedFd, lower: &OwnedFd, denials: &FileDenials) -> io::Result<Vec<TouchedPath>> {
    let mut walk = UpperWalk { upper, lower, open: vec![OpenDirectory::default()], found: Vec::new() };
    while let Some(place) = walk.open.pop() {
        walk.directory(&place)?;
    }
    keep_hidden(&mut walk.found, denials);
    walk.found.sort_by(|a, b| (a.kind != ChangeKind::Deleted, &a.path).cmp(&(b.kind != ChangeKind::Deleted, &b.path)));
    Ok(walk.found)
}

/// Removes deletions of hidden files and of the directories above them.
fn keep_hidden(found: &mut Vec<TouchedPath>, denials: &FileDenials) {
    let deleted = || found.iter().filter(|touched| touched.kind == ChangeKind::Deleted);
    let hidden = deleted().filter(|touched| denials.hides(&touched.path));
    let kept: HashSet<PathBuf> = hidden.flat_map(|touched| touched.path.ancestors()).map(Path::to_owned).collect();
    if !kept.is_empty() {
        found.retain(|touched| touched.kind != ChangeKind::Deleted || !kept.contains(&touched.path));
    }
}

struct UpperWalk<'a> {
    upper: &'a OwnedFd,
    lower: &'a OwnedFd,
    open: Vec<OpenDirectory>,
    found: Vec<TouchedPath>,
}

/// A directory of the upper layer that is still to be read.
#[derive(Default)]
struct OpenDirectory {
    path: PathBuf,
    /// The index in `found`, when it is a change itself.
    listed: Option<usize>,
    /// Whether it hides the host's directory.
    opaque: bool,
}

impl UpperWalk<'_> {
    fn directory(&mut self, place: &OpenDirectory) -> io::Result<()> {
        let upper = match beneath::directory(self.upper, &place.path) {
            Ok(upper) => upper,
            // The directory was removed or replaced meanwhile. The next save finds it.
            Err(error) if beneath::is_absence(error) => return Ok(()),
            Err(Errno::ACCESS) => return self.close(place, SkipReason::Unreadable),
            Err(error) => return Err(error.into()),
        };
        let lower = match beneath::directory(self.lower, &place.path) {
            Ok(lower) => Some(lower),
            Err(error) if beneath::is_absence(error) => None,
            Err(error) => return Err(error.into()),
        };
        let opaque = place.opaque || is_opaque(&upper);
        for name in beneath::names(&upper)? {
            self.entry(place, opaque, &upper, lower.as_ref(), &name?)?;
        }
        match lower {
            Some(lower) if opaque => self.hidden(&place.path, &upper, &lower),
            _ => Ok(()),
        }
    }

    fn entry(
        &mut self,
        place: &OpenDirectory,
        opaque: bool,
        upper: &OwnedFd,
        lower: Option<&OwnedFd>,
        name: &CStr,
    ) -> io::Result<()> {
        let Some(stat) = look(upper, name)? else { return Ok(()) };
        let below = lower.map(|lower| look(lower, name)).transpose()?.flatten().map(|stat| FileStamp::of(&stat));
        let path = place.path.join(OsStr::from_bytes(name.to_bytes()));
        let above = FileStamp::of(&stat);
        if above.kind() == FileType::CharacterDevice && stat.st_rdev == 0 {
            return below.map_or(Ok(()), |below| self.deleted(path, below));
        }
        let below_directory = below.is_some_and(|below| below.is_directory());
        if !above.is_directory() {
            if below_directory {
                self.deleted_within(&path)?;
            }
            return self.changed(path, above, below, None).map(drop);
        }
        // A directory that only contains changes is not a change itself.
        let merges = below.is_some_and(|below| below.is_directory() && below.mode & 0o777 == above.mode & 0o777);
        let closed = (path.as_os_str().len() > MAX_PATH_BYTES).then_some(SkipReason::TooDeep);
        let listed =
            if merges && closed.is_none() { None } else { Some(self.changed(path.clone(), above, below, closed)?) };
        if closed.is_none() {
            self.open.push(OpenDirectory { path, listed, opaque: opaque && below_directory });
        }
        Ok(())
    }

    /// Lists the entries that an opaque directory hides as deleted, unless they exist again.
    fn hidden(&mut self, path: &Path, upper: &OwnedFd, lower: &OwnedFd) -> io::Result<()> {
        for name in beneath::names(lower)? {
            let name = name?;
            if let (None, Some(below)) = (look(upper, &name)?, look(lower, &name)?) {
                self.deleted(path.join(OsStr::from_bytes(name.to_bytes())), FileStamp::of(&below))?;
            }
        }
        Ok(())
    }

    fn deleted(&mut self, path: PathBuf, below: FileStamp) -> io::Result<()> {
        if below.is_directory() {
            self.deleted_within(&path)?;
        }
        self.push(TouchedPath { path, kind: ChangeKind::Deleted, above: None, below: Some(below), closed: None })
            .map(drop)
    }

    /// Lists everything below a directory of the host as deleted.
    fn deleted_within(&mut self, path: &Path) -> io::Result<()> {
        let mut open = vec![path.to_owned()];
        while let Some(path) = open.pop() {
            let directory = match beneath::directory(self.lower, &path) {
                Ok(directory) => directory,
                Err(error) if beneath::is_absence(error) => continue,
                Err(error) => return Err(error.into()),
            };
            for name in beneath::names(&directory)? {
                let name = name?;
                let Some(stat) = look(&directory, &name)? else { continue };
                let (path, below) = (path.join(OsStr::from_bytes(name.to_bytes())), FileStamp::of(&stat));
                if below.is_directory() {
                    open.push(path.clone());
                }
                let kind = ChangeKind::Deleted;
                self.push(TouchedPath { path, kind, above: None, below: Some(below), closed: None })?;
            }
        }
        Ok(())
    }

    fn changed(
        &mut self,
        path: PathBuf,
        above: FileStamp,
        below: Option<FileStamp>,
        closed: Option<SkipReason>,
    ) -> io::Result<usize> {
        let kind = if below.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.push(TouchedPath { path, kind, above: Some(above), below, closed })
    }

    /// Marks a directory that cannot be read, listing it if it was not yet.
    fn close(&mut self, place: &OpenDirectory, why: SkipReason) -> io::Result<()> {
        if let Some(listed) = place.listed.and_then(|index| self.found.get_mut(index)) {
            listed.closed = Some(why);
            return Ok(());
        }
        let above = beneath::stamp(self.upper, &place.path)?;
        let below = beneath::stamp(self.lower, &place.path).unwrap_or_default();
        let Some(above) = above else { return Ok(()) };
        self.changed(place.path.clone(), above, below, Some(why)).map(drop)
    }

    fn push(&mut self, touched: TouchedPath) -> io::Result<usize> {
        if self.found.len() >= MAX_TOUCHED {
            return Err(io::Error::other(format!("more than {MAX_TOUCHED} paths were changed")));
        }
        self.found.push(touched);
        Ok(self.found.len() - 1)
    }
}

fn look(directory: &OwnedFd, name: &CStr) -> io::Result<Option<Stat>> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::NOENT) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether a directory is opaque. Programs inside cannot set this attribute: overlayfs escapes its own names.
fn is_opaque(directory: &OwnedFd) -> bool {
    let mut value = [0; 8];
    rustix::fs::fgetxattr(directory, "user.overlay.opaque", &mut value).is_ok_and(|size| &value[..size] == b"y")
}
