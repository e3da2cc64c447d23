//! What an overlay workspace holds that the host does not.
//!
//! The upper layer was written by the sandbox: nothing in it is trusted. It is walked by descriptor, no
//! link is followed, and only the names and kinds of things are believed.

use std::ffi::{CStr, OsStr};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, ResolveFlags, openat, openat2, statat};

/// The two layers of a workspace.
#[derive(Debug, Clone)]
pub struct Layers {
    /// Holds what was written; it outlives the sandbox.
    pub upper: Arc<OwnedFd>,
    /// The directory on the host.
    pub lower: PathBuf,
    /// When the sandbox was made.
    pub since: SystemTime,
}

/// One path that is not as on the host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Change {
    /// Relative to the workspace.
    pub path: PathBuf,
    /// What happened to it.
    pub kind: ChangeKind,
}

/// What happened to a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ChangeKind {
    /// It is gone.
    Deleted,
    /// It is new.
    Added,
    /// It has other content or another kind.
    Modified,
}

impl Layers {
    /// Everything that changed, deletions first, then by path. A directory that only holds changes is none.
    pub fn changes(&self) -> io::Result<Vec<Change>> {
        let lower = open_directory(&self.lower)?;
        let mut walk = Walk { lower, changes: Vec::new() };
        walk.directory(&self.upper, Path::new(""), 0)?;
        walk.changes
            .sort_by(|a, b| (a.kind != ChangeKind::Deleted, &a.path).cmp(&(b.kind != ChangeKind::Deleted, &b.path)));
        Ok(walk.changes)
    }

    /// Content of a changed path as the sandbox left it; `None` when it is no regular file there.
    pub fn after(&self, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
        read_regular(&*self.upper, path, limit)
    }

    /// Content of a path on the host; `None` when it is no regular file there.
    pub fn before(&self, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
        read_regular(&open_directory(&self.lower)?, path, limit)
    }
}

/// Deeper than any sane tree, shallower than any stack.
const MAX_DEPTH: usize = 256;

struct Walk {
    lower: OwnedFd,
    changes: Vec<Change>,
}

impl Walk {
    fn directory(&mut self, upper: &OwnedFd, path: &Path, depth: usize) -> io::Result<()> {
        if depth > MAX_DEPTH {
            return Err(io::Error::other(format!("`{}` is nested too deep", path.display())));
        }
        for entry in Dir::read_from(upper)? {
            let entry = entry?;
            let name = entry.file_name();
            if name == c"." || name == c".." {
                continue;
            }
            self.entry(upper, name, path.join(OsStr::from_bytes(name.to_bytes())), depth)?;
        }
        Ok(())
    }

    fn entry(&mut self, upper: &OwnedFd, name: &CStr, path: PathBuf, depth: usize) -> io::Result<()> {
        let above = statat(upper, name, AtFlags::SYMLINK_NOFOLLOW)?;
        let below = stat_beneath(&self.lower, &path)?;
        let kind = FileType::from_raw_mode(above.st_mode);
        if kind == FileType::CharacterDevice && above.st_rdev == 0 {
            if below.is_some() {
                self.changes.push(Change { path, kind: ChangeKind::Deleted });
            }
            return Ok(());
        }
        if kind == FileType::Directory {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let inner = openat(upper, name, flags, Mode::empty())?;
            match below.map(FileType::from_raw_mode) {
                Some(FileType::Directory) => {
                    if is_opaque(&inner) {
                        self.deleted_below(&inner, &path)?;
                    }
                }
                Some(_) => self.changes.push(Change { path: path.clone(), kind: ChangeKind::Modified }),
                None => self.changes.push(Change { path: path.clone(), kind: ChangeKind::Added }),
            }
            return self.directory(&inner, &path, depth + 1);
        }
        let kind = if below.is_some() { ChangeKind::Modified } else { ChangeKind::Added };
        self.changes.push(Change { path, kind });
        Ok(())
    }

    /// An opaque directory hides what was below it: all of that is deleted unless it is there again.
    fn deleted_below(&mut self, upper: &OwnedFd, path: &Path) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        let lower = openat2(&self.lower, path, flags, Mode::empty(), beneath)?;
        for entry in Dir::read_from(&lower)? {
            let entry = entry?;
            let name = entry.file_name();
            if name != c"." && name != c".." && statat(upper, name, AtFlags::SYMLINK_NOFOLLOW).is_err() {
                let name = OsStr::from_bytes(name.to_bytes());
                self.changes.push(Change { path: path.join(name), kind: ChangeKind::Deleted });
            }
        }
        Ok(())
    }
}

fn is_opaque(directory: &OwnedFd) -> bool {
    let mut value = [0; 8];
    rustix::fs::fgetxattr(directory, "user.overlay.opaque", &mut value).is_ok_and(|size| &value[..size] == b"y")
}

fn open_directory(path: &Path) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    Ok(openat2(rustix::fs::CWD, path, flags, Mode::empty(), ResolveFlags::NO_SYMLINKS)?)
}

/// Mode of `path` under `root`, `None` when there is nothing or a link leads out.
fn stat_beneath(root: &OwnedFd, path: &Path) -> io::Result<Option<u32>> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match openat2(root, path, flags, Mode::empty(), beneath) {
        Ok(found) => Ok(Some(rustix::fs::fstat(&found)?.st_mode)),
        Err(
            rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP | rustix::io::Errno::XDEV,
        ) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn read_regular(root: impl AsFd, path: &Path, limit: u64) -> io::Result<Option<Vec<u8>>> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
    let file = match openat2(root, path, flags, Mode::empty(), beneath) {
        Ok(file) => file,
        Err(
            rustix::io::Errno::NOENT | rustix::io::Errno::NOTDIR | rustix::io::Errno::LOOP | rustix::io::Errno::NXIO,
        ) => {
            return Ok(None);
        }
        Err(error) => return Err(error.into()),
    };
    if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::RegularFile {
        return Ok(None);
    }
    let mut content = Vec::new();
    std::fs::File::from(file).take(limit).read_to_end(&mut content)?;
    Ok(Some(content))
}
