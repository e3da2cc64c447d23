//! Handlers for change sets: show, apply and discard.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::StatusCode;
use http::header::CONTENT_TYPE;
use protocol::SessionId;
use serde_json::json;

use crate::error::ApiError;
use crate::extract::{OptionalJson, Path, Query};
use crate::state::AppState;
use crate::wire::changes::{AppliedList, ApplyBody, ChangeList, ChangesFormat, ChangesQuery};

/// `GET /v1/sessions/{session_id}/changes`: returns the changes of the session as of its last turn.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/changes",
    operation_id = "get_changes",
    tag = "changes",
    params(("session_id" = SessionId, Path), ChangesQuery),
    responses((status = 200, description = "The changes in the requested format.", content(
        (ChangeList = "application/json"), (String = "text/plain"), (String = "text/x-diff"),
    ))),
)]
pub(crate) async fn show(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<ChangesQuery>,
) -> Result<Response, ApiError> {
    Ok(match query.format {
        ChangesFormat::Json => {
            Json(ChangeList { changes: json!(state.sessions.list_changes(&id).await?) }).into_response()
        }
        ChangesFormat::Stat => text("text/plain; charset=utf-8", state.sessions.changes_as_lines(&id).await?),
        ChangesFormat::Diff => text("text/x-diff; charset=utf-8", state.sessions.changes_as_patch(&id).await?),
    })
}

/// `POST /v1/sessions/{session_id}/apply`: applies changes to the workspace on the host, either all requested ones or none.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/apply",
    operation_id = "apply_changes",
    tag = "changes",
    params(("session_id" = SessionId, Path)),
    request_body = Option<ApplyBody>,
    responses(
        (status = 200, description = "The changes are applied.", body = AppliedList),
        (status = 409, description = "Some changes cannot be applied, so none was.", body = protocol::Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn apply(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    OptionalJson(body): OptionalJson<ApplyBody>,
) -> Result<Json<AppliedList>, ApiError> {
    let applied = state.sessions.apply(&id, body.unwrap_or_default().paths).await?;
    Ok(Json(AppliedList { applied: json!(applied.changes) }))
}

/// `POST /v1/sessions/{session_id}/discard`: deletes the changes of the session.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/discard",
    operation_id = "discard_changes",
    tag = "changes",
    params(("session_id" = SessionId, Path)),
    responses((status = 204, description = "The changes are deleted.")),
)]
pub(crate) async fn discard(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<StatusCode, ApiError> {
    state.sessions.discard(&id).await?;
    Ok(StatusCode::NO_CONTENT)
}

fn text(media_type: &'static str, text: String) -> Response {
    ([(CONTENT_TYPE, media_type)], text).into_response()
}
