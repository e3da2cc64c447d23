//! The table of routes.

use std::sync::Arc;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::middleware::{from_fn, from_fn_with_state};
use axum::routing::{get, post};
use session::Sessions;
use tokio_util::sync::CancellationToken;

use crate::config::ServerConfig;
use crate::state::AppState;
use crate::{access, error, host_guard, linger, request_id, routes};

/// Bytes of a body that is not a message.
const SMALL_BODY: usize = 1 << 20;

/// All routes over `sessions`. When `stopping` is cancelled every event stream ends.
pub fn app(sessions: Sessions, config: ServerConfig, stopping: CancellationToken) -> Router {
    let message_bytes = config.message_bytes;
    let state = AppState { sessions, config: Arc::new(config), stopping };
    let open = Router::new().route("/v1/health", get(routes::health::show));
    let read = Router::new()
        .route("/v1/agents", get(routes::agents::list))
        .route("/v1/pending", get(routes::answers::all_pending))
        .route("/v1/sessions", get(routes::sessions::list))
        .route("/v1/sessions/{session_id}", get(routes::sessions::show))
        .route("/v1/sessions/{session_id}/changes", get(routes::changes::show))
        .route("/v1/sessions/{session_id}/events", get(routes::events::page))
        .route("/v1/sessions/{session_id}/events/sse", get(routes::events::stream))
        .route("/v1/sessions/{session_id}/pending", get(routes::answers::pending))
        .route("/v1/sessions/{session_id}/usage", get(routes::usage::of_session))
        .route("/v1/usage", get(routes::usage::list))
        .route_layer(from_fn_with_state(state.clone(), access::may_read));
    let drive = Router::new()
        .route("/v1/sessions/{session_id}", post(routes::sessions::create).patch(routes::sessions::rename))
        .route("/v1/sessions/{session_id}/messages", post(routes::messages::send))
        .route("/v1/sessions/{session_id}/messages/stream", post(routes::messages::stream))
        .layer(DefaultBodyLimit::max(message_bytes))
        .route("/v1/sessions/{session_id}/resume", post(routes::sessions::resume))
        .route("/v1/sessions/{session_id}/interrupt", post(routes::sessions::interrupt))
        .route("/v1/sessions/{session_id}/terminate", post(routes::sessions::terminate))
        .route("/v1/sessions/{session_id}/apply", post(routes::changes::apply))
        .route("/v1/sessions/{session_id}/discard", post(routes::changes::discard))
        .route_layer(from_fn_with_state(state.clone(), access::may_drive));
    let answer = Router::new()
        .route("/v1/sessions/{session_id}/permissions/{permission_id}/reply", post(routes::answers::permission))
        .route("/v1/sessions/{session_id}/questions/{question_id}/reply", post(routes::answers::question))
        .route("/v1/sessions/{session_id}/questions/{question_id}/reject", post(routes::answers::reject))
        .route_layer(from_fn_with_state(state.clone(), access::may_answer));
    Router::new()
        .merge(open)
        .merge(read)
        .merge(drive)
        .merge(answer)
        .fallback(error::route_not_found)
        .method_not_allowed_fallback(error::method_not_allowed)
        .layer(from_fn_with_state(state.clone(), host_guard::known_host))
        .layer(from_fn(error::shape))
        .layer(from_fn(request_id::name))
        .layer(DefaultBodyLimit::max(SMALL_BODY))
        .layer(from_fn(linger::linger))
        .with_state(state)
}
