//! One record as one line of JSON.
//!
//! `{"seq":1,"time":"…","session":"…","turn":"…","type":"…","data":{…},"prev":"…"}`. What is `null`, `false`
//! or the host's own word is left out. `prev` is the SHA-256 of the line before, without its newline.

use protocol::{Draft, Event, EventBody, EventSource, SessionId, TurnId};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::JournalError;
use super::stamp::event_id;
use crate::{Digest, json};

/// No line is longer, so a foreign file without newlines cannot fill the memory of a reader.
pub(super) const MAX_LINE_BYTES: usize = 64 << 20;
/// JSON readers stop at 128 levels; a reader may wrap the event in a few of its own.
pub(super) const MAX_DEPTH: usize = 112;

#[derive(Serialize)]
struct Written<'a> {
    seq: u64,
    time: &'a str,
    session: &'a SessionId,
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
    prev: Digest,
}

#[derive(Deserialize)]
struct Read {
    seq: u64,
    time: String,
    session: SessionId,
    turn: Option<TurnId>,
    #[serde(flatten)]
    body: EventBody,
    native: Option<String>,
    #[serde(default)]
    synthetic: bool,
    #[serde(default = "daemon")]
    source: EventSource,
    raw: Option<Value>,
    prev: Digest,
}

/// A line that was read: the event, and the digest of the line before.
pub(super) struct Decoded {
    pub(super) event: Event,
    pub(super) prev: Digest,
}

/// Where a record stands in its journal.
pub(super) struct Place<'a> {
    pub(super) sequence: u64,
    pub(super) time: &'a str,
    pub(super) session: &'a SessionId,
    /// The digest of the line before.
    pub(super) prev: Digest,
}

/// Adds `draft` as a line, newline included, to `lines`.
pub(super) fn encode(place: Place<'_>, draft: &Draft, lines: &mut Vec<u8>) -> Result<(), JournalError> {
    let Place { sequence, time, session, prev } = place;
    let written = Written {
        seq: sequence,
        time,
        session,
        turn: draft.turn_id.as_ref(),
        body: &draft.body,
        native: draft.native_session_id.as_deref(),
        synthetic: draft.synthetic,
        source: draft.source,
        raw: draft.raw.as_ref(),
        prev,
    };
    let start = lines.len();
    let deepest = json::write(&written, lines).map_err(JournalError::Encode)?;
    lines.push(b'\n');
    let bytes = lines.len() - start;
    if bytes > MAX_LINE_BYTES {
        return Err(JournalError::TooLarge { bytes, max: MAX_LINE_BYTES });
    }
    if deepest > MAX_DEPTH {
        return Err(JournalError::TooDeep { depth: deepest, max: MAX_DEPTH });
    }
    Ok(())
}

/// Reads a line, with or without its newline.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, serde_json::Error> {
    let read: Read = serde_json::from_slice(line)?;
    let draft = Draft {
        turn_id: read.turn,
        native_session_id: read.native,
        synthetic: read.synthetic,
        source: read.source,
        body: read.body,
        raw: read.raw,
    };
    let event =
        Event { event_id: event_id(read.seq), sequence: read.seq, time: read.time, session_id: read.session, draft };
    Ok(Decoded { event, prev: read.prev })
}

/// How a line numbered `sequence` begins: enough to know one without reading all of it.
pub(super) fn opening(sequence: u64) -> Vec<u8> {
    format!("{{\"seq\":{sequence},").into_bytes()
}

/// The digest that the line after `line` carries.
pub(super) fn digest(line: &[u8]) -> Digest {
    Digest::of(line.strip_suffix(b"\n").unwrap_or(line))
}

fn daemon() -> EventSource {
    EventSource::Daemon
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands a reference")]
fn is_daemon(source: &EventSource) -> bool {
    *source == EventSource::Daemon
}
