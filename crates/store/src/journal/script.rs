//! What records say, as text, before it is known where they will stand.
//!
//! To put it into words takes longer than anything else about a record, and needs nothing of the journal: whoever
//! appends does so before it is its turn.

use protocol::{EventBody, EventDraft, EventSource, TurnId};
use serde::Serialize;
use serde_json::Value;

use super::JournalError;
use crate::json;

/// JSON readers stop at 128 levels; a reader may wrap the event in a few of its own.
const MAX_DEPTH: usize = 112;

/// What some records say, one after another.
pub(super) struct Script {
    text: Vec<u8>,
    /// Where each of them ends, and whether it ends the session.
    ends: Vec<(usize, bool)>,
}

/// What one record says.
#[derive(Debug, Clone, Copy)]
pub(super) struct Said<'a> {
    /// Its fields, without the brackets around them.
    pub(super) fields: &'a [u8],
    pub(super) ends_session: bool,
}

#[derive(Serialize)]
struct Fields<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    turn: Option<&'a TurnId>,
    #[serde(flatten)]
    body: &'a EventBody,
    #[serde(skip_serializing_if = "Option::is_none")]
    native: Option<&'a str>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    synthetic: bool,
    #[serde(skip_serializing_if = "is_daemon")]
    source: EventSource,
    #[serde(skip_serializing_if = "Option::is_none")]
    raw: Option<&'a Value>,
}

impl Script {
    /// Puts `drafts` into words: all or none.
    pub(super) fn of(drafts: &[EventDraft]) -> Result<Self, JournalError> {
        let mut script = Self { text: Vec::new(), ends: Vec::with_capacity(drafts.len()) };
        drafts.iter().try_for_each(|draft| script.add(draft))?;
        Ok(script)
    }

    fn add(&mut self, draft: &EventDraft) -> Result<(), JournalError> {
        let fields = Fields {
            turn: draft.turn_id.as_ref(),
            body: &draft.body,
            native: draft.native_session_id.as_deref(),
            synthetic: draft.synthetic,
            source: draft.source,
            raw: draft.raw.as_ref(),
        };
        let depth = json::write(&fields, &mut self.text).map_err(JournalError::Encode)?;
        if depth > MAX_DEPTH {
            return Err(JournalError::TooDeep { depth, max: MAX_DEPTH });
        }
        self.ends.push((self.text.len(), matches!(draft.body, EventBody::SessionEnded(_))));
        Ok(())
    }

    /// What each of the records says.
    pub(super) fn said(&self) -> impl ExactSizeIterator<Item = Said<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |(end, ends_session)| {
            let object = &self.text[std::mem::replace(&mut start, *end)..*end];
            Said { fields: &object[1..object.len() - 1], ends_session: *ends_session }
        })
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_daemon(source: &EventSource) -> bool {
    *source == EventSource::Daemon
}
