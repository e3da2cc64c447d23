//! What a session changed in its workspace, and what becomes of it.

use std::path::PathBuf;

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use protocol::SessionId;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::error::ApiError;
use crate::extract::{Json as Body, Path, Query};
use crate::state::AppState;

/// Query of `GET …/changes`.
#[derive(Deserialize)]
pub(crate) struct ChangesQuery {
    #[serde(default)]
    format: Format,
}

/// How changes are told.
#[derive(Deserialize, Default)]
#[serde(rename_all = "lowercase")]
enum Format {
    /// Each path, with what happened to it and how many lines.
    #[default]
    Json,
    /// The same for people, a line a file.
    Stat,
    /// One patch.
    Diff,
}

/// Body of `POST …/apply`.
#[derive(Deserialize, Default)]
#[serde(deny_unknown_fields)]
pub(crate) struct ApplyBody {
    /// Relative to the workspace; without any, everything.
    #[serde(default)]
    paths: Vec<PathBuf>,
}

/// Answer of `POST …/apply`.
#[derive(Serialize)]
pub(crate) struct AppliedList {
    applied: Value,
}

/// `GET /v1/sessions/{session_id}/changes`: as of the last turn.
pub(crate) async fn show(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<ChangesQuery>,
) -> Result<Response, ApiError> {
    Ok(match query.format {
        Format::Json => Json(json!({"changes": state.sessions.changes(&id).await?})).into_response(),
        Format::Stat => text("text/plain; charset=utf-8", state.sessions.changes_as_lines(&id).await?),
        Format::Diff => text("text/x-diff; charset=utf-8", state.sessions.changes_as_patch(&id).await?),
    })
}

/// `POST /v1/sessions/{session_id}/apply`: brings them to the workspace, all that were asked for or none.
pub(crate) async fn apply(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Body(body): Body<ApplyBody>,
) -> Result<Json<AppliedList>, ApiError> {
    let applied = state.sessions.apply(&id, body.paths).await?;
    Ok(Json(AppliedList { applied: json!(applied.changes) }))
}

/// `POST /v1/sessions/{session_id}/discard`: forgets them.
pub(crate) async fn discard(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<StatusCode, ApiError> {
    state.sessions.discard(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn text(media_type: &'static str, text: String) -> Response {
    ([(CONTENT_TYPE, media_type)], text).into_response()
}
