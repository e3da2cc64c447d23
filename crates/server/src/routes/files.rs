//! Files of a session's workspace, as a command inside would see and change them.
//!
//! A path is relative to the workspace, or absolute and inside `/workspace`: there is no way to name a file of the
//! host. A session that sleeps has no sandbox, and says so.

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
use crate::pagination::{ListQuery, cut};
use crate::state::AppState;
use crate::wire::files::{
    FsAction, FsEntry, FsMoveBody, FsMoved, FsStat, FsUploaded, FsWritten, InSession, MaybePath, OnePath, RemoveQuery,
    whose,
};

/// Names of one directory that are told.
const MOST_ENTRIES: usize = 10_000;

/// `GET /v1/fs/entries`: what is in a directory, by name.
#[utoipa::path(
    get,
    path = "/v1/fs/entries",
    operation_id = "fs_entries",
    tag = "fs",
    params(MaybePath, ListQuery),
    responses((status = 200, description = "Sorted by name.", body = Vec<FsEntry>, headers(
        ("x-viv-next-cursor" = Option<String>, description = "`cursor` of the next page, if there is one."),
        ("x-viv-truncated" = Option<bool>, description = "`true` where the directory has more names than are told."),
    ))),
)]
pub(crate) async fn entries(
    State(state): State<AppState>,
    Query(query): Query<MaybePath>,
    Query(page): Query<ListQuery>,
) -> Result<Response, ApiError> {
    let sandbox = state.sessions.sandbox(whose(query.session_id.as_ref())?)?;
    let path = query.path.unwrap_or_default();
    let listing = sandbox.files().list(FilePath::new(&path), MOST_ENTRIES).await?;
    let entries: Vec<FsEntry> = listing.entries.into_iter().map(FsEntry::from).collect();
    let (entries, next) = cut(entries, &page, |entry| entry.name().to_owned())?;
    let next = AppendHeaders(next.map(|next| ("x-viv-next-cursor", next)));
    let truncated = AppendHeaders(listing.truncated.then_some(("x-viv-truncated", "true")));
    Ok((next, truncated, Json(entries)).into_response())
}

/// `GET /v1/fs/file`: the content of a file.
#[utoipa::path(
    get,
    path = "/v1/fs/file",
    operation_id = "fs_read_file",
    tag = "fs",
    params(OnePath),
    responses((status = 200, description = "Its bytes.", body = Vec<u8>, content_type = "application/octet-stream")),
)]
pub(crate) async fn read(State(state): State<AppState>, Query(query): Query<OnePath>) -> Result<Response, ApiError> {
    let sandbox = state.sessions.sandbox(whose(query.session_id.as_ref())?)?;
    let range = ByteRange::first(state.config.file_bytes);
    let content = sandbox.files().read(FilePath::new(&query.path), range).await?;
    let headers = [(CONTENT_TYPE, "application/octet-stream".to_owned()), (CONTENT_LENGTH, content.length.to_string())];
    Ok((headers, Body::from_stream(ReaderStream::new(content.bytes))).into_response())
}

/// `PUT /v1/fs/file`: makes or replaces a file, and the directories to it; readers see the old one or the new one, whole.
#[utoipa::path(
    put,
    path = "/v1/fs/file",
    operation_id = "fs_write_file",
    tag = "fs",
    params(OnePath),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "It is there.", body = FsWritten)),
)]
pub(crate) async fn write(
    State(state): State<AppState>,
    Query(query): Query<OnePath>,
    body: Body,
) -> Result<Json<FsWritten>, ApiError> {
    let sandbox = state.sessions.sandbox(whose(query.session_id.as_ref())?)?;
    let path = FilePath::new(&query.path);
    let bytes_written = sandbox.files().write(path, stream(body), state.config.file_bytes).await?;
    Ok(Json(FsWritten { path: query.path, bytes_written }))
}

/// `DELETE /v1/fs/entry`: removes a file, or a directory and, when asked, what is in it.
#[utoipa::path(
    delete,
    path = "/v1/fs/entry",
    operation_id = "fs_delete_entry",
    tag = "fs",
    params(RemoveQuery),
    responses((status = 200, description = "It is gone.", body = FsAction)),
)]
pub(crate) async fn remove(
    State(state): State<AppState>,
    Query(query): Query<RemoveQuery>,
) -> Result<Json<FsAction>, ApiError> {
    let sandbox = state.sessions.sandbox(whose(query.session_id.as_ref())?)?;
    let depth = if query.recursive.unwrap_or(false) { RemovalDepth::Recursive } else { RemovalDepth::Single };
    sandbox.files().remove(FilePath::new(&query.path), depth).await?;
    Ok(Json(FsAction { path: query.path }))
}

/// `POST /v1/fs/mkdir`: makes a directory and those it is in.
#[utoipa::path(
    post,
    path = "/v1/fs/mkdir",
    operation_id = "fs_mkdir",
    tag = "fs",
    params(OnePath),
    responses((status = 200, description = "It is there.", body = FsAction)),
)]
pub(crate) async fn make_directory(
    State(state): State<AppState>,
    Query(query): Query<OnePath>,
) -> Result<Json<FsAction>, ApiError> {
    let sandbox = state.sessions.sandbox(whose(query.session_id.as_ref())?)?;
    sandbox.files().make_directory(FilePath::new(&query.path)).await?;
    Ok(Json(FsAction { path: query.path }))
}

/// `POST /v1/fs/move`: gives a file or directory another name.
#[utoipa::path(
    post,
    path = "/v1/fs/move",
    operation_id = "fs_move",
    tag = "fs",
    params(InSession),
    request_body = FsMoveBody,
    responses((status = 200, description = "It has the new name.", body = FsMoved)),
)]
pub(crate) async fn rename(
    State(state): State<AppState>,
    Query(query): Query<InSession>,
    JsonBody(body): JsonBody<FsMoveBody>,
) -> Result<Json<FsMoved>, ApiError> {
    let sandbox = state.sessions.sandbox(whose(query.session_id.as_ref())?)?;
    let existing = if body.overwrite.unwrap_or(false) { OnExisting::Replace } else { OnExisting::Keep };
    sandbox.files().rename(FilePath::new(&body.from), FilePath::new(&body.to), existing).await?;
    Ok(Json(FsMoved { from: body.from, to: body.to }))
}

/// `GET /v1/fs/stat`: what is at a path.
#[utoipa::path(
    get,
    path = "/v1/fs/stat",
    operation_id = "fs_stat",
    tag = "fs",
    params(OnePath),
    responses((status = 200, description = "What it is.", body = FsStat)),
)]
pub(crate) async fn stat(
    State(state): State<AppState>,
    Query(query): Query<OnePath>,
) -> Result<Json<FsStat>, ApiError> {
    let sandbox = state.sessions.sandbox(whose(query.session_id.as_ref())?)?;
    Ok(Json(sandbox.files().stat(FilePath::new(&query.path)).await?.into()))
}

/// `POST /v1/fs/upload-batch`: unpacks a tar archive into a directory, as it comes.
#[utoipa::path(
    post,
    path = "/v1/fs/upload-batch",
    operation_id = "fs_upload_batch",
    tag = "fs",
    params(MaybePath),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "It is unpacked.", body = FsUploaded)),
)]
pub(crate) async fn upload(
    State(state): State<AppState>,
    Query(query): Query<MaybePath>,
    body: Body,
) -> Result<Json<FsUploaded>, ApiError> {
    let sandbox = state.sessions.sandbox(whose(query.session_id.as_ref())?)?;
    let cap = ArchiveLimit { bytes: state.config.file_bytes, ..ArchiveLimit::default() };
    let path = query.path.unwrap_or_default();
    Ok(Json(sandbox.files().unpack(FilePath::new(&path), stream(body), cap).await?.into()))
}

fn stream(body: Body) -> ByteStream {
    Box::new(StreamReader::new(body.into_data_stream().map_err(io::Error::other)))
}
