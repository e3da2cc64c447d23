//! Event drafts encoded as JSON, before they have a number, a time and a previous line.
//!
//! Encoding is the most expensive step of an append and needs nothing from the journal, so it runs before the
//! journal's lock is taken.

use std::io;

use protocol::{EventBody, EventDraft, EventSource, TurnId};
use serde::Serialize;
use serde_json::Value;
use serde_json::ser::{Formatter, Serializer};

use super::JournalError;

/// The deepest nesting of a record. JSON readers stop at 128 levels, and a reader may wrap the event in a few more.
const MAX_DEPTH: usize = 112;

/// Drafts as JSON objects, one after another.
pub(super) struct EncodedDrafts {
    text: Vec<u8>,
    /// The end of each draft in `text`, and whether the draft ends the session.
    ends: Vec<(usize, bool)>,
}

/// One draft of [`EncodedDrafts`].
#[derive(Debug, Clone, Copy)]
pub(super) struct EncodedDraft<'a> {
    /// The JSON fields, without the brackets around them.
    pub(super) fields: &'a [u8],
    pub(super) ends_session: bool,
}

#[derive(Serialize)]
struct DraftFields<'a> {
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

impl EncodedDrafts {
    /// Encodes `drafts`. Fails when one of them cannot be encoded or nests too deeply.
    pub(super) fn new(drafts: &[EventDraft]) -> Result<Self, JournalError> {
        let mut encoded = Self { text: Vec::new(), ends: Vec::with_capacity(drafts.len()) };
        drafts.iter().try_for_each(|draft| encoded.add(draft))?;
        Ok(encoded)
    }

    fn add(&mut self, draft: &EventDraft) -> Result<(), JournalError> {
        let fields = DraftFields {
            turn: draft.turn_id.as_ref(),
            body: &draft.body,
            native: draft.native_session_id.as_deref(),
            synthetic: draft.synthetic,
            source: draft.source,
            raw: draft.raw.as_ref(),
        };
        let mut depth = DepthCounter::default();
        let mut serializer = Serializer::with_formatter(&mut self.text, &mut depth);
        fields.serialize(&mut serializer).map_err(JournalError::Encode)?;
        if depth.deepest > MAX_DEPTH {
            return Err(JournalError::TooDeep { depth: depth.deepest, max: MAX_DEPTH });
        }
        self.ends.push((self.text.len(), matches!(draft.body, EventBody::SessionEnded(_))));
        Ok(())
    }

    /// Returns the drafts in their order.
    pub(super) fn iter(&self) -> impl ExactSizeIterator<Item = EncodedDraft<'_>> {
        let mut start = 0;
        self.ends.iter().map(move |(end, ends_session)| {
            let object = &self.text[std::mem::replace(&mut start, *end)..*end];
            EncodedDraft { fields: &object[1..object.len() - 1], ends_session: *ends_session }
        })
    }
}

/// A compact JSON formatter that measures how deeply arrays and objects nest.
#[derive(Default)]
struct DepthCounter {
    open: usize,
    deepest: usize,
}

impl DepthCounter {
    fn enter(&mut self) {
        self.open += 1;
        self.deepest = self.deepest.max(self.open);
    }
}

impl Formatter for &mut DepthCounter {
    fn begin_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter();
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open -= 1;
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.enter();
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.open -= 1;
        writer.write_all(b"}")
    }
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes a reference")]
fn is_daemon(source: &EventSource) -> bool {
    *source == EventSource::Daemon
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn depth_is_that_of_the_deepest_value() {
        let depth = |value: Value| {
            let (mut depth, mut text) = (DepthCounter::default(), Vec::new());
            value.serialize(&mut Serializer::with_formatter(&mut text, &mut depth)).unwrap();
            assert_eq!(text, value.to_string().into_bytes());
            depth.deepest
        };
        assert_eq!(depth(json!(1)), 0);
        assert_eq!(depth(json!([[], {"a": [{}]}, []])), 4);
    }
}
