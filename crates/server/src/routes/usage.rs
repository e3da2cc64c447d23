//! What model calls cost, by whom.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use protocol::{ProblemCode, SessionId};
use serde::Serialize;
use store::{SinceTime, UsageGrouping, UsageRow};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::pagination::{ListQuery, cut};
use crate::state::AppState;
use crate::wire::UsageQuery;

/// The answer of `GET /v1/usage`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UsageList {
    by: &'static str,
    since_ms: i64,
    rows: Vec<Used>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// What one session, account, user, agent, model or day used. Money is in pico-dollars (10⁻¹² USD).
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Used {
    name: String,
    calls: u64,
    input_tokens: u64,
    output_tokens: u64,
    cache_read_tokens: u64,
    cache_write_tokens: u64,
    #[serde(rename = "cacheWrite1hTokens")]
    cache_write_1h_tokens: u64,
    spent_picos: u64,
    held_picos: u64,
    unknown_calls: u64,
}

/// `GET /v1/usage`: what was used, by session unless `by` says otherwise, from the beginning or since a time.
#[utoipa::path(
    get,
    path = "/v1/usage",
    operation_id = "list_usage",
    tag = "usage",
    params(UsageQuery),
    responses((status = 200, description = "One row a session, account, user, agent, model or day.", body = UsageList)),
)]
pub(crate) async fn list(
    State(state): State<AppState>,
    Query(query): Query<UsageQuery>,
) -> Result<Json<UsageList>, ApiError> {
    let by = by(query.by.as_deref())?;
    let since_ms = since_ms(query.since.as_deref())?;
    let rows = state.sessions.usage(by, since_ms).await?.into_iter().map(Used::from).collect();
    let page = ListQuery { limit: query.limit, cursor: query.cursor };
    let (rows, next_cursor) = cut(rows, &page, |used: &Used| used.name.clone())?;
    Ok(Json(UsageList { by: by.as_str(), since_ms, rows, next_cursor }))
}

/// `GET /v1/sessions/{session_id}/usage`: what one session used so far.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/usage",
    operation_id = "get_session_usage",
    tag = "usage",
    params(("session_id" = SessionId, Path)),
    responses((status = 200, description = "From its beginning.", body = Used)),
)]
pub(crate) async fn of_session(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<Json<Used>, ApiError> {
    let used = state.sessions.usage_of(&id).await?.map(Used::from);
    Ok(Json(used.unwrap_or_else(|| Used { name: id.to_string(), ..Used::default() })))
}

fn by(name: Option<&str>) -> Result<UsageGrouping, ApiError> {
    let Some(name) = name else { return Ok(UsageGrouping::Session) };
    let unknown = || {
        let all = UsageGrouping::ALL.map(UsageGrouping::as_str).join(", ");
        ApiError::new(ProblemCode::InvalidRequest, format!("usage is not summed by `{name}`; there are {all}"))
    };
    UsageGrouping::named(name).ok_or_else(unknown)
}

fn since_ms(text: Option<&str>) -> Result<i64, ApiError> {
    let Some(text) = text else { return Ok(0) };
    let since: SinceTime =
        text.parse().map_err(|error| ApiError::new(ProblemCode::InvalidRequest, format!("`since`: {error}")))?;
    Ok(since.millisecond(Timestamp::now()))
}

impl From<UsageRow> for Used {
    fn from(row: UsageRow) -> Self {
        Self {
            name: row.name,
            calls: row.calls,
            input_tokens: row.usage.input_tokens,
            output_tokens: row.usage.output_tokens,
            cache_read_tokens: row.usage.cache_read_tokens,
            cache_write_tokens: row.usage.cache_write_tokens,
            cache_write_1h_tokens: row.usage.cache_write_1h_tokens,
            spent_picos: row.spent_picos,
            held_picos: row.held_picos,
            unknown_calls: row.unknown,
        }
    }
}
