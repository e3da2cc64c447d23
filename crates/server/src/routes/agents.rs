//! The agents that can be started.

use axum::Json;
use axum::extract::State;

use crate::agent_list::AgentList;
use crate::state::AppState;

/// `GET /v1/agents`
pub(crate) async fn list(State(state): State<AppState>) -> Json<AgentList> {
    Json(AgentList::of(&state.sessions))
}
