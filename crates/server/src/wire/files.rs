//! Queries, request bodies and response bodies about files.

use std::path::Path;
use std::time::SystemTime;

use base::WORKSPACE;
use jiff::Timestamp;
use protocol::{ProblemCode, SessionId};
use sandbox::{FileEntry, FileKind, FileStat, UnpackReport};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::ApiError;

/// A required path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct PathQuery {
    /// Path relative to the workspace, or absolute and inside `/workspace`.
    pub(crate) path: String,
    /// The session whose workspace contains the file. Required.
    #[serde(default, alias = "sessionId")]
    pub(crate) session_id: Option<SessionId>,
}

/// An optional path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OptionalPathQuery {
    /// Path relative to the workspace, or absolute and inside `/workspace`; the workspace itself if absent.
    pub(crate) path: Option<String>,
    /// The session whose workspace contains the file. Required.
    #[serde(default, alias = "sessionId")]
    pub(crate) session_id: Option<SessionId>,
}

/// A session without a path.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionQuery {
    /// The session whose workspace contains the file. Required.
    #[serde(default, alias = "sessionId")]
    pub(crate) session_id: Option<SessionId>,
}

/// Query of `DELETE /v1/fs/entry`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveQuery {
    /// Path relative to the workspace, or absolute and inside `/workspace`.
    pub(crate) path: String,
    /// Remove a directory with its content.
    pub(crate) recursive: Option<bool>,
    /// The session whose workspace contains the file. Required.
    #[serde(default, alias = "sessionId")]
    pub(crate) session_id: Option<SessionId>,
}

/// Returns the session id; fails if it is missing.
pub(crate) fn require_session(session: Option<&SessionId>) -> Result<&SessionId, ApiError> {
    let missing = "`session_id` is missing: it names the session whose workspace contains the file";
    session.ok_or_else(|| ApiError::new(ProblemCode::InvalidRequest, missing).with_hint("viv sessions ls"))
}

/// The kind of an entry. A link or special file is a `file`, with its kind in `special`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FsEntryType {
    File,
    Directory,
}

/// The kind of an entry that is neither a regular file nor a directory.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FsSpecial {
    /// A symbolic link, which is not followed.
    Symlink,
    /// A special file, which can only be listed and removed.
    Other,
}

/// One entry of a directory.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsEntry {
    name: String,
    /// Path inside the sandbox.
    path: String,
    entry_type: FsEntryType,
    #[serde(skip_serializing_if = "Option::is_none")]
    special: Option<FsSpecial>,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

impl FsEntry {
    pub(crate) fn name(&self) -> &str {
        &self.name
    }
}

/// The metadata of a path.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsStat {
    /// Path inside the sandbox.
    path: String,
    entry_type: FsEntryType,
    #[serde(skip_serializing_if = "Option::is_none")]
    special: Option<FsSpecial>,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

/// The path of a completed operation.
#[derive(Serialize, ToSchema)]
pub(crate) struct FsAction {
    pub(crate) path: String,
}

/// The result of a write.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsWritten {
    pub(crate) path: String,
    pub(crate) bytes_written: u64,
}

/// Body of `POST /v1/fs/move`.
#[derive(Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub(crate) struct FsMoveBody {
    pub(crate) from: String,
    pub(crate) to: String,
    /// Replace an existing entry.
    pub(crate) overwrite: Option<bool>,
}

/// The result of a move.
#[derive(Serialize, ToSchema)]
pub(crate) struct FsMoved {
    pub(crate) from: String,
    pub(crate) to: String,
}

/// The result of unpacking an archive.
#[derive(Serialize, ToSchema)]
pub(crate) struct FsUploaded {
    /// The first thousand unpacked files and links.
    paths: Vec<String>,
    /// Whether more were unpacked.
    truncated: bool,
}

impl From<FileStat> for FsStat {
    fn from(stat: FileStat) -> Self {
        let (entry_type, special) = match stat.kind {
            FileKind::File => (FsEntryType::File, None),
            FileKind::Directory => (FsEntryType::Directory, None),
            FileKind::Link => (FsEntryType::File, Some(FsSpecial::Symlink)),
            FileKind::Special => (FsEntryType::File, Some(FsSpecial::Other)),
        };
        Self { path: inside(&stat.path), entry_type, special, size: stat.size, modified: time(stat.modified) }
    }
}

impl From<FileEntry> for FsEntry {
    fn from(entry: FileEntry) -> Self {
        let FsStat { path, entry_type, special, size, modified } = entry.stat.into();
        Self { name: entry.name.to_string_lossy().into_owned(), path, entry_type, special, size, modified }
    }
}

impl From<UnpackReport> for FsUploaded {
    fn from(unpacked: UnpackReport) -> Self {
        let paths = unpacked.paths.iter().map(|path| inside(path)).collect();
        Self { paths, truncated: unpacked.truncated }
    }
}

fn inside(path: &Path) -> String {
    let path = Path::new(WORKSPACE).join(path).to_string_lossy().into_owned();
    path.trim_end_matches('/').to_owned()
}

fn time(time: SystemTime) -> Option<String> {
    Timestamp::try_from(time).ok().map(|time| time.to_string())
}
