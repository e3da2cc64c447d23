//! What tells whether a file is still the one that was seen.

use std::time::SystemTime;

use rustix::fs::{FileType, Stat};
use serde::{Deserialize, Serialize};

/// The identity and age of something on disk, without its content.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct FileStamp {
    /// Its file system. Told, never compared: the number may change when the machine starts anew.
    pub dev: u64,
    /// Its number there.
    pub ino: u64,
    /// Its length in bytes.
    pub size: u64,
    /// Its type and permission bits.
    pub mode: u32,
    /// When its content was written, in nanoseconds since 1970.
    pub mtime_nanos: i64,
    /// When anything about it changed. No program can set this one.
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

    /// Its type.
    pub(crate) fn kind(&self) -> FileType {
        FileType::from_raw_mode(self.mode)
    }

    pub(crate) fn is_directory(&self) -> bool {
        self.kind() == FileType::Directory
    }

    /// Its permission bits, with setuid, setgid and sticky.
    pub(crate) fn permissions(&self) -> u32 {
        self.mode & 0o7777
    }

    /// Whether `now` is what was stamped, untouched. A directory may hold other names: those are looked at
    /// one by one.
    pub(crate) fn is_untouched(&self, now: &Self) -> bool {
        self.is_same_file(now) && (self.is_directory() || self.ctime_nanos == now.ctime_nanos)
    }

    /// Whether `now` is what was stamped, though it may have been moved.
    pub(crate) fn is_same_file(&self, now: &Self) -> bool {
        self.ino == now.ino
            && self.mode == now.mode
            && (self.is_directory() || (self.size == now.size && self.mtime_nanos == now.mtime_nanos))
    }
}

/// Nanoseconds since 1970; times a file cannot mean end at the ends of the range.
fn nanos(secs: i64, nanos: impl TryInto<i64>) -> i64 {
    secs.saturating_mul(1_000_000_000).saturating_add(nanos.try_into().unwrap_or_default())
}

/// The same for a moment of ours.
pub(crate) fn nanos_of(time: SystemTime) -> i64 {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_nanos()).unwrap_or(i64::MAX)
}
