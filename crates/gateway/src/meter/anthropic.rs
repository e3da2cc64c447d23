//! The usage parser for the Anthropic Messages API.

use std::borrow::Cow;

use memchr::memmem::Finder;
use protocol::Usage;
use serde::Deserialize;

use super::{MeterReading, WordFinder};

/// The start of a content delta. A second `type` behind it would make the event unreadable.
const DELTA_PREFIX: &[u8] = br#"{"type":"content_block_delta","#;
/// Words of which every relevant event contains one.
static RELEVANT: WordFinder<3> = WordFinder::new(|| ["\"usage\"", "\"message_stop\"", "\"error\""].map(Finder::new));

/// A message, an error document, or one event of a stream. Their fields do not collide.
#[derive(Deserialize)]
struct AnthropicDocument<'a> {
    #[serde(rename = "type", borrow)]
    kind: Cow<'a, str>,
    message: Option<MessageHead>,
    delta: Option<MessageDelta>,
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<TokenCounts>,
    error: Option<ErrorDetails>,
}

#[derive(Deserialize, Default)]
struct MessageHead {
    model: Option<String>,
    stop_reason: Option<String>,
    usage: Option<TokenCounts>,
}

#[derive(Deserialize)]
struct MessageDelta {
    stop_reason: Option<String>,
}

#[derive(Deserialize)]
struct ErrorDetails {
    #[serde(rename = "type", default)]
    kind: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct TokenCounts {
    input_tokens: Option<u64>,
    output_tokens: Option<u64>,
    cache_read_input_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_creation: Option<CacheCreation>,
    server_tool_use: Option<ServerToolUse>,
}

#[derive(Deserialize)]
struct ServerToolUse {
    web_search_requests: Option<u64>,
}

#[derive(Deserialize)]
struct CacheCreation {
    ephemeral_5m_input_tokens: Option<u64>,
    ephemeral_1h_input_tokens: Option<u64>,
}

/// Reads one event of a stream.
pub(super) fn read_event(data: &[u8], reading: &mut MeterReading) {
    // Nearly all events of a stream are text deltas, which hold nothing relevant.
    if data.starts_with(DELTA_PREFIX) {
        return;
    }
    if RELEVANT.is_in(data) {
        read(data, reading);
    }
}

/// Reads a complete response.
pub(super) fn read_document(body: &[u8], reading: &mut MeterReading) {
    read(body, reading);
    if reading.complete {
        return;
    }
    if let Ok(counted) = serde_json::from_slice::<CountTokensResponse>(body) {
        reading.complete = counted.input_tokens.is_some();
    }
}

#[derive(Deserialize)]
struct CountTokensResponse {
    input_tokens: Option<u64>,
}

fn read(json: &[u8], reading: &mut MeterReading) {
    let Ok(event) = serde_json::from_slice::<AnthropicDocument<'_>>(json) else { return };
    let head = MessageHead { model: event.model, stop_reason: event.stop_reason, usage: event.usage };
    match &*event.kind {
        "message" => {
            apply_head(head, reading);
            reading.complete = true;
        }
        "message_start" => apply_head(event.message.unwrap_or_default(), reading),
        "message_delta" => {
            apply_head(head, reading);
            if let Some(MessageDelta { stop_reason: Some(reason) }) = event.delta {
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

fn apply_head(head: MessageHead, reading: &mut MeterReading) {
    reading.model = head.model.or(reading.model.take());
    reading.stop_reason = head.stop_reason.or(reading.stop_reason.take());
    if let Some(counts) = head.usage {
        overwrite(&mut reading.usage, &counts);
        let searches = counts.server_tool_use.and_then(|tools| tools.web_search_requests);
        reading.searches = searches.unwrap_or(reading.searches);
    }
}

fn overwrite(usage: &mut Usage, counts: &TokenCounts) {
    let set = |field: &mut u64, count: Option<u64>| *field = count.unwrap_or(*field);
    set(&mut usage.input_tokens, counts.input_tokens);
    set(&mut usage.output_tokens, counts.output_tokens);
    set(&mut usage.cache_read_tokens, counts.cache_read_input_tokens);
    let by_age = counts.cache_creation.as_ref();
    let hour = by_age.and_then(|creation| creation.ephemeral_1h_input_tokens);
    set(&mut usage.cache_write_1h_tokens, hour);
    // The total covers both cache ages. A total without details counts as the five-minute cache.
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
    fn later_counts_replace_earlier_counts() {
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
    fn stream_without_its_last_event_is_incomplete() {
        assert!(!read_all(&[START]).complete);
    }

    #[test]
    fn text_of_the_model_is_not_parsed_as_usage() {
        let reading = read_all(&[
            r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"\"usage\" {\"output_tokens\":9}"}}"#,
        ]);
        assert_eq!(reading, MeterReading::default());
    }

    #[test]
    fn error_event_in_a_stream_is_reported() {
        let reading = read_all(&[r#"{"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#]);
        assert_eq!(reading.error.as_deref(), Some("overloaded_error: Overloaded"));
    }
}
