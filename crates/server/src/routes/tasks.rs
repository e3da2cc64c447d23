//! Handlers for tasks: create, list and show.

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
use crate::idempotency::IdempotentRequest;
use crate::pagination::{ListQuery, paginate};
use crate::routes::sessions::new_session_id;
use crate::state::AppState;
use crate::task_registry::{TaskInfo, order};

/// Response of `GET /v1/tasks`.
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct TaskList {
    tasks: Vec<TaskInfo>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// `POST /v1/tasks`: starts a task in the format of docs/tasks.md. It runs in a session with the same id; follow the
/// events of that session, or terminate it to stop the task.
#[utoipa::path(
    post,
    path = "/v1/tasks",
    operation_id = "create_task",
    tag = "tasks",
    request_body = Map<String, Value>,
    responses((status = 202, description = "The task is started.", body = TaskInfo)),
)]
pub(crate) async fn create(
    State(state): State<AppState>,
    Extension(caller): Extension<Caller>,
    idempotent: Option<Extension<IdempotentRequest>>,
    Body(task): Body<Map<String, Value>>,
) -> Result<(StatusCode, Json<TaskInfo>), ApiError> {
    let runner = state.config.task_runner.clone();
    let runner = runner.ok_or_else(|| ApiError::new(ProblemCode::InvalidRequest, "this server does not run tasks"))?;
    let id = new_session_id(idempotent.as_deref())?;
    let (name, run) = (runner.0)(id.clone(), Value::Object(task), &caller.options(&state.config.options))?;
    Ok((StatusCode::ACCEPTED, Json(state.tasks.begin(id, name, run)?)))
}

/// `GET /v1/tasks`: lists all tasks, or a page if `limit` or `cursor` is given.
#[utoipa::path(
    get,
    path = "/v1/tasks",
    operation_id = "list_tasks",
    tag = "tasks",
    params(ListQuery),
    responses((status = 200, description = "The tasks without their reports, oldest first.", body = TaskList)),
)]
pub(crate) async fn list(
    State(state): State<AppState>,
    Query(query): Query<ListQuery>,
) -> Result<Json<TaskList>, ApiError> {
    let (tasks, next_cursor) = paginate(state.tasks.list()?, &query, order)?;
    Ok(Json(TaskList { tasks, next_cursor }))
}

/// `GET /v1/tasks/{task_id}`: returns the status and the report of a task.
#[utoipa::path(
    get,
    path = "/v1/tasks/{task_id}",
    operation_id = "get_task",
    tag = "tasks",
    params(("task_id" = SessionId, Path)),
    responses((status = 200, description = "The task.", body = TaskInfo)),
)]
pub(crate) async fn show(State(state): State<AppState>, Path(id): Path<SessionId>) -> Result<Json<TaskInfo>, ApiError> {
    let missing = || ApiError::new(ProblemCode::TaskNotFound, format!("task `{id}` does not exist"));
    state.tasks.get(&id)?.map(Json).ok_or_else(missing)
}
