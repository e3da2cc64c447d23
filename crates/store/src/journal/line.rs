//! Encoding and decoding of one journal line.
//!
//! `{"seq":1,"time":"…","session":"…","turn":"…","type":"…","data":{…},"prev":"…"}`. Fields that are `null`, `false`
//! or the default source (`daemon`) are left out. `prev` is the SHA-256 of the previous line without its newline.

use base::Digest;
use protocol::{Event, EventBody, EventDraft, EventSource, SessionId, TurnId};
use serde::Deserialize;
use serde_json::Value;

use super::JournalError;
use super::encoded_drafts::EncodedDraft;
use super::position::event_id;

/// The longest line. It bounds the memory of a reader of a foreign file without newlines.
pub(super) const MAX_LINE_BYTES: usize = 64 << 20;
/// An estimate of the bytes around the fields of a draft.
const HEADER_BYTES: usize = 256;

#[derive(Deserialize)]
struct LineFields {
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

/// A decoded line: the event, and the digest of the previous line.
pub(super) struct DecodedLine {
    pub(super) event: Event,
    pub(super) prev: Digest,
}

/// The fields of a line that depend on its position in the journal.
#[derive(Debug, Clone, Copy)]
pub(super) struct LineHeader<'a> {
    pub(super) sequence: u64,
    pub(super) time: &'a str,
    pub(super) session: &'a SessionId,
    /// The digest of the previous line.
    pub(super) prev: Digest,
}

/// Appends `draft` as a line, with its newline, to `lines`. Fails when the line is too long.
pub(super) fn encode(header: LineHeader<'_>, draft: EncodedDraft<'_>, lines: &mut Vec<u8>) -> Result<(), JournalError> {
    let LineHeader { sequence, time, session, prev } = header;
    let start = lines.len();
    lines.reserve(draft.fields.len() + HEADER_BYTES);
    lines.extend_from_slice(&line_prefix(sequence));
    lines.extend_from_slice(b"\"time\":");
    // The time may come from an imported journal, so it is escaped.
    serde_json::to_writer(&mut *lines, time).map_err(JournalError::Encode)?;
    for part in [b",\"session\":\"", session.as_str().as_bytes(), b"\",", draft.fields, b",\"prev\":\""] {
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

/// Decodes a line, with or without its newline.
pub(super) fn decode(line: &[u8]) -> Result<DecodedLine, serde_json::Error> {
    let fields: LineFields = serde_json::from_slice(line)?;
    let draft = EventDraft {
        turn_id: fields.turn,
        native_session_id: fields.native,
        synthetic: fields.synthetic,
        source: fields.source,
        body: fields.body,
        raw: fields.raw,
    };
    let event = Event {
        event_id: event_id(fields.seq),
        sequence: fields.seq,
        time: fields.time,
        session_id: fields.session,
        draft,
    };
    Ok(DecodedLine { event, prev: fields.prev })
}

/// Returns the first bytes of the line numbered `sequence`, which identify the line without decoding it.
pub(super) fn line_prefix(sequence: u64) -> Vec<u8> {
    format!("{{\"seq\":{sequence},").into_bytes()
}

/// Returns the digest that the line after `line` contains.
pub(super) fn digest(line: &[u8]) -> Digest {
    Digest::of(line.strip_suffix(b"\n").unwrap_or(line))
}

fn daemon() -> EventSource {
    EventSource::Daemon
}

#[cfg(test)]
mod tests {
    use super::super::encoded_drafts::EncodedDrafts;
    use super::*;

    #[test]
    fn imported_time_is_escaped() {
        let draft = EventDraft::daemon(EventBody::Other { kind: "k".to_owned(), data: Value::Null });
        let (session, time) = (SessionId::new("s1").unwrap(), r#"","seq":9,"x":""#);
        let (drafts, mut line) = (EncodedDrafts::new(std::slice::from_ref(&draft)).unwrap(), Vec::new());
        let header = LineHeader { sequence: 1, time, session: &session, prev: Digest::ZERO };
        encode(header, drafts.iter().next().unwrap(), &mut line).unwrap();
        let decoded = decode(&line).unwrap();
        assert_eq!((decoded.event.sequence, decoded.event.time.as_str(), decoded.event.draft), (1, time, draft));
        assert_eq!(decoded.prev, Digest::ZERO);
    }
}
