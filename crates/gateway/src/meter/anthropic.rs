//! Usage of the Anthropic Messages API.

use std::borrow::Cow;

use memchr::memmem::Finder;
use protocol::Usage;
use serde::Deserialize;

use super::{MeterReading, Words};

/// How a piece of content begins; a second `type` after it would make the event one that nobody can read.
const DELTA: &[u8] = br#"{"type":"content_block_delta","#;
/// What is in every event of interest.
static TOLD: Words<3> = Words::new(|| ["\"usage\"", "\"message_stop\"", "\"error\""].map(Finder::new));

/// A whole message, an error document, or one event of a stream: the fields do not collide.
#[derive(Deserialize)]
struct Event<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    message: Option<Head>,
    delta: Option<Delta>,
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<Counts>,
    error: Option<VendorError>,
}

#[derive(Deserialize, Default)]
struct Head {
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<Counts>,
}

#[derive(Deserialize)]
struct Delta {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct VendorError {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Counts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_creation: Option<CacheCreation>,
}

#[derive(Deserialize)]
struct CacheCreation {
    ephemeral_5m_input_tokens: Option<u64>,
    ephemeral_1h_input_tokens: Option<u64>,
}

/// Reads one event of a stream.
pub(super) fn read_event(data: &[u8], reading: &mut MeterReading) {
    // Deltas of text are nearly all of a stream and carry nothing of interest.
    if data.starts_with(DELTA) {
        return;
    }
    if TOLD.are_in(data) {
        read(data, reading);
    }
}

/// Reads a whole answer.
pub(super) fn read_document(body: &[u8], reading: &mut MeterReading) {
    read(body, reading);
    if reading.complete {
        return;
    }
    if let Ok(counted) = serde_json::from_slice::<TokenCount>(body) {
        reading.complete = counted.input_tokens.is_some();
    }
}

#[derive(Deserialize)]
struct TokenCount {
    input_tokens: Option<u64>,
}

fn read(json: &[u8], reading: &mut MeterReading) {
    let Ok(event) = serde_json::from_slice::<Event<'_>>(json) else { return };
    let head = Head { model: event.model, stop_reason: event.stop_reason, usage: event.usage };
    match &*event.kind {
        "message" => {
            take_head(head, reading);
            reading.complete = true;
        }
        "message_start" => take_head(event.message.unwrap_or_default(), reading),
        "message_delta" => {
            take_head(head, reading);
            if let Some(Delta { stop_reason: Some(reason) }) = event.delta {
                reading.stop_reason = Some(reason);
            }
        }
        "message_stop" => reading.complete = true,
        "error" => {
            reading.error = event.error.map(|error| format!("{}: {}", error.kind, error.message));
            reading.complete = true;
        }
        _ => {}
    }
}

fn take_head(head: Head, reading: &mut MeterReading) {
    reading.model = head.model.or(reading.model.take());
    reading.stop_reason = head.stop_reason.or(reading.stop_reason.take());
    if let Some(counts) = head.usage {
        overwrite(&mut reading.usage, &counts);
    }
}

fn overwrite(usage: &mut Usage, counts: &Counts) {
    let set = |field: &mut u64, count: Option<u64>| *field = count.unwrap_or(*field);
    set(&mut usage.input_tokens, counts.input_tokens);
    set(&mut usage.output_tokens, counts.output_tokens);
    set(&mut usage.cache_read_tokens, counts.cache_read_input_tokens);
    let by_age = counts.cache_creation.as_ref();
    let hour = by_age.and_then(|creation| creation.ephemeral_1h_input_tokens);
    set(&mut usage.cache_write_1h_tokens, hour);
    // The total counts both ages; where only the total is told, all of it is the five-minute cache.
    let five_minutes = by_age.and_then(|creation| creation.ephemeral_5m_input_tokens);
    let rest = counts.cache_creation_input_tokens.map(|total| total.saturating_sub(usage.cache_write_1h_tokens));
    set(&mut usage.cache_write_tokens, five_minutes.or(rest));
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_all(events: &[&str]) -> MeterReading {
        let mut reading = MeterReading::default();
        for event in events {
            read_event(event.as_bytes(), &mut reading);
        }
        reading
    }

    const START: &str = r#"{"type":"message_start","message":{"model":"m-1","usage":{"input_tokens":9,"output_tokens":1,
        "cache_creation_input_tokens":50,"cache_creation":{"ephemeral_5m_input_tokens":20,"ephemeral_1h_input_tokens":30}}}}"#;

    #[test]
    fn counts_of_a_stream_are_totals_and_never_added() {
        let reading = read_all(&[
            START,
            r#"{"type":"message_delta","delta":{"stop_reason":null},"usage":{"output_tokens":40}}"#,
            r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"input_tokens":9,"output_tokens":42,"cache_read_input_tokens":7,"cache_creation_input_tokens":50}}"#,
            r#"{"type":"message_stop"}"#,
        ]);
        let usage = Usage {
            input_tokens: 9,
            output_tokens: 42,
            cache_read_tokens: 7,
            cache_write_tokens: 20,
            cache_write_1h_tokens: 30,
        };
        assert_eq!(reading.usage, usage);
        assert_eq!((reading.model.as_deref(), reading.stop_reason.as_deref()), (Some("m-1"), Some("end_turn")));
        assert!(reading.complete);
    }

    #[test]
    fn a_stream_without_its_last_event_is_not_complete() {
        assert!(!read_all(&[START]).complete);
    }

    #[test]
    fn words_in_the_text_of_the_model_are_not_counts() {
        let reading = read_all(&[
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\"usage\" {\"output_tokens\":9}"}}"#,
        ]);
        assert_eq!(reading, MeterReading::default());
    }

    #[test]
    fn an_error_in_mid_stream_is_told() {
        let reading = read_all(&[r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#]);
        assert_eq!(reading.error.as_deref(), Some("overloaded_error: Overloaded"));
    }
}
