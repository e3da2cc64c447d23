//! The query and the response of `GET /v1/events`.

use protocol::{Event, ProblemCode, SessionId};
use serde::Deserialize;
use session::FeedFilter;
use utoipa::{IntoParams, ToSchema};

use super::signed;
use crate::error::ApiError;

/// Query of `GET /v1/events`.
#[derive(Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct FeedQuery {
    /// Return events after this cursor: the `id` of an event, or `nextOffset` of a page. `now` skips all existing events.
    pub(crate) offset: Option<String>,
    /// Most events in a page: 1000 if absent, and at most 10000. 0 returns no event.
    #[serde(default, deserialize_with = "signed")]
    pub(crate) limit: Option<u64>,
    /// Event types (`turn.ended`) or groups of types (`permission`), separated by commas.
    kind: Option<String>,
    /// Session ids, separated by commas.
    session: Option<String>,
    /// Include the agents' raw output.
    #[serde(default, alias = "includeRaw")]
    pub(crate) include_raw: Option<bool>,
}

/// A page of the event feed.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "pages are written event by event; only the schema is used")]
pub(crate) struct FeedPage {
    events: Vec<Event>,
    /// Whether there may be more events after this page.
    has_more: bool,
    /// The `offset` of the next page.
    next_offset: String,
}

/// Events in a page of the feed without a limit, and the largest limit.
const DEFAULT_EVENTS: u64 = 1000;
const MAX_EVENTS: u64 = 10_000;

impl FeedQuery {
    /// Returns the most events of the page.
    pub(crate) fn limit(&self) -> usize {
        usize::try_from(self.limit.unwrap_or(DEFAULT_EVENTS).min(MAX_EVENTS)).unwrap_or(usize::MAX)
    }

    /// Returns the filter of the query; fails if a session id is invalid.
    pub(crate) fn filter(&self) -> Result<FeedFilter, ApiError> {
        let session = |id: String| {
            let refused = |error| ApiError::new(ProblemCode::InvalidRequest, format!("`session`: {error}"));
            SessionId::new(id).map_err(refused)
        };
        let sessions = words(self.session.as_deref()).map(session).collect::<Result<_, _>>()?;
        Ok(FeedFilter { sessions, kinds: words(self.kind.as_deref()).collect() })
    }
}

fn words(list: Option<&str>) -> impl Iterator<Item = String> {
    list.unwrap_or_default().split(',').map(str::trim).filter(|word| !word.is_empty()).map(str::to_owned)
}
