//! An archive into the workspace. Nothing in it is trusted: not its names, its links, its sizes.

use std::ffi::OsStr;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Timespec, Timestamps, UTIME_NOW, futimens};
use tar::{Archive, Entry, EntryType};

use crate::beneath;
use crate::files::draft::Draft;
use crate::files::error::About;
use crate::files::path::{Last, real, stays_inside};
use crate::files::view::{View, name};
use crate::files::{ArchiveLimit, FileKind, FilesError, UnpackReport};

/// Unpacks `archive` into the directory `path`.
pub(in crate::files) fn unpack(
    view: &View,
    path: &Path,
    cap: ArchiveLimit,
    archive: impl Read,
) -> Result<UnpackReport, FilesError> {
    let top = real(&view.root, path, Last::Followed)?;
    view.make_directory(&top)?;
    let mut archive = Archive::new(archive);
    let mut unpacker = Unpacker { view, top, cap, entries: 0, done: UnpackReport::default() };
    for entry in archive.entries().map_err(|error| unreadable(&error))? {
        unpacker.add(entry.map_err(|error| unreadable(&error))?)?;
    }
    Ok(unpacker.done)
}

struct Unpacker<'a> {
    view: &'a View,
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
            return Err(refused(&named, "its name leaves the directory"));
        };
        self.entries += 1;
        if self.entries > self.cap.entries {
            return Err(too_large(&named, format!("an archive may have {} entries", self.cap.entries)));
        }
        let path = self.top.join(inside);
        match kind {
            EntryType::Directory => self.view.make_directory(&self.plain(&named, &path)?),
            EntryType::Regular | EntryType::Continuous | EntryType::GNUSparse => self.add_file(entry, &named, path),
            EntryType::Symlink => self.add_link(&entry, &named, path),
            EntryType::Link => self.add_second_name(&entry, &named, path),
            _ => Err(refused(&named, "it is neither a file nor a directory nor a link")),
        }
    }

    fn add_file<R: Read>(&mut self, entry: Entry<'_, R>, named: &Path, path: PathBuf) -> Result<(), FilesError> {
        let directory = self.place(named, &path)?;
        let mode = entry.header().mode().unwrap_or(0o644);
        let written = entry.header().mtime().ok().and_then(|secs| i64::try_from(secs).ok());
        let promised = entry.size();
        let (draft, mut file) = Draft::file(directory, &path, mode)?;
        let left = self.cap.bytes.saturating_sub(self.done.bytes);
        // One more than is left tells a file that just fits from one that does not.
        let count = copy(&mut entry.take(left.saturating_add(1)), &mut file, &path)?;
        if count > left {
            return Err(too_large(named, format!("an archive may hold {} bytes", self.cap.bytes)));
        }
        if count < promised {
            return Err(refused(named, "the archive breaks off in it"));
        }
        futimens(&file, &times(written)).about(&path)?;
        draft.finish()?;
        self.done.bytes += count;
        self.done.tell(path);
        Ok(())
    }

    fn add_link<R: Read>(&mut self, entry: &Entry<'_, R>, named: &Path, path: PathBuf) -> Result<(), FilesError> {
        let target = link_target(entry, named)?;
        if !stays_inside(&path, &target) {
            return Err(refused(named, "it is a link that leaves the workspace"));
        }
        Draft::link(self.place(named, &path)?, &path, &target)?.finish()?;
        self.done.tell(path);
        Ok(())
    }

    fn add_second_name<R: Read>(
        &mut self,
        entry: &Entry<'_, R>,
        named: &Path,
        path: PathBuf,
    ) -> Result<(), FilesError> {
        let target = link_target(entry, named)?;
        let Some(target) = inside(&target) else {
            return Err(refused(named, "it is a hard link to a file outside the directory"));
        };
        let source = self.top.join(target);
        // Under a second name it could be read and changed.
        self.view.may_read(&source)?;
        self.view.may_change(&source)?;
        let directory = self.place(named, &path)?;
        if self.plain(named, &source).and_then(|source| self.view.stat(&source))?.kind != FileKind::File {
            return Err(refused(named, "it is a hard link to something that is no regular file"));
        }
        Draft::second_name(directory, &path, self.view.around(&source)?, name(&source)?)?.finish()?;
        self.done.tell(path);
        Ok(())
    }

    /// The directory that `path` goes to, made if it is not there, when the policy lets it be there.
    fn place(&self, named: &Path, path: &Path) -> Result<OwnedFd, FilesError> {
        name(path).map_err(|_| refused(named, "it has no name"))?;
        self.view.may_change(path)?;
        self.plain(named, path)?;
        let directory = self.view.parent(path)?;
        match beneath::look(&*self.view.root, path) {
            Ok(found) if is_directory(&found, path)? => Err(refused(named, "there is a directory of that name")),
            _ => Ok(directory),
        }
    }

    /// `path`, when no link is on the way to it: a link may be the archive's own.
    fn plain(&self, named: &Path, path: &Path) -> Result<PathBuf, FilesError> {
        match real(&self.view.root, path, Last::AsItIs) {
            Ok(real) if real == path => Ok(real),
            Ok(_) | Err(FilesError::Outside(_) | FilesError::LinkLoop(_)) => {
                Err(refused(named, "its name leads through a link"))
            }
            Err(error) => Err(error),
        }
    }
}

/// The parts of a name; `None` when it leaves.
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
    let target = entry.link_name_bytes().ok_or_else(|| refused(named, "it is a link to nothing"))?;
    Ok(PathBuf::from(OsStr::from_bytes(&target)))
}

/// Tells a stream that broke from a disk that is full.
fn copy(from: &mut impl Read, to: &mut impl io::Write, path: &Path) -> Result<u64, FilesError> {
    let (mut buffer, mut count) = (vec![0; 64 * 1024], 0);
    loop {
        match from.read(&mut buffer).map_err(|error| unreadable(&error))? {
            0 => return Ok(count),
            read => {
                to.write_all(&buffer[..read]).about(path)?;
                count += read as u64;
            }
        }
    }
}

fn is_directory(found: &OwnedFd, path: &Path) -> Result<bool, FilesError> {
    let mode = rustix::fs::fstat(found).about(path)?.st_mode;
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
    FilesError::Archive { entry: PathBuf::new(), reason: format!("it cannot be read ({error})") }
}

fn too_large(path: &Path, limit: String) -> FilesError {
    FilesError::TooLarge { path: path.to_owned(), limit }
}
