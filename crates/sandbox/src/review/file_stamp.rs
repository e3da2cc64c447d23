//! File stamps, which show whether a file has changed.

use std::time::SystemTime;

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

/// The identity and times of a file, without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// The device number. It is not compared, because it may change at the next boot.
    pub dev: u64,
    /// The inode number.
    pub ino: u64,
    /// The length in bytes.
    pub size: u64,
    /// The type and permission bits.
    pub mode: u32,
    /// When its content was written, in nanoseconds since 1970.
    pub mtime_nanos: i64,
    /// When anything about the file changed. Programs cannot set this time.
    pub ctime_nanos: i64,
}

impl FileStamp {
    pub(crate) fn of(stat: &Stat) -> Self {
        Self {
            dev: stat.st_dev,
            ino: stat.st_ino,
            size: u64::try_from(stat.st_size).unwrap_or_default(),
            mode: stat.st_mode,
            mtime_nanos: nanos(stat.st_mtime, stat.st_mtime_nsec),
            ctime_nanos: nanos(stat.st_ctime, stat.st_ctime_nsec),
        }
    }

    /// The type.
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == FileType::Directory
    }

    /// The permission bits, with setuid, setgid and sticky.
    pub(crate) fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Returns whether `now` is the same unchanged file. A directory may have other entries, which are checked one by one.
    pub(crate) fn is_untouched(&self, now: &Self) -> bool {
        self.is_same_file(now) && (self.is_directory() || self.ctime_nanos == now.ctime_nanos)
    }

    /// Returns whether `now` is the same file, even if it was moved.
    pub(crate) fn is_same_file(&self, now: &Self) -> bool {
        self.ino == now.ino
            && self.mode == now.mode
            && (self.is_directory() || (self.size == now.size && self.mtime_nanos == now.mtime_nanos))
    }
}

/// Returns nanoseconds since 1970, limited to the range of `i64`.
fn nanos(secs: i64, nanos: impl TryInto<i64>) -> i64 {
    secs.saturating_mul(1_000_000_000).saturating_add(nanos.try_into().unwrap_or_default())
}

/// Returns a system time in nanoseconds since 1970.
pub(crate) fn nanos_of(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
