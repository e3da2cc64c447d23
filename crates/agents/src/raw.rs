//! Raw output of an agent, limited in size.
//!
//! A line that cannot be parsed is recorded as evidence. A small line is kept completely; of a large line only the
//! digest and the first bytes are kept, so that no agent can fill the journal.

use base::Digest;
use protocol::{AgentUnparsed, EventBody, EventDraft};
use serde_json::{Value, json};

/// Largest line that is kept completely.
const KEPT_WHOLE: usize = 64 * 1024;
/// Bytes that are kept of a larger line.
const KEPT_HEAD: usize = 4 * 1024;

/// Returns `agent.unparsed` for a line of stdout.
pub(crate) fn unparsed(line: &[u8], error: impl Into<String>) -> EventDraft {
    let body = AgentUnparsed {
        error: error.into(),
        location: "stdout".to_owned(),
        raw_hash: Some(Digest::of(line).to_string()),
    };
    EventDraft::agent(EventBody::AgentUnparsed(body)).with_raw(bounded_bytes(line))
}

/// Returns `value`, or its digest and first bytes if it is too large.
pub(crate) fn bounded(value: Value) -> Value {
    let text = value.to_string();
    if text.len() <= KEPT_WHOLE { value } else { head(text.as_bytes()) }
}

fn bounded_bytes(line: &[u8]) -> Value {
    if line.len() <= KEPT_WHOLE { Value::String(String::from_utf8_lossy(line).into_owned()) } else { head(line) }
}

fn head(bytes: &[u8]) -> Value {
    let head = String::from_utf8_lossy(&bytes[..KEPT_HEAD.min(bytes.len())]);
    json!({ "head": head, "bytes": bytes.len(), "sha256": Digest::of(bytes).to_string() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn small_line_is_kept_completely_and_huge_line_is_not() {
        assert_eq!(unparsed(b"hm", "odd").raw, Some(json!("hm")));
        let huge = vec![0xff; 10 * 1024 * 1024];
        let draft = unparsed(&huge, "odd");
        let raw = draft.raw.unwrap();
        assert_eq!(raw["bytes"], 10 * 1024 * 1024);
        assert!(raw.to_string().len() < 32 * 1024);
        let EventBody::AgentUnparsed(body) = draft.body else { panic!("not unparsed") };
        assert_eq!(raw["sha256"], json!(body.raw_hash));
    }
}
