//! Unpacking of a tar archive into the workspace. Its names, links and sizes are not trusted.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use tar::{Archive, Entry, EntryType};

use crate::beneath;
use crate::files::error::AtPath;
use crate::files::path::{LastLink, stays_inside};
use crate::files::pending_file::PendingFile;
use crate::files::view::{WorkspaceView, name};
use crate::files::{ArchiveLimit, FileKind, FilesError, UnpackReport};

/// Unpacks `archive` into the directory `path`.
pub(in crate::files) fn unpack(
    view: &WorkspaceView,
    path: &Path,
    cap: ArchiveLimit,
    archive: impl Read,
) -> Result<UnpackReport, FilesError> {
    let top = view.resolve(path, LastLink::Followed)?;
    view.make_directory(&top)?;
    let mut archive = Archive::new(archive);
    let mut unpacker = Unpacker { view, top, cap, entries: 0, done: UnpackReport::default() };
    for entry in archive.entries().map_err(|error| unreadable(&error))? {
        unpacker.add(entry.map_err(|error| unreadable(&error))?)?;
    }
    Ok(unpacker.done)
}

struct Unpacker<'a> {
    view: &'a WorkspaceView,
    top: PathBuf,
    cap: ArchiveLimit,
    entries: usize,
    done: UnpackReport,
}

impl Unpacker<'_> {
    fn add<R: Read>(&mut self, entry: Entry<'_, R>) -> Result<(), FilesError> {
        let kind = entry.header().entry_type();
        if kind == EntryType::XGlobalHeader {
            return Ok(());
        }
        let named = PathBuf::from(OsStr::from_bytes(&entry.path_bytes()));
        let Some(inside) = inside(&named) else {
            return Err(refused(&named, "the name leaves the directory"));
        };
        self.entries += 1;
        if self.entries > self.cap.entries {
            return Err(too_large(&named, format!("the limit is {} entries", self.cap.entries)));
        }
        let path = self.top.join(inside);
        match kind {
            EntryType::Directory => self.view.make_directory(&self.without_links(&named, &path)?),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => self.add_file(entry, &named, path),
            EntryType::Symlink => self.add_link(&entry, &named, path),
            EntryType::Link => self.add_hard_link(&entry, &named, path),
            _ => Err(refused(&named, "the entry is not a file, directory or link")),
        }
    }

    fn add_file<R: Read>(&mut self, entry: Entry<'_, R>, named: &Path, path: PathBuf) -> Result<(), FilesError> {
        let directory = self.open_parent(named, &path)?;
        let mode = entry.header().mode().unwrap_or(0o644);
        let written = entry.header().mtime().ok().and_then(|secs| i64::try_from(secs).ok());
        let announced = entry.size();
        let (pending, mut file) = PendingFile::file(directory, &path, mode)?;
        let left = self.cap.bytes.saturating_sub(self.done.bytes);
        // One byte more than the rest shows whether the file exceeds the limit.
        let count = copy(&mut entry.take(left.saturating_add(1)), &mut file, &path)?;
        if count > left {
            return Err(too_large(named, format!("the limit is {} bytes", self.cap.bytes)));
        }
        if count < announced {
            return Err(refused(named, "the archive ends within this file"));
        }
        futimens(&file, &times(written)).at_path(&path)?;
        pending.finish()?;
        self.done.bytes += count;
        self.done.add_path(path);
        Ok(())
    }

    fn add_link<R: Read>(&mut self, entry: &Entry<'_, R>, named: &Path, path: PathBuf) -> Result<(), FilesError> {
        let target = link_target(entry, named)?;
        if !stays_inside(&path, &target) {
            return Err(refused(named, "the link leaves the workspace"));
        }
        PendingFile::link(self.open_parent(named, &path)?, &path, &target)?.finish()?;
        self.done.add_path(path);
        Ok(())
    }

    fn add_hard_link<R: Read>(&mut self, entry: &Entry<'_, R>, named: &Path, path: PathBuf) -> Result<(), FilesError> {
        let target = link_target(entry, named)?;
        let Some(target) = inside(&target) else {
            return Err(refused(named, "the hard link leads out of the directory"));
        };
        let source = self.top.join(target);
        // A denied file could be read and changed under its second name.
        self.view.check_read(&source)?;
        self.view.check_change(&source)?;
        let directory = self.open_parent(named, &path)?;
        if self.without_links(named, &source).and_then(|source| self.view.stat(&source))?.kind != FileKind::File {
            return Err(refused(named, "the hard link does not lead to a regular file"));
        }
        PendingFile::hard_link(directory, &path, self.view.parent(&source)?, name(&source)?)?.finish()?;
        self.done.add_path(path);
        Ok(())
    }

    /// Opens the parent directory of `path`, making it if needed. Fails when the policy denies `path`.
    fn open_parent(&self, named: &Path, path: &Path) -> Result<OwnedFd, FilesError> {
        name(path).map_err(|_| refused(named, "the entry has no name"))?;
        self.view.check_change(path)?;
        self.without_links(named, path)?;
        let directory = self.view.make_parent(path)?;
        match beneath::path_handle(&*self.view.root, path) {
            Ok(found) if is_directory(&found, path)? => Err(refused(named, "a directory with that name exists")),
            _ => Ok(directory),
        }
    }

    /// Returns `path`. Fails when it passes through a link, which may be the archive's own.
    fn without_links(&self, named: &Path, path: &Path) -> Result<PathBuf, FilesError> {
        match self.view.resolve(path, LastLink::NotFollowed) {
            Ok(real) if real == path => Ok(real),
            Ok(_) | Err(FilesError::Outside(_) | FilesError::LinkLoop(_)) => {
                Err(refused(named, "the name passes through a link"))
            }
            Err(error) => Err(error),
        }
    }
}

/// Returns a name without `.`; `None` when it is absolute or contains `..`.
fn inside(path: &Path) -> Option<PathBuf> {
    let mut inside = PathBuf::new();
    for part in path.components() {
        match part {
            Component::Normal(name) if !name.as_bytes().contains(&0) => inside.push(name),
            Component::CurDir => {}
            _ => return None,
        }
    }
    Some(inside)
}

fn link_target<R: Read>(entry: &Entry<'_, R>, named: &Path) -> Result<PathBuf, FilesError> {
    let target = entry.link_name_bytes().ok_or_else(|| refused(named, "the link has no target"))?;
    Ok(PathBuf::from(OsStr::from_bytes(&target)))
}

/// Copies a file. Read errors are reported for the archive, write errors for `path`.
fn copy(from: &mut impl Read, to: &mut impl io::Write, path: &Path) -> Result<u64, FilesError> {
    let (mut buffer, mut count) = (vec![0; 64 * 1024], 0);
    loop {
        match from.read(&mut buffer).map_err(|error| unreadable(&error))? {
            0 => return Ok(count),
            read => {
                to.write_all(&buffer[..read]).at_path(path)?;
                count += read as u64;
            }
        }
    }
}

fn is_directory(found: &OwnedFd, path: &Path) -> Result<bool, FilesError> {
    let mode = rustix::fs::fstat(found).at_path(path)?.st_mode;
    Ok(rustix::fs::FileType::from_raw_mode(mode).is_dir())
}

fn times(written: Option<i64>) -> Timestamps {
    let now = Timespec { tv_sec: 0, tv_nsec: UTIME_NOW };
    let last_modification = written.map_or(now, |tv_sec| Timespec { tv_sec, tv_nsec: 0 });
    Timestamps { last_access: now, last_modification }
}

fn refused(entry: &Path, reason: &str) -> FilesError {
    FilesError::Archive { entry: entry.to_owned(), reason: reason.to_owned() }
}

fn unreadable(error: &io::Error) -> FilesError {
    FilesError::Archive { entry: PathBuf::new(), reason: format!("the archive cannot be read ({error})") }
}

fn too_large(path: &Path, limit: String) -> FilesError {
    FilesError::TooLarge { path: path.to_owned(), limit }
}
