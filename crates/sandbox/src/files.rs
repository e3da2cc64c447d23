//! Access from the host to the files of a running sandbox's workspace, with the rights of a command inside.
//!
//! No path and no link leads out of the workspace. Files that `fs.deny_read` names are not read, and files that
//! `fs.deny_write` names are not changed. No call waits for a FIFO or a device. Content is a stream with a size limit.
//! Written files belong to the sandbox user.
//!
//! Not here: the changes of a session (`review`), and access control for callers (`server`).

mod archive;
mod byte_channel;
mod entry;
mod error;
mod move_directory;
mod on_disk;
mod path;
mod pending_file;
mod view;

use std::future::Future;
use std::path::{Path, PathBuf};
use std::pin::Pin;

use rustix::fs::RenameFlags;
use tokio::io::AsyncRead;

pub use self::entry::{DirectoryListing, FileEntry, FileKind, FileStat};
pub use self::error::FilesError;
pub(crate) use self::on_disk::FilesOnDisk;

/// A boxed future of a file operation.
pub type FilesFuture<'a, T> = Pin<Box<dyn Future<Output = Result<T, FilesError>> + Send + 'a>>;

/// A stream of bytes.
pub type ByteStream = Box<dyn AsyncRead + Send + Unpin>;

/// The workspace of a sandbox.
///
/// A path is relative to the workspace, or absolute and inside `/workspace`; `..` is refused. Links are followed within
/// the workspace, except for the last component in `stat`, `rename` and `remove`. After the sandbox was destroyed, every
/// method fails with [`FilesError::Gone`]. The trait has more methods than a port should have: each is one file
/// operation that cannot be expressed by the others in one step.
pub trait WorkspaceFiles: Send + Sync {
    /// Returns the metadata of `path`.
    fn stat<'a>(&'a self, path: &'a Path) -> FilesFuture<'a, FileStat>;
    /// Returns the entries of the directory `path` by name, at most `limit` of them.
    fn list<'a>(&'a self, path: &'a Path, limit: usize) -> FilesFuture<'a, DirectoryListing>;
    /// Returns `range` of the regular file `path`, up to its current size.
    fn read<'a>(&'a self, path: &'a Path, range: ByteRange) -> FilesFuture<'a, FileContent>;
    /// Makes or replaces the regular file `path`, and makes its parent directories. Returns its size. A concurrent reader
    /// sees the old or the new content, never a mix. Content over `limit` bytes leaves the file unchanged.
    fn write<'a>(&'a self, path: &'a Path, content: ByteStream, limit: u64) -> FilesFuture<'a, u64>;
    /// Makes the directory `path` and its parents. An existing directory is not an error.
    fn make_directory<'a>(&'a self, path: &'a Path) -> FilesFuture<'a, ()>;
    /// Renames `from` to `to`, and makes the parent directories of `to`.
    fn rename<'a>(&'a self, from: &'a Path, to: &'a Path, existing: OnExisting) -> FilesFuture<'a, ()>;
    /// Removes `path`; a directory with entries only if `depth` is recursive.
    fn remove<'a>(&'a self, path: &'a Path, depth: RemovalDepth) -> FilesFuture<'a, ()>;
    /// Returns a tar archive of the file or directory `path`: regular files, directories and links, without those that
    /// `fs.deny_read` names. A later failure is an error of the stream, never a short archive.
    fn pack<'a>(&'a self, path: &'a Path, cap: ArchiveLimit) -> FilesFuture<'a, ByteStream>;
    /// Unpacks a tar archive into the directory `path`, which is made. Fails at a name that leaves the directory or passes
    /// through a link, a link that leaves it, a device, or a path that the policy denies. Earlier entries stay.
    fn unpack<'a>(&'a self, path: &'a Path, archive: ByteStream, cap: ArchiveLimit) -> FilesFuture<'a, UnpackReport>;
}

/// A range of bytes of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ByteRange {
    /// The offset of the first byte.
    pub offset: u64,
    /// The most bytes to read.
    pub limit: u64,
}

impl ByteRange {
    /// Returns the range of the first `limit` bytes.
    pub fn first(limit: u64) -> Self {
        Self { offset: 0, limit }
    }
}

/// A file that is being read.
pub struct FileContent {
    /// The file's metadata when it was opened.
    pub stat: FileStat,
    /// How many bytes are sent, unless the file is shortened meanwhile.
    pub length: u64,
    /// The bytes.
    pub bytes: ByteStream,
}

/// The action when the new name exists already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnExisting {
    /// Fail, and leave the existing entry.
    Keep,
    /// Replace the existing entry: a file by a file, an empty directory by a directory.
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

/// Whether a directory is removed with its entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RemovalDepth {
    /// Only the entry itself.
    Single,
    /// The directory and everything in it.
    Recursive,
}

/// The size limits of an archive.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ArchiveLimit {
    /// The most bytes of all its files together.
    pub bytes: u64,
    /// The most files, directories and links.
    pub entries: usize,
}

impl Default for ArchiveLimit {
    fn default() -> Self {
        Self { bytes: 1 << 30, entries: 100_000 }
    }
}

/// The result of unpacking an archive.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnpackReport {
    /// The first [`UnpackReport::MAX_LISTED`] files and links, relative to the workspace.
    pub paths: Vec<PathBuf>,
    /// Whether there were more.
    pub truncated: bool,
    /// The bytes of all files together.
    pub bytes: u64,
}

impl UnpackReport {
    /// The most paths in a report.
    pub const MAX_LISTED: usize = 1000;

    fn add_path(&mut self, path: PathBuf) {
        if self.paths.len() < Self::MAX_LISTED {
            self.paths.push(path);
        } else {
            self.truncated = true;
        }
    }
}
