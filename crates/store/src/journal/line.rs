//! One record as one line of JSON.
//!
//! `{"seq":1,"time":"…","session":"…","turn":"…","type":"…","data":{…},"prev":"…"}`. What is `null`, `false`
//! or the host's own word is left out. `prev` is the SHA-256 of the line before, without its newline.

use base::Digest;
use protocol::{Event, EventBody, EventDraft, EventSource, SessionId, TurnId};
use serde::Deserialize;
use serde_json::Value;

use super::JournalError;
use super::script::Said;
use super::stamp::event_id;
use crate::json;

/// No line is longer, so a foreign file without newlines cannot fill the memory of a reader.
pub(super) const MAX_LINE_BYTES: usize = 64 << 20;
/// Most of what stands around the fields of a record.
const AROUND_BYTES: usize = 256;

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
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) sequence: u64,
    pub(super) time: &'a str,
    pub(super) session: &'a SessionId,
    /// The digest of the line before.
    pub(super) prev: Digest,
}

/// Adds what a record says as a line, newline included, to `lines`.
pub(super) fn put(place: Place<'_>, said: Said<'_>, lines: &mut Vec<u8>) -> Result<(), JournalError> {
    let Place { sequence, time, session, prev } = place;
    let start = lines.len();
    lines.reserve(said.fields.len() + AROUND_BYTES);
    for part in [b"{\"seq\":", itoa::Buffer::new().format(sequence).as_bytes(), b",\"time\":"] {
        lines.extend_from_slice(part);
    }
    // It may be one that somebody else wrote.
    json::write(time, lines).map_err(JournalError::Encode)?;
    for part in [b",\"session\":\"", session.as_str().as_bytes(), b"\",", said.fields, b",\"prev\":\""] {
        lines.extend_from_slice(part);
    }
    lines.extend_from_slice(prev.digits(&mut [0; 64]).as_bytes());
    lines.extend_from_slice(b"\"}\n");
    let bytes = lines.len() - start;
    if bytes > MAX_LINE_BYTES {
        return Err(JournalError::TooLarge { bytes, max: MAX_LINE_BYTES });
    }
    Ok(())
}

/// Reads a line, with or without its newline.
pub(super) fn decode(line: &[u8]) -> Result<Decoded, serde_json::Error> {
    let read: Read = serde_json::from_slice(line)?;
    let draft = EventDraft {
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

#[cfg(test)]
mod tests {
    use super::super::script::Script;
    use super::*;

    #[test]
    fn a_time_that_somebody_else_wrote_stays_a_time() {
        let draft = EventDraft::daemon(EventBody::Other { kind: "k".to_owned(), data: Value::Null });
        let (session, time) = (SessionId::new("s1").unwrap(), r#"","seq":9,"x":""#);
        let (script, mut line) = (Script::of(std::slice::from_ref(&draft)).unwrap(), Vec::new());
        let place = Place { sequence: 1, time, session: &session, prev: Digest::ZERO };
        put(place, script.said().next().unwrap(), &mut line).unwrap();
        let read = decode(&line).unwrap();
        assert_eq!((read.event.sequence, read.event.time.as_str(), read.event.draft), (1, time, draft));
        assert_eq!(read.prev, Digest::ZERO);
    }
}
