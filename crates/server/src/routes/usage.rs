//! Handlers for the usage of model calls.

use axum::Json;
use axum::extract::State;
use jiff::Timestamp;
use protocol::{ProblemCode, SessionId};
use serde::Serialize;
use store::{SinceTime, UsageGrouping, UsageRow};
use utoipa::ToSchema;

use crate::error::ApiError;
use crate::extract::{Path, Query};
use crate::pagination::{ListQuery, paginate};
use crate::state::AppState;
use crate::wire::UsageQuery;

/// Response of `GET /v1/usage`.
#[derive(Debug, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct UsageList {
    by: &'static str,
    since_ms: i64,
    rows: Vec<UsageSummary>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_cursor: Option<String>,
}

/// The usage of one session, account, user, agent, model or day. Money is in pico-dollars (10⁻¹² USD).
#[derive(Debug, Default, Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Used)]
pub(crate) struct UsageSummary {
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
    /// The calls that are charged for the most that they can have cost.
    estimated_calls: u64,
    /// Calls to models without a known price. Their cost is not in `spentPicos`, and not zero either.
    unpriced_calls: u64,
}

/// `GET /v1/usage`: returns the usage grouped by session, or as `by` says, since the beginning or since a time.
#[utoipa::path(
    get,
    path = "/v1/usage",
    operation_id = "list_usage",
    tag = "usage",
    params(UsageQuery),
    responses((status = 200, description = "One row per session, account, user, agent, model or day.", body = UsageList)),
)]
pub(crate) async fn list(
    State(state): State<AppState>,
    Query(query): Query<UsageQuery>,
) -> Result<Json<UsageList>, ApiError> {
    let by = by(query.by.as_deref())?;
    let since_ms = since_ms(query.since.as_deref())?;
    let rows = state.sessions.usage(by, since_ms).await?.into_iter().map(UsageSummary::from).collect();
    let page = ListQuery { limit: query.limit, cursor: query.cursor };
    let (rows, next_cursor) = paginate(rows, &page, |used: &UsageSummary| used.name.clone())?;
    Ok(Json(UsageList { by: by.as_str(), since_ms, rows, next_cursor }))
}

/// `GET /v1/sessions/{session_id}/usage`: returns the usage of a session so far.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/usage",
    operation_id = "get_session_usage",
    tag = "usage",
    params(("session_id" = SessionId, Path)),
    responses((status = 200, description = "The usage since the start of the session.", body = UsageSummary)),
)]
pub(crate) async fn of_session(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<Json<UsageSummary>, ApiError> {
    let used = state.sessions.usage_of(&id).await?.map(UsageSummary::from);
    Ok(Json(used.unwrap_or_else(|| UsageSummary { name: id.to_string(), ..UsageSummary::default() })))
}

fn by(name: Option<&str>) -> Result<UsageGrouping, ApiError> {
    let Some(name) = name else { return Ok(UsageGrouping::Session) };
    let unknown = || {
        let all = UsageGrouping::ALL.map(UsageGrouping::as_str).join(", ");
        ApiError::new(ProblemCode::InvalidRequest, format!("invalid `by` `{name}`; expected one of {all}"))
    };
    UsageGrouping::named(name).ok_or_else(unknown)
}

fn since_ms(text: Option<&str>) -> Result<i64, ApiError> {
    let Some(text) = text else { return Ok(0) };
    let since: SinceTime =
        text.parse().map_err(|error| ApiError::new(ProblemCode::InvalidRequest, format!("`since`: {error}")))?;
    Ok(since.millisecond(Timestamp::now()))
}

impl From<UsageRow> for UsageSummary {
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
            estimated_calls: row.estimated,
            unpriced_calls: row.unpriced,
        }
    }
}
