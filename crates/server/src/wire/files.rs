//! Files as they stand in JSON.

use std::path::Path;
use std::time::SystemTime;

use base::WORKSPACE;
use jiff::Timestamp;
use protocol::{ProblemCode, SessionId};
use sandbox::{FileEntry, FileKind, FileStat, UnpackReport};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::error::ApiError;

/// A path that must be named.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct OnePath {
    /// Relative to the workspace, or absolute and inside `/workspace`.
    pub(crate) path: String,
    /// Whose workspace. Without it there is none that could be meant: no file of the host can be.
    #[serde(default, alias = "sessionId")]
    pub(crate) session_id: Option<SessionId>,
}

/// A path that may be left out.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct MaybePath {
    /// Relative to the workspace, or absolute and inside `/workspace`; the workspace itself when not given.
    pub(crate) path: Option<String>,
    /// Whose workspace. Without it there is none that could be meant: no file of the host can be.
    #[serde(default, alias = "sessionId")]
    pub(crate) session_id: Option<SessionId>,
}

/// Only a session.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct InSession {
    /// Whose workspace. Without it there is none that could be meant: no file of the host can be.
    #[serde(default, alias = "sessionId")]
    pub(crate) session_id: Option<SessionId>,
}

/// Query of `DELETE /v1/fs/entry`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct RemoveQuery {
    /// Relative to the workspace, or absolute and inside `/workspace`.
    pub(crate) path: String,
    /// Also what is in a directory.
    pub(crate) recursive: Option<bool>,
    /// Whose workspace. Without it there is none that could be meant: no file of the host can be.
    #[serde(default, alias = "sessionId")]
    pub(crate) session_id: Option<SessionId>,
}

/// The session whose workspace is meant.
pub(crate) fn whose(session: Option<&SessionId>) -> Result<&SessionId, ApiError> {
    let missing = "`session_id` is missing: files are those of a session's workspace, and none was named";
    session.ok_or_else(|| ApiError::new(ProblemCode::InvalidRequest, missing).hint("viv sessions ls"))
}

/// What kind of thing a name stands for. What is neither is told as a file, and `special` says what it is.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FsEntryType {
    File,
    Directory,
}

/// What is neither a file nor a directory; the contract does not know it.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum FsSpecial {
    /// Shown as it is, not as what it leads to.
    Symlink,
    /// Shown and can be removed, nothing else.
    Other,
}

/// One name in a directory.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsEntry {
    name: String,
    /// As seen inside.
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

/// What is at a path.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct FsStat {
    /// As seen inside.
    path: String,
    entry_type: FsEntryType,
    #[serde(skip_serializing_if = "Option::is_none")]
    special: Option<FsSpecial>,
    size: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    modified: Option<String>,
}

/// Something was done to a path.
#[derive(Serialize, ToSchema)]
pub(crate) struct FsAction {
    pub(crate) path: String,
}

/// A file was written.
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
    /// Replaces what has the name already.
    pub(crate) overwrite: Option<bool>,
}

/// Something has another name.
#[derive(Serialize, ToSchema)]
pub(crate) struct FsMoved {
    pub(crate) from: String,
    pub(crate) to: String,
}

/// An archive was unpacked.
#[derive(Serialize, ToSchema)]
pub(crate) struct FsUploaded {
    /// The first thousand files and links that came out of it.
    paths: Vec<String>,
    /// Whether there were more.
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
