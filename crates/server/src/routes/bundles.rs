//! Handlers for bundles: export and import of sessions.

use std::io;

use axum::body::Body;
use axum::extract::{Request, State};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use http::header::{CONTENT_DISPOSITION, CONTENT_LENGTH, CONTENT_TYPE};
use protocol::{SessionId, SessionInfo};
use tokio_util::io::ReaderStream;

use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::idempotency::IdempotentRequest;
use crate::routes::sessions::created_or_existing;
use crate::spool::{spool, storage_error};
use crate::state::AppState;
use crate::wire::bundles::ImportQuery;

/// `GET …/export`: exports a session as one tar file with its journal, bodies of model calls, changes and policy.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/export",
    operation_id = "export_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    responses((status = 200, description = "The bundle.", body = Vec<u8>, content_type = "application/x-tar")),
)]
pub(crate) async fn export(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<Response, ApiError> {
    let bundle = state.sessions.export(&id).await?;
    let length = bundle.metadata().map_err(|error| unreadable(&error))?.len();
    let headers = [
        (CONTENT_TYPE, "application/x-tar".to_owned()),
        (CONTENT_LENGTH, length.to_string()),
        (CONTENT_DISPOSITION, format!("attachment; filename=\"{id}.tar\"")),
    ];
    let body = Body::from_stream(ReaderStream::new(tokio::fs::File::from_std(bundle)));
    Ok((headers, body).into_response())
}

/// `POST /v1/import`: imports a session from a bundle. The imported session has ended, and keeps its id unless `as` gives
/// another one.
#[utoipa::path(
    post,
    path = "/v1/import",
    operation_id = "import_session",
    tag = "sessions",
    params(ImportQuery),
    request_body(content = Vec<u8>, content_type = "application/octet-stream"),
    responses((status = 200, description = "The session.", body = SessionInfo)),
)]
pub(crate) async fn import(
    State(state): State<AppState>,
    Query(query): Query<ImportQuery>,
    idempotent: Option<Extension<IdempotentRequest>>,
    request: Request,
) -> Result<Json<SessionInfo>, ApiError> {
    let bundle = spool(request.into_body(), state.config.bundle_bytes, |_| ()).await?;
    let bundle = bundle.into_file().map_err(|error| storage_error(&error))?;
    created_or_existing(&state, idempotent.as_deref(), state.sessions.import(bundle, query.new_id).await).map(Json)
}

fn unreadable(error: &io::Error) -> ApiError {
    ApiError::storage("cannot read the bundle", error)
}
