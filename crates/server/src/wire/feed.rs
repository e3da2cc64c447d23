//! What `GET /v1/events` can be asked, and how it answers.

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
    /// Only what comes behind this place: the `id` of an event, or `nextOffset` of a page. `now` is behind all there is.
    pub(crate) offset: Option<String>,
    /// At most this many events in a page.
    #[serde(default, deserialize_with = "signed")]
    pub(crate) limit: Option<u64>,
    /// Only these kinds of events (`turn.ended`) or families of them (`permission`), with commas between.
    kind: Option<String>,
    /// Only these sessions, with commas between.
    session: Option<String>,
    /// With what the agents printed themselves.
    #[serde(default, alias = "includeRaw")]
    pub(crate) include_raw: Option<bool>,
}

/// A page of events of all sessions. It is written event by event, in bounded memory; this is its shape.
#[derive(ToSchema)]
#[schema(rename_all = "camelCase")]
#[expect(dead_code, reason = "only its schema is used")]
pub(crate) struct FeedPage {
    events: Vec<Event>,
    /// Whether there is more to look at behind this page.
    has_more: bool,
    /// Where the next page begins.
    next_offset: String,
}

impl FeedQuery {
    /// Which events are wanted.
    pub(crate) fn wanted(&self) -> Result<FeedFilter, ApiError> {
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
