//! Metadata of files in a workspace.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, Stat};

/// The type of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, socket or device. It can be listed and removed, but not read or written.
    Special,
}

impl FileKind {
    pub(crate) fn of(kind: FileType) -> Self {
        match kind {
            FileType::RegularFile => Self::File,
            FileType::Directory => Self::Directory,
            FileType::Symlink => Self::Link,
            _ => Self::Special,
        }
    }
}

/// The metadata of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStat {
    /// The path relative to the workspace; empty for the workspace itself.
    pub path: PathBuf,
    /// The file type.
    pub kind: FileKind,
    /// The length in bytes.
    pub size: u64,
    /// The permission bits.
    pub mode: u32,
    /// When the content was last written.
    pub modified: SystemTime,
    /// The target of a link.
    pub target: Option<PathBuf>,
}

impl FileStat {
    pub(crate) fn new(path: PathBuf, stat: &Stat) -> Self {
        Self {
            path,
            kind: FileKind::of(FileType::from_raw_mode(stat.st_mode)),
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            mode: stat.st_mode & 0o7777,
            modified: time(stat.st_mtime, stat.st_mtime_nsec),
            target: None,
        }
    }
}

/// One entry of a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// The name in the directory.
    pub name: OsString,
    /// The metadata.
    pub stat: FileStat,
}

/// The entries of a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryListing {
    /// The entries, sorted by name.
    pub entries: Vec<FileEntry>,
    /// Whether there are more.
    pub truncated: bool,
}

/// Returns a file's time. The sandbox may have set any number, so a time out of range becomes 1970.
fn time(secs: i64, nanos: u64) -> SystemTime {
    let whole = Duration::from_secs(secs.unsigned_abs());
    let moved =
        if secs < 0 { SystemTime::UNIX_EPOCH.checked_sub(whole) } else { SystemTime::UNIX_EPOCH.checked_add(whole) };
    moved.and_then(|time| time.checked_add(Duration::from_nanos(nanos))).unwrap_or(SystemTime::UNIX_EPOCH)
}
