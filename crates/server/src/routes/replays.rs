//! The handler for replays.

use axum::extract::State;
use axum::{Extension, Json};
use protocol::SessionId;

use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::{OptionalJson, Path};
use crate::idempotency::IdempotentRequest;
use crate::routes::sessions::new_session_id;
use crate::state::AppState;
use crate::wire::{ReplayBody, ReplayReport};

/// `POST /v1/sessions/{session_id}/replay`: replays a session in a new session, with the real agent and no model, and
/// returns when it has ended. To follow its events meanwhile, choose the id of the new session.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/replay",
    operation_id = "replay_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = Option<ReplayBody>,
    responses((status = 200, description = "The result of the replay.", body = ReplayReport)),
)]
pub(crate) async fn replay(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Extension(caller): Extension<Caller>,
    idempotent: Option<Extension<IdempotentRequest>>,
    OptionalJson(body): OptionalJson<ReplayBody>,
) -> Result<Json<ReplayReport>, ApiError> {
    let (new, directory) = body.map_or((None, None), |body| (body.session_id, body.directory));
    let new = new.map_or_else(|| new_session_id(idempotent.as_deref()), Ok)?;
    let options = caller.options(&state.config.options);
    let replayed = state.sessions.replay_by_id(&id, new.clone(), directory.map(Into::into), options).await?;
    Ok(Json(ReplayReport::new(new, replayed)))
}
