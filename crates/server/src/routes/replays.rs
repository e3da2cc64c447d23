//! Sessions played again.

use axum::extract::State;
use axum::{Extension, Json};
use protocol::SessionId;
use session::ReplaySessionError;

use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::{OptionalJson, Path};
use crate::idempotency::Named;
use crate::routes::sessions::fresh_id;
use crate::state::AppState;
use crate::wire::{ReplayBody, ReplayReport};

/// `POST /v1/sessions/{session_id}/replay`: plays it again, with the real agent and no model, in a new session; answers
/// when that has ended. Its events can be followed meanwhile by who has chosen its id.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/replay",
    operation_id = "replay_session",
    tag = "sessions",
    params(("session_id" = SessionId, Path)),
    request_body = Option<ReplayBody>,
    responses((status = 200, description = "What came of it.", body = ReplayReport)),
)]
pub(crate) async fn replay(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Extension(caller): Extension<Caller>,
    named: Option<Extension<Named>>,
    OptionalJson(body): OptionalJson<ReplayBody>,
) -> Result<Json<ReplayReport>, ApiError> {
    let (new, directory) = body.map_or((None, None), |body| (body.session_id, body.directory));
    let new = new.map_or_else(|| fresh_id(named.as_deref()), Ok)?;
    let options = caller.options(&state.config.options);
    let played = state.sessions.replay_by_id(&id, new.clone(), directory.map(Into::into), options).await?;
    Ok(Json(ReplayReport::of(new, played)))
}

impl From<ReplaySessionError> for ApiError {
    fn from(error: ReplaySessionError) -> Self {
        let code = error.code();
        match error {
            ReplaySessionError::Session(error) => error.into(),
            ReplaySessionError::Workspace { ref differences, .. } => {
                Self::caused(code, &error).with("differences", serde_json::json!(differences))
            }
            error => Self::caused(code, &error),
        }
    }
}
