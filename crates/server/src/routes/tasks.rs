//! Tasks: handed in, listed, shown.

use axum::extract::State;
use axum::{Extension, Json};
use http::StatusCode;
use protocol::{ProblemCode, SessionId};
use serde::Serialize;
use serde_json::{Map, Value};
use utoipa::ToSchema;

use crate::access::Caller;
use crate::error::ApiError;
use crate::extract::{Json as Body, Path, Query};
use crate::idempotency::Named;
use crate::pagination::{ListQuery, cut};
use crate::routes::sessions::fresh_id;
use crate::state::AppState;
use crate::task_registry::{TaskInfo, order};

/// `GET /v1/tasks`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskList {
    tasks: Vec<TaskInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// `POST /v1/tasks`: takes a task, as docs/tasks.md describes it, and begins it. It is done in a session of the same id, whose
/// events can be followed, and ended by `terminate` of that.
#[utoipa::path(
    post,
    path = "/v1/tasks",
    operation_id = "create_task",
    tag = "tasks",
    request_body = Map<String, Value>,
    responses((status = 202, description = "It is taken, and begins.", body = TaskInfo)),
)]
pub(crate) async fn create(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    named: Option<Extension<Named>>,
    Body(task): Body<Map<String, Value>>,
) -> Result<(StatusCode, Json<TaskInfo>), ApiError> {
    let tasker = state.config.task_runner.clone();
    let tasker = tasker.ok_or_else(|| ApiError::new(ProblemCode::InvalidRequest, "this server does no tasks"))?;
    let id = fresh_id(named.as_deref())?;
    let (name, run) = (tasker.0)(id.clone(), Value::Object(task), &caller.options(&state.config.options))?;
    Ok((StatusCode::ACCEPTED, Json(state.tasks.begin(id, name, run)?)))
}

/// `GET /v1/tasks`: all of them, or a page when `limit` or `cursor` is given.
#[utoipa::path(
    get,
    path = "/v1/tasks",
    operation_id = "list_tasks",
    tag = "tasks",
    params(ListQuery),
    responses((status = 200, description = "Oldest first, without their reports.", body = TaskList)),
)]
pub(crate) async fn list(
    State(state): State<AppState>,
    Query(query): Query<ListQuery>,
) -> Result<Json<TaskList>, ApiError> {
    let (tasks, next_cursor) = cut(state.tasks.list()?, &query, order)?;
    Ok(Json(TaskList { tasks, next_cursor }))
}

/// `GET /v1/tasks/{task_id}`: how a task stands, and what came of it.
#[utoipa::path(
    get,
    path = "/v1/tasks/{task_id}",
    operation_id = "get_task",
    tag = "tasks",
    params(("task_id" = SessionId, Path)),
    responses((status = 200, description = "The task.", body = TaskInfo)),
)]
pub(crate) async fn show(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<Json<TaskInfo>, ApiError> {
    let missing = || ApiError::new(ProblemCode::TaskNotFound, format!("there is no task `{id}`"));
    state.tasks.get(&id)?.map(Json).ok_or_else(missing)
}
