//! Handlers for change sets: show, apply and discard.

use axum::Json;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use http::header::{CONTENT_TYPE, ETAG, HeaderValue, IF_MATCH};
use http::{HeaderMap, StatusCode};
use protocol::SessionId;
use sandbox::SetSummary;
use serde_json::json;
use session::{ReviewedSet, ShownSet};

use crate::error::ApiError;
use crate::extract::{OptionalJson, Path, Query};
use crate::state::AppState;
use crate::wire::changes::{
    AppliedList, ApplyBody, ChangeList, ChangeSetHead, ChangeSetList, ChangeSetRow, ChangesFormat, ChangesQuery,
};

/// `GET /v1/sessions/{session_id}/changes`: returns the current change set of the session, or an earlier one.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/changes",
    operation_id = "get_changes",
    tag = "changes",
    params(("session_id" = SessionId, Path), ChangesQuery),
    responses((status = 200, description = "The changes in the requested format.", content(
        (ChangeList = "application/json"), (String = "text/plain"), (String = "text/x-diff"),
    ), headers(("ETag" = String, description = "The digest of the change set, for `If-Match` of an apply.")))),
)]
pub(crate) async fn show(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    Query(query): Query<ChangesQuery>,
) -> Result<Response, ApiError> {
    let ChangesQuery { format, set, against } = query;
    if let Some(against) = against {
        let ShownSet { set, shown } = state.sessions.compare_changes(&id, set, against).await?;
        return Ok(tagged(set, |set| Json(ChangeList::compared(set, json!(shown)))));
    }
    Ok(match format {
        ChangesFormat::Json => {
            let ShownSet { set: shown_set, shown } = state.sessions.list_changes(&id, set).await?;
            let review = state.sessions.list_commits(&id, set).await?.into();
            tagged(shown_set, |set| Json(ChangeList { set, changes: Some(json!(shown)), differences: None, review }))
        }
        ChangesFormat::Stat => {
            let ShownSet { set, shown } = state.sessions.changes_as_lines(&id, set).await?;
            tagged(set, |_| text("text/plain; charset=utf-8", shown))
        }
        ChangesFormat::Diff => {
            let commits = state.sessions.commits_as_patch(&id, set).await?;
            let ShownSet { set, shown } = state.sessions.changes_as_patch(&id, set).await?;
            tagged(set, |_| text("text/x-diff; charset=utf-8", commits + &shown))
        }
    })
}

/// `GET /v1/sessions/{session_id}/changes/sets`: lists the change sets of the session.
#[utoipa::path(
    get,
    path = "/v1/sessions/{session_id}/changes/sets",
    operation_id = "list_change_sets",
    tag = "changes",
    params(("session_id" = SessionId, Path)),
    responses((status = 200, description = "The kept change sets, oldest first.", body = ChangeSetList)),
)]
pub(crate) async fn list_sets(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
) -> Result<Json<ChangeSetList>, ApiError> {
    let sets = state.sessions.change_sets(&id).await?;
    Ok(Json(ChangeSetList { sets: sets.into_iter().map(ChangeSetRow::of).collect() }))
}

/// `POST /v1/sessions/{session_id}/apply`: applies changes to the workspace on the host, either all requested ones or none.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/apply",
    operation_id = "apply_changes",
    tag = "changes",
    params(
        ("session_id" = SessionId, Path),
        ("If-Match" = Option<String>, Header, description = "The digest of the reviewed change set, as in its `ETag`."),
    ),
    request_body = Option<ApplyBody>,
    responses(
        (status = 200, description = "The changes are applied.", body = AppliedList),
        (status = 409, description = "Some changes cannot be applied, so none was.", body = protocol::Problem, content_type = "application/problem+json"),
        (status = 412, description = "The given digest differs from the digest of the change set.", body = protocol::Problem, content_type = "application/problem+json"),
        (status = 428, description = "`If-Match` is missing.", body = protocol::Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn apply(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    headers: HeaderMap,
    OptionalJson(body): OptionalJson<ApplyBody>,
) -> Result<Response, ApiError> {
    let body = body.unwrap_or_default();
    let reviewed = ReviewedSet { number: body.set, digests: digests(&headers) };
    if body.commits {
        let ShownSet { set, shown } = state.sessions.apply_commits(&id, reviewed, body.into()).await?;
        return Ok(tagged(set, |set| Json(AppliedList::commits(set, json!(shown)))));
    }
    let ShownSet { set, shown } = state.sessions.apply(&id, reviewed, body.into()).await?;
    Ok(tagged(set, |set| Json(AppliedList::files(set, json!(shown.changes), json!(shown.left_out)))))
}

/// `POST /v1/sessions/{session_id}/discard`: deletes the changes of the session.
#[utoipa::path(
    post,
    path = "/v1/sessions/{session_id}/discard",
    operation_id = "discard_changes",
    tag = "changes",
    params(
        ("session_id" = SessionId, Path),
        ("If-Match" = Option<String>, Header, description = "The digest of the current change set; not checked if absent."),
    ),
    responses(
        (status = 204, description = "The changes are deleted."),
        (status = 412, description = "The given digest differs from the digest of the change set.", body = protocol::Problem, content_type = "application/problem+json"),
    ),
)]
pub(crate) async fn discard(
    State(state): State<AppState>,
    Path(id): Path<SessionId>,
    headers: HeaderMap,
) -> Result<StatusCode, ApiError> {
    state.sessions.discard(&id, ReviewedSet { number: None, digests: digests(&headers) }).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Returns the digests that `If-Match` names. `*` names none: it would apply changes that nobody has seen.
fn digests(headers: &HeaderMap) -> Vec<String> {
    let values = headers.get_all(IF_MATCH).iter().filter_map(|value| value.to_str().ok());
    let tags = values.flat_map(|value| value.split(',')).map(|tag| tag.trim().trim_matches('"'));
    tags.filter(|tag| !tag.is_empty() && *tag != "*").map(str::to_owned).collect()
}

/// Returns the response with the digest of its change set.
fn tagged<R: IntoResponse>(set: Option<SetSummary>, body: impl FnOnce(Option<ChangeSetHead>) -> R) -> Response {
    let head = set.map(ChangeSetHead::of);
    // A digest has only characters that a header can have.
    let tag = head.as_ref().and_then(|head| HeaderValue::from_str(&format!("\"{}\"", head.digest)).ok());
    let mut response = body(head).into_response();
    if let Some(tag) = tag {
        response.headers_mut().insert(ETAG, tag);
    }
    response
}

fn text(media_type: &'static str, text: String) -> Response {
    ([(CONTENT_TYPE, media_type)], text).into_response()
}
