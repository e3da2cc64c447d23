//! Handlers for agents: list, permission modes, models and installation.

use axum::Json;
use axum::extract::State;
use http::StatusCode;
use protocol::{CreateSession, ProblemCode};
use session::SessionError;

use crate::access::Caller;
use crate::agent_list::{AgentList, ModeList, ModelList};
use crate::error::ApiError;
use crate::extract::{OptionalJson, Path};
use crate::state::AppState;
use crate::wire::InstallBody;

/// `GET /v1/agents`: lists all known agents, installed or not.
#[utoipa::path(
    get,
    path = "/v1/agents",
    operation_id = "list_agents",
    tag = "agents",
    responses((status = 200, description = "All known agents.", body = AgentList)),
)]
pub(crate) async fn list(State(state): State<AppState>) -> Result<Json<AgentList>, ApiError> {
    Ok(Json(AgentList::of(&state.sessions)?))
}

/// `GET /v1/agents/{agent}/modes`: lists the modes that the agent supports.
#[utoipa::path(
    get,
    path = "/v1/agents/{agent}/modes",
    operation_id = "get_agent_modes",
    tag = "agents",
    params(("agent" = String, Path)),
    responses((status = 200, description = "The values for `agentMode`.", body = ModeList)),
)]
pub(crate) async fn modes(Path(name): Path<String>) -> Result<Json<ModeList>, ApiError> {
    let unknown = || SessionError::UnknownAgent(name.clone());
    Ok(Json(ModeList::of(agents::by_name(&name).ok_or_else(unknown)?)))
}

/// `GET /v1/agents/{agent}/models`: lists the models that the agent can use.
#[utoipa::path(
    get,
    path = "/v1/agents/{agent}/models",
    operation_id = "get_agent_models",
    tag = "agents",
    params(("agent" = String, Path)),
    responses((status = 200, description = "The values for `model`.", body = ModelList)),
)]
pub(crate) async fn models(
    State(state): State<AppState>,
    Path(name): Path<String>,
) -> Result<Json<ModelList>, ApiError> {
    let agent = agents::by_name(&name).ok_or_else(|| SessionError::UnknownAgent(name.clone()))?;
    let missing = || SessionError::NotInstalled { agent: agent.id(), version: None };
    state.sessions.agents().find(&name, None).ok_or_else(missing)?;
    Ok(Json(ModelList::of(state.sessions.models())))
}

/// `POST /v1/agents/{agent}/install`: installs the agent in its tested version, and returns when it is installed.
#[utoipa::path(
    post,
    path = "/v1/agents/{agent}/install",
    operation_id = "install_agent",
    tag = "agents",
    params(("agent" = String, Path)),
    request_body = Option<InstallBody>,
    responses((status = 204, description = "The agent is installed.")),
)]
pub(crate) async fn install(
    State(state): State<AppState>,
    Path(name): Path<String>,
    OptionalJson(body): OptionalJson<InstallBody>,
) -> Result<StatusCode, ApiError> {
    // An agent without a package is part of this program.
    if agents::by_name(&name).is_some_and(|agent| agent.package().is_none()) {
        return Ok(StatusCode::NO_CONTENT);
    }
    run_installer(&state, name, body.unwrap_or_default().reinstall.unwrap_or(false)).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Installs the agent that a new session needs and that is not installed; fails with `missing` if this server or this caller
/// may not install it.
pub(crate) async fn install_missing(
    state: &AppState,
    caller: &Caller,
    request: &CreateSession,
    missing: SessionError,
) -> Result<(), ApiError> {
    let name = match &request.agent_version {
        None => request.agent.clone(),
        Some(version) if caller.may_install_any_version() => format!("{}@{version}", request.agent),
        Some(_) => return Err(missing.into()),
    };
    if state.config.installer.is_none() {
        return Err(missing.into());
    }
    run_installer(state, name, false).await
}

async fn run_installer(state: &AppState, name: String, reinstall: bool) -> Result<(), ApiError> {
    let installer = state.config.installer.clone();
    let installer =
        installer.ok_or_else(|| ApiError::new(ProblemCode::InstallFailed, "this server does not install agents"))?;
    let outcome = tokio::task::spawn_blocking(move || (installer.0)(&name, reinstall)).await;
    outcome.map_err(|_| ApiError::new(ProblemCode::Internal, "the installation was interrupted"))??;
    Ok(())
}
