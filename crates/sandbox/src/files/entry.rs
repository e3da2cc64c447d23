//! What a file looks like from outside.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::{Duration, SystemTime};

use rustix::fs::{FileType, Stat};

/// What kind of thing a name stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// A regular file.
    File,
    /// A directory.
    Directory,
    /// A symbolic link.
    Link,
    /// A FIFO, socket or device: it is shown and can be removed, and nothing else.
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

/// What is at a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileStat {
    /// Relative to the workspace; empty for the workspace itself.
    pub path: PathBuf,
    /// Its kind.
    pub kind: FileKind,
    /// Its length in bytes.
    pub size: u64,
    /// Its permission bits.
    pub mode: u32,
    /// When its content was written.
    pub modified: SystemTime,
    /// What a link says.
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

/// One name in a directory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEntry {
    /// Its name there.
    pub name: OsString,
    /// What it stands for.
    pub stat: FileStat,
}

/// What is in a directory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DirectoryListing {
    /// Sorted by name.
    pub entries: Vec<FileEntry>,
    /// Whether there is more.
    pub truncated: bool,
}

/// A time as the sandbox set it: any number, also one that no clock shows.
fn time(secs: i64, nanos: u64) -> SystemTime {
    let whole = Duration::from_secs(secs.unsigned_abs());
    let moved =
        if secs < 0 { SystemTime::UNIX_EPOCH.checked_sub(whole) } else { SystemTime::UNIX_EPOCH.checked_add(whole) };
    moved.and_then(|time| time.checked_add(Duration::from_nanos(nanos))).unwrap_or(SystemTime::UNIX_EPOCH)
}
