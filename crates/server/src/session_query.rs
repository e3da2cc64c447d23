//! The conditions of `GET /v1/sessions`.
//!
//! A value that cannot be read is a 400: a filter with a typing error must not return everything.

use jiff::Timestamp;
use protocol::{ProblemCode, SessionStatus};
use serde::Deserialize;
use store::{LabelFilter, SessionFilter};
use utoipa::IntoParams;

use crate::error::ApiError;

/// Most characters of `q`.
const LONGEST_TEXT: usize = 200;
/// Most labels in one query.
const MOST_LABELS: usize = 8;

/// The conditions of a list of sessions. All must hold.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[into_params(parameter_in = Query)]
pub(crate) struct SessionQuery {
    /// `idle`, `queued`, `running`, `waiting`, `asleep` or `ended`; several with commas.
    status: Option<String>,
    /// The agent.
    agent: Option<String>,
    /// The account that pays.
    account: Option<String>,
    /// The user.
    user: Option<String>,
    /// A label as `key=value`, or a key that any value may have; several with commas, which must all be there.
    label: Option<String>,
    /// Created at this time or later: RFC 3339, or milliseconds since 1970.
    since: Option<String>,
    /// Created before this time: RFC 3339, or milliseconds since 1970.
    until: Option<String>,
    /// A part of the id, name, title or last message, in upper or lower case.
    q: Option<String>,
}

impl SessionQuery {
    /// Returns the filter; fails for a value that cannot be read.
    pub(crate) fn filter(self) -> Result<SessionFilter, ApiError> {
        if self.q.as_ref().is_some_and(|text| text.chars().count() > LONGEST_TEXT) {
            return Err(invalid(format!("invalid `q`: at most {LONGEST_TEXT} characters are allowed")));
        }
        let labels: Vec<_> = words(self.label.as_deref()).map(label).collect();
        if labels.len() > MOST_LABELS {
            return Err(invalid(format!("invalid `label`: at most {MOST_LABELS} labels are allowed")));
        }
        Ok(SessionFilter {
            status: words(self.status.as_deref()).map(status).collect::<Result<_, _>>()?,
            agent: self.agent,
            account: self.account,
            user: self.user,
            labels,
            since_ms: self.since.map(|text| time("since", &text)).transpose()?,
            until_ms: self.until.map(|text| time("until", &text)).transpose()?,
            text: self.q,
        })
    }
}

fn words(list: Option<&str>) -> impl Iterator<Item = &str> {
    list.into_iter().flat_map(|list| list.split(',')).map(str::trim)
}

fn status(word: &str) -> Result<SessionStatus, ApiError> {
    SessionStatus::from_name(word).ok_or_else(|| {
        let known = SessionStatus::ALL.map(SessionStatus::as_str).join(", ");
        invalid(format!("invalid `status` `{word}`; known are {known}"))
    })
}

fn label(word: &str) -> LabelFilter {
    match word.split_once('=') {
        Some((key, value)) => LabelFilter { key: key.to_owned(), value: Some(value.to_owned()) },
        None => LabelFilter { key: word.to_owned(), value: None },
    }
}

fn time(name: &str, text: &str) -> Result<i64, ApiError> {
    let parsed = text.parse::<i64>().ok().or_else(|| Some(text.parse::<Timestamp>().ok()?.as_millisecond()));
    parsed.ok_or_else(|| invalid(format!("invalid `{name}` `{text}`; write 2026-11-18T10:00:00Z, or milliseconds")))
}

fn invalid(detail: String) -> ApiError {
    ApiError::new(ProblemCode::InvalidRequest, detail)
}
