//! Moving of a directory that the kernel cannot rename: it is copied to a temporary name, renamed, and then removed.

use std::path::Path;

use rustix::fs::{FileType, Mode, Timespec, Timestamps, fchmod, fstat, futimens, renameat_with};

use super::error::AtPath;
use super::pending_file::PendingFile;
use super::view::{WorkspaceView, name};
use super::{FilesError, OnExisting};
use crate::beneath;

/// Moves the directory `from` to `to`. The new name appears, and the old one is removed, only when the copy is complete.
pub(super) fn move_directory(
    view: &WorkspaceView,
    from: &Path,
    to: &Path,
    existing: OnExisting,
) -> Result<(), FilesError> {
    let copy = to.with_file_name(format!(".viv-{}", uuid::Uuid::new_v4().simple()));
    let moved = copy_tree(view, from, &copy).and_then(|()| {
        let directory = view.parent(to)?;
        renameat_with(&directory, name(&copy)?, &directory, name(to)?, existing.flags()).at_path(to)
    });
    if moved.is_err() {
        let _ = view.remove_tree(&copy);
        return moved;
    }
    view.remove_tree(from)
}

fn copy_tree(view: &WorkspaceView, from: &Path, copy: &Path) -> Result<(), FilesError> {
    let mut directories = vec![(from.to_owned(), copy.to_owned())];
    view.make_directory(copy)?;
    view.below(from, &mut |path, kind| {
        let target = copy.join(path.strip_prefix(from).unwrap_or(Path::new("")));
        match kind {
            FileType::Directory => {
                view.make_directory(&target)?;
                directories.push((path.to_owned(), target));
                Ok(())
            }
            FileType::RegularFile => copy_file(view, path, &target),
            FileType::Symlink => match beneath::link(&view.root, path).at_path(path)? {
                Some(link) => PendingFile::link(view.make_parent(&target)?, &target, &link)?.finish(),
                None => Err(FilesError::Busy(path.to_owned())),
            },
            _ => Err(FilesError::WrongKind { path: path.to_owned(), wanted: "a file, directory or link" }),
        }
    })?;
    // Modes are set last, innermost first, because a read-only directory could not be filled.
    directories.iter().rev().try_for_each(|(path, target)| copy_mode(view, path, target))
}

fn copy_file(view: &WorkspaceView, path: &Path, target: &Path) -> Result<(), FilesError> {
    let (mut source, stat) = view.open(path)?;
    let (pending, mut file) = PendingFile::file(view.make_parent(target)?, target, stat.mode)?;
    std::io::copy(&mut source, &mut file).at_path(target)?;
    let found = fstat(&source).at_path(path)?;
    let time = |secs, nanos| Timespec { tv_sec: secs, tv_nsec: i64::try_from(nanos).unwrap_or_default() };
    let times = Timestamps {
        last_access: time(found.st_atime, found.st_atime_nsec),
        last_modification: time(found.st_mtime, found.st_mtime_nsec),
    };
    futimens(&file, &times).at_path(target)?;
    pending.finish()
}

fn copy_mode(view: &WorkspaceView, path: &Path, target: &Path) -> Result<(), FilesError> {
    let source = beneath::directory(&*view.root, path).at_path(path)?;
    let mode = Mode::from_raw_mode(fstat(&source).at_path(path)?.st_mode & 0o777);
    let copy = beneath::directory(&*view.root, target).at_path(target)?;
    fchmod(&copy, mode).at_path(target)
}
