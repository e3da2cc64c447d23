//! Packing of workspace files into a tar archive.

use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use jail::{INSIDE_GID, INSIDE_UID};
use rustix::fs::{FileType, fstat};
use tar::{Builder, EntryType, Header};

use crate::beneath;
use crate::files::error::AtPath;
use crate::files::path::LastLink;
use crate::files::view::WorkspaceView;
use crate::files::{ArchiveLimit, FileKind, FileStat, FilesError};

/// Writes an archive of `path` to `into`: the entries of a directory with names relative to it, or one file.
pub(in crate::files) fn pack(
    view: &WorkspaceView,
    path: &Path,
    cap: ArchiveLimit,
    into: impl Write,
) -> Result<(), FilesError> {
    let top = view.resolve(path, LastLink::Followed)?;
    let mut packer = Packer { view, archive: Builder::new(into), top: top.clone(), left: cap };
    if view.stat(&top)?.kind == FileKind::Directory {
        view.check_read(&top)?;
        view.below(&top, &mut |path, kind| match view.check_read(path) {
            Ok(()) => packer.add(path, kind),
            // Denied entries are left out. A rule that denies a directory denies its entries too.
            Err(_) => Ok(()),
        })?;
    } else {
        packer.top = top.parent().map(PathBuf::from).unwrap_or_default();
        packer.add_file(&top)?;
    }
    packer.archive.into_inner().and_then(|mut into| into.flush()).map_err(FilesError::Content)
}

struct Packer<'a, W: Write> {
    view: &'a WorkspaceView,
    archive: Builder<W>,
    /// The directory to which names are relative.
    top: PathBuf,
    left: ArchiveLimit,
}

impl<W: Write> Packer<'_, W> {
    fn add(&mut self, path: &Path, kind: FileType) -> Result<(), FilesError> {
        match kind {
            FileType::RegularFile => self.add_file(path),
            FileType::Directory | FileType::Symlink => self.add_name(path),
            // Special files are left out, because they cannot be unpacked.
            _ => Ok(()),
        }
    }

    fn add_file(&mut self, path: &Path) -> Result<(), FilesError> {
        let (file, stat) = match self.view.open(path) {
            // The file was removed since it was found.
            Err(FilesError::NotFound(_)) => return Ok(()),
            opened => opened?,
        };
        self.count(path, stat.size)?;
        let mut header = header(&stat, EntryType::Regular);
        header.set_size(stat.size);
        let name = self.name(path);
        // Exactly the size in the header: a file that grows is cut, and one that shrinks makes the archive fail.
        let content = ExactReader { file: file.take(stat.size), left: stat.size };
        self.archive.append_data(&mut header, name, content).map_err(FilesError::Content)
    }

    fn add_name(&mut self, path: &Path) -> Result<(), FilesError> {
        let found = match beneath::path_handle(&*self.view.root, path) {
            Err(rustix::io::Errno::NOENT) => return Ok(()),
            found => found.at_path(path)?,
        };
        let stat = FileStat::new(path.to_owned(), &fstat(&found).at_path(path)?);
        self.count(path, 0)?;
        let name = self.name(path);
        let packed = match stat.kind {
            FileKind::Directory => {
                self.archive.append_data(&mut header(&stat, EntryType::Directory), name, io::empty())
            }
            FileKind::Link => match beneath::link(&self.view.root, path).at_path(path)? {
                Some(target) => self.archive.append_link(&mut header(&stat, EntryType::Symlink), name, target),
                None => Ok(()),
            },
            FileKind::File | FileKind::Special => Ok(()),
        };
        packed.map_err(FilesError::Content)
    }

    fn name(&self, path: &Path) -> PathBuf {
        path.strip_prefix(&self.top).unwrap_or(path).to_owned()
    }

    fn count(&mut self, path: &Path, bytes: u64) -> Result<(), FilesError> {
        let left = self.left.entries.checked_sub(1).zip(self.left.bytes.checked_sub(bytes));
        let Some((entries, bytes)) = left else {
            let limit = "the archive would exceed its limit".to_owned();
            return Err(FilesError::TooLarge { path: path.to_owned(), limit });
        };
        self.left = ArchiveLimit { bytes, entries };
        Ok(())
    }
}

/// Returns a header with the ids inside, and without user names of the host.
fn header(stat: &FileStat, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(stat.mode & 0o777);
    header.set_uid(INSIDE_UID.into());
    header.set_gid(INSIDE_GID.into());
    header.set_size(0);
    let age = stat.modified.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    header.set_mtime(age.as_secs());
    header
}

/// A reader that fails when the file ends too early.
struct ExactReader<R> {
    file: R,
    left: u64,
}

impl<R: Read> Read for ExactReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.file.read(buffer)?;
        self.left -= count as u64;
        if count == 0 && !buffer.is_empty() && self.left > 0 {
            return Err(io::Error::other("a file was shortened while it was read"));
        }
        Ok(count)
    }
}
