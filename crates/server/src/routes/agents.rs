//! The agents that can be started.

use axum::Json;
use axum::extract::State;

use crate::agent_list::AgentList;
use crate::state::AppState;

/// `GET /v1/agents`: every agent there is, whether it is installed or not.
#[utoipa::path(
    get,
    path = "/v1/agents",
    operation_id = "list_agents",
    tag = "agents",
    responses((status = 200, description = "Every agent there is.", body = AgentList)),
)]
pub(crate) async fn list(State(state): State<AppState>) -> Json<AgentList> {
    Json(AgentList::of(state.sessions.roster()))
}
