//! Files of a running sandbox's workspace, from outside: what a command inside sees, with the rights it has.
//!
//! Nothing outside the workspace is reached, whatever a path or a link says; nothing is read that `fs.deny_read`
//! names and nothing changed that `fs.deny_write` does; nothing waits for a FIFO or a device; and content is a
//! stream with a cap. What is written belongs to the user inside.
//!
//! Not here: what a session changed in the end (`review`), and who may ask (`server`).

mod archive;
mod bridge;
mod carry;
mod draft;
mod entry;
mod error;
mod on_disk;
mod path;
mod view;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use rustix::fs::RenameFlags;
use tokio::io::AsyncRead;

pub use self::entry::{DirectoryListing, FileEntry, FileKind, FileStat};
pub use self::error::FilesError;
pub(crate) use self::on_disk::FilesOnDisk;

/// An answer that comes later.
pub type FilesFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, FilesError>> + Send + 'a>>;

/// Bytes that come as they are read.
pub type ByteStream = Box<dyn AsyncRead + Send + Unpin>;

/// The workspace of a sandbox.
///
/// A path is relative to the workspace, or absolute and inside `/workspace`; `..` is refused. Links are followed
/// within the workspace, but for the last name of what is looked at, moved or removed. A sandbox that was
/// destroyed answers [`FilesError::Gone`]. There are more methods than a port should have: each is one thing that
/// people do to files, and none can be said by the others in one step.
pub trait WorkspaceFiles: Send + Sync {
    /// What is at `path`.
    fn stat<'a>(&'a self, path: &'a Path) -> FilesFuture<'a, FileStat>;
    /// What is in the directory `path`, by name; at most `limit` of it.
    fn list<'a>(&'a self, path: &'a Path, limit: usize) -> FilesFuture<'a, DirectoryListing>;
    /// The regular file `path`: `range` of it, no more than it has now.
    fn read<'a>(&'a self, path: &'a Path, range: ByteRange) -> FilesFuture<'a, FileContent>;
    /// Makes or replaces the regular file `path`, and the directories to it. Whoever reads it meanwhile has the old
    /// one or the new one, whole. Over `limit` bytes it is left as it was. Answers how many bytes it has.
    fn write<'a>(&'a self, path: &'a Path, content: ByteStream, limit: u64) -> FilesFuture<'a, u64>;
    /// Makes the directory `path` and those it is in. One that is there is fine.
    fn make_directory<'a>(&'a self, path: &'a Path) -> FilesFuture<'a, ()>;
    /// Gives what is at `from` the name `to`, making the directories to it.
    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path, existing: OnExisting) -> FilesFuture<'a, ()>;
    /// Removes what is at `path`; what is in a directory only when asked.
    fn remove<'a>(&'a self, path: &'a Path, depth: RemovalDepth) -> FilesFuture<'a, ()>;
    /// A tar archive of the file or directory `path`: regular files, directories and links, without what
    /// `fs.deny_read` names. A failure on the way is an error of the stream, never a short archive.
    fn pack<'a>(&'a self, path: &'a Path, cap: ArchiveLimit) -> FilesFuture<'a, ByteStream>;
    /// Unpacks a tar archive into the directory `path`, which is made. Refused are names that leave it or lead
    /// through links, links that leave it, devices, and what the policy denies; what came before stays.
    fn unpack<'a>(&'a self, path: &'a Path, archive: ByteStream, cap: ArchiveLimit) -> FilesFuture<'a, UnpackReport>;
}

/// Which bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The first.
    pub offset: u64,
    /// How many, at most.
    pub limit: u64,
}

impl ByteRange {
    /// From the beginning, at most `limit`.
    pub fn first(limit: u64) -> Self {
        Self { offset: 0, limit }
    }
}

/// A file that is being read.
pub struct FileContent {
    /// The file, when it was opened.
    pub stat: FileStat,
    /// How many bytes come, if nobody shortens the file meanwhile.
    pub length: u64,
    /// The bytes.
    pub bytes: ByteStream,
}

/// What becomes of something that has the name already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExisting {
    /// It stays, and the call fails.
    Keep,
    /// It is replaced: a file by a file, an empty directory by a directory.
    Replace,
}

impl OnExisting {
    fn flags(self) -> RenameFlags {
        match self {
            Self::Keep => RenameFlags::NOREPLACE,
            Self::Replace => RenameFlags::empty(),
        }
    }
}

/// How much of a directory is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalDepth {
    /// Itself.
    Single,
    /// And everything in it.
    Recursive,
}

/// How large an archive may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimit {
    /// Bytes of all its files.
    pub bytes: u64,
    /// Files, directories and links.
    pub entries: usize,
}

impl Default for ArchiveLimit {
    fn default() -> Self {
        Self { bytes: 1 << 30, entries: 100_000 }
    }
}

/// What came out of an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnpackReport {
    /// Files and links, relative to the workspace; the first [`UnpackReport::LISTED`] of them.
    pub paths: Vec<PathBuf>,
    /// Whether there were more.
    pub truncated: bool,
    /// Bytes of all files.
    pub bytes: u64,
}

impl UnpackReport {
    /// So many paths are told.
    pub const LISTED: usize = 1000;

    fn tell(&mut self, path: PathBuf) {
        if self.paths.len() < Self::LISTED {
            self.paths.push(path);
        } else {
            self.truncated = true;
        }
    }
}
