//! Handlers for files in a session's workspace, accessed like a command inside the sandbox would.
//!
//! A path is relative to the workspace, or absolute and inside `/workspace`, so no path can name a file of the host. A
//! sleeping session has no sandbox, and the call fails.

use std::io;
use std::path::Path as FilePath;

use axum::Json;
use axum::body::Body;
use axum::extract::State;
use axum::response::{AppendHeaders, IntoResponse, Response};
use futures_util::TryStreamExt;
use http::header::{CONTENT_LENGTH, CONTENT_TYPE};
use sandbox::{ArchiveLimit, ByteRange, ByteStream, OnExisting, RemovalDepth};
use tokio_util::io::{ReaderStream, StreamReader};

use crate::error::ApiError;
use crate::extract::{Json as JsonBody, Query};
use crate::pagination::{ListQuery, paginate};
use crate::state::AppState;
use crate::wire::files::{
    FsAction, FsEntry, FsMoveBody, FsMoved, FsStat, FsUploaded, FsWritten, OptionalPathQuery, PathQuery, RemoveQuery,
    SessionQuery, require_session,
};

/// Most listed names of one directory.
const MAX_ENTRIES: usize = 10_000;

/// `GET /v1/fs/entries`: lists a directory, sorted by name.
#[utoipa::path(
    get,
    path = "/v1/fs/entries",
    operation_id = "fs_entries",
    tag = "fs",
    params(OptionalPathQuery, ListQuery),
    responses((status = 200, description = "Sorted by name.", body = Vec<FsEntry>, headers(
        ("x-viv-next-cursor" = Option<String>, description = "`cursor` of the next page, if there is one."),
        ("x-viv-truncated" = Option<bool>, description = "`true` if the directory has more names than the response."),
    ))),
)]
pub(crate) async fn entries(
    State(state): State<AppState>,
    Query(query): Query<OptionalPathQuery>,
    Query(page): Query<ListQuery>,
) -> Result<Response, ApiError> {
    let sandbox = state.sessions.sandbox(require_session(query.session_id.as_ref())?)?;
    let path = query.path.unwrap_or_default();
    let listing = sandbox.files().list(FilePath::new(&path), MAX_ENTRIES).await?;
    let entries: Vec<FsEntry> = listing.entries.into_iter().map(FsEntry::from).collect();
    let (entries, next) = paginate(entries, &page, |entry| entry.name().to_owned())?;
    let next = AppendHeaders(next.map(|next| ("x-viv-next-cursor", next)));
    let truncated = AppendHeaders(listing.truncated.then_some(("x-viv-truncated", "true")));
    Ok((next, truncated, Json(entries)).into_response())
}

/// `GET /v1/fs/file`: returns the content of a file.
#[utoipa::path(
    get,
    path = "/v1/fs/file",
    operation_id = "fs_read_file",
    tag = "fs",
    params(PathQuery),
    responses((status = 200, description = "The content of the file.", body = Vec<u8>, content_type = "application/octet-stream")),
)]
pub(crate) async fn read(State(state): State<AppState>, Query(query): Query<PathQuery>) -> Result<Response, ApiError> {
    let sandbox = state.sessions.sandbox(require_session(query.session_id.as_ref())?)?;
    let range = ByteRange::first(state.config.file_bytes);
    let content = sandbox.files().read(FilePath::new(&query.path), range).await?;
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, content.length.to_string())];
    Ok((headers, Body::from_stream(ReaderStream::new(content.bytes))).into_response())
}

/// `PUT /v1/fs/file`: creates or replaces a file, and creates its parent directories. Readers see either the complete old
/// file or the complete new one.
#[utoipa::path(
    put,
    path = "/v1/fs/file",
    operation_id = "fs_write_file",
    tag = "fs",
    params(PathQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "The file is written.", body = FsWritten)),
)]
pub(crate) async fn write(
    State(state): State<AppState>,
    Query(query): Query<PathQuery>,
    body: Body,
) -> Result<Json<FsWritten>, ApiError> {
    let sandbox = state.sessions.sandbox(require_session(query.session_id.as_ref())?)?;
    let path = FilePath::new(&query.path);
    let bytes_written = sandbox.files().write(path, stream(body), state.config.file_bytes).await?;
    Ok(Json(FsWritten { path: query.path, bytes_written }))
}

/// `DELETE /v1/fs/entry`: removes a file or an empty directory, or a directory with its content if `recursive` is set.
#[utoipa::path(
    delete,
    path = "/v1/fs/entry",
    operation_id = "fs_delete_entry",
    tag = "fs",
    params(RemoveQuery),
    responses((status = 200, description = "The entry is removed.", body = FsAction)),
)]
pub(crate) async fn remove(
    State(state): State<AppState>,
    Query(query): Query<RemoveQuery>,
) -> Result<Json<FsAction>, ApiError> {
    let sandbox = state.sessions.sandbox(require_session(query.session_id.as_ref())?)?;
    let depth = if query.recursive.unwrap_or(false) { RemovalDepth::Recursive } else { RemovalDepth::Single };
    sandbox.files().remove(FilePath::new(&query.path), depth).await?;
    Ok(Json(FsAction { path: query.path }))
}

/// `POST /v1/fs/mkdir`: creates a directory and its parents.
#[utoipa::path(
    post,
    path = "/v1/fs/mkdir",
    operation_id = "fs_mkdir",
    tag = "fs",
    params(PathQuery),
    responses((status = 200, description = "The directory exists.", body = FsAction)),
)]
pub(crate) async fn make_directory(
    State(state): State<AppState>,
    Query(query): Query<PathQuery>,
) -> Result<Json<FsAction>, ApiError> {
    let sandbox = state.sessions.sandbox(require_session(query.session_id.as_ref())?)?;
    sandbox.files().make_directory(FilePath::new(&query.path)).await?;
    Ok(Json(FsAction { path: query.path }))
}

/// `POST /v1/fs/move`: moves a file or directory.
#[utoipa::path(
    post,
    path = "/v1/fs/move",
    operation_id = "fs_move",
    tag = "fs",
    params(SessionQuery),
    request_body = FsMoveBody,
    responses((status = 200, description = "The entry is moved.", body = FsMoved)),
)]
pub(crate) async fn rename(
    State(state): State<AppState>,
    Query(query): Query<SessionQuery>,
    JsonBody(body): JsonBody<FsMoveBody>,
) -> Result<Json<FsMoved>, ApiError> {
    let sandbox = state.sessions.sandbox(require_session(query.session_id.as_ref())?)?;
    let existing = if body.overwrite.unwrap_or(false) { OnExisting::Replace } else { OnExisting::Keep };
    sandbox.files().rename(FilePath::new(&body.from), FilePath::new(&body.to), existing).await?;
    Ok(Json(FsMoved { from: body.from, to: body.to }))
}

/// `GET /v1/fs/stat`: returns the metadata of a path.
#[utoipa::path(
    get,
    path = "/v1/fs/stat",
    operation_id = "fs_stat",
    tag = "fs",
    params(PathQuery),
    responses((status = 200, description = "The metadata.", body = FsStat)),
)]
pub(crate) async fn stat(
    State(state): State<AppState>,
    Query(query): Query<PathQuery>,
) -> Result<Json<FsStat>, ApiError> {
    let sandbox = state.sessions.sandbox(require_session(query.session_id.as_ref())?)?;
    Ok(Json(sandbox.files().stat(FilePath::new(&query.path)).await?.into()))
}

/// `POST /v1/fs/upload-batch`: unpacks a tar stream into a directory.
#[utoipa::path(
    post,
    path = "/v1/fs/upload-batch",
    operation_id = "fs_upload_batch",
    tag = "fs",
    params(OptionalPathQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "The archive is unpacked.", body = FsUploaded)),
)]
pub(crate) async fn upload(
    State(state): State<AppState>,
    Query(query): Query<OptionalPathQuery>,
    body: Body,
) -> Result<Json<FsUploaded>, ApiError> {
    let sandbox = state.sessions.sandbox(require_session(query.session_id.as_ref())?)?;
    let cap = ArchiveLimit { bytes: state.config.file_bytes, ..ArchiveLimit::default() };
    let path = query.path.unwrap_or_default();
    Ok(Json(sandbox.files().unpack(FilePath::new(&path), stream(body), cap).await?.into()))
}

fn stream(body: Body) -> ByteStream {
    Box::new(StreamReader::new(body.into_data_stream().map_err(io::Error::other)))
}
