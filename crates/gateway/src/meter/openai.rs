//! The usage parser for the `OpenAI` APIs: chat completions and responses.

use std::borrow::Cow;

use memchr::memmem::Finder;
use protocol::Usage;
use serde::Deserialize;

use super::{MeterReading, WordFinder};

/// Fields of which every relevant event has one that is not null.
static RELEVANT: WordFinder<3> = WordFinder::new(|| ["\"usage\"", "\"finish_reason\"", "\"error\""].map(Finder::new));
/// Words that mark the events of a response and its errors.
static RESPONSE: WordFinder<2> = WordFinder::new(|| ["\"response.", "\"type\":\"error\""].map(Finder::new));
/// The word that marks a delta. Nearly all events are deltas, and they hold nothing relevant.
static DELTA: WordFinder<1> = WordFinder::new(|| [".delta\""].map(Finder::new));

/// A completion, a chunk of a completion, a response, or an event of a response. Their fields do not collide.
#[derive(Deserialize)]
struct OpenaiDocument<'a> {
    #[serde(rename = "type", borrow)]
    kind: Option<Cow<'a, str>>,
    #[serde(borrow)]
    object: Option<Cow<'a, str>>,
    model: Option<String>,
    status: Option<String>,
    #[serde(default)]
    choices: Vec<ChatChoice>,
    response: Option<ResponseObject>,
    incomplete_details: Option<IncompleteDetails>,
    usage: Option<TokenCounts>,
    error: Option<ErrorDetails>,
    message: Option<String>,
    #[serde(borrow)]
    service_tier: Option<Cow<'a, str>>,
    output: Option<Vec<OutputItem>>,
}

#[derive(Deserialize)]
struct ChatChoice {
    finish_reason: Option<String>,
}

/// The response inside an event.
#[derive(Deserialize)]
struct ResponseObject {
    model: Option<String>,
    status: Option<String>,
    incomplete_details: Option<IncompleteDetails>,
    usage: Option<TokenCounts>,
    error: Option<ErrorDetails>,
    service_tier: Option<String>,
    output: Option<Vec<OutputItem>>,
}

/// An item of a response's output.
#[derive(Deserialize)]
struct OutputItem {
    #[serde(rename = "type", default)]
    kind: String,
}

#[derive(Deserialize)]
struct IncompleteDetails {
    reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum ErrorDetails {
    Object { message: Option<String> },
    Text(String),
}

/// Token counts. Each API has its own names, and some servers send both.
#[derive(Deserialize)]
struct TokenCounts {
    input_tokens: Option<u64>,
    prompt_tokens: Option<u64>,
    output_tokens: Option<u64>,
    completion_tokens: Option<u64>,
    input_tokens_details: Option<InputDetails>,
    prompt_tokens_details: Option<InputDetails>,
    prompt_cache_hit_tokens: Option<u64>,
    cache_creation_input_tokens: Option<u64>,
    cache_creation: Option<CacheCreation>,
}

/// Sent by proxies and by the gateway's translation from Anthropic's API.
#[derive(Deserialize)]
struct CacheCreation {
    ephemeral_1h_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct InputDetails {
    cached_tokens: Option<u64>,
}

/// Reads one event of a stream.
pub(super) fn read_event(data: &[u8], reading: &mut MeterReading) {
    if data == b"[DONE]" {
        reading.complete = true;
        return;
    }
    if RELEVANT.have_value(data) || RESPONSE.is_in(data) && !DELTA.is_in(data) {
        read(data, reading);
    }
}

/// Reads a complete response.
pub(super) fn read_document(body: &[u8], reading: &mut MeterReading) {
    read(body, reading);
    let Ok(document) = serde_json::from_slice::<OpenaiDocument<'_>>(body) else { return };
    reading.complete = document.object.is_some() || document.error.is_some();
}

fn read(json: &[u8], reading: &mut MeterReading) {
    let Ok(document) = serde_json::from_slice::<OpenaiDocument<'_>>(json) else { return };
    reading.model = document.model.or(reading.model.take());
    reading.service_tier = document.service_tier.map(Cow::into_owned).or(reading.service_tier.take());
    apply_output(document.output.as_deref(), reading);
    for choice in document.choices {
        reading.stop_reason = choice.finish_reason.or(reading.stop_reason.take());
    }
    if let Some(counts) = &document.usage {
        overwrite(&mut reading.usage, counts);
    }
    apply_error(document.error, reading);
    let kind = document.kind.as_deref().unwrap_or_default();
    if kind == "error" {
        reading.error = document.message.or(reading.error.take());
        reading.complete = true;
    }
    if document.object.as_deref() == Some("response") {
        apply_status(document.status, document.incomplete_details, reading);
    }
    if let Some(response) = document.response {
        reading.model = response.model.or(reading.model.take());
        reading.service_tier = response.service_tier.or(reading.service_tier.take());
        apply_output(response.output.as_deref(), reading);
        if let Some(counts) = &response.usage {
            overwrite(&mut reading.usage, counts);
        }
        apply_error(response.error, reading);
        apply_status(response.status, response.incomplete_details, reading);
        reading.complete |= matches!(kind, "response.completed" | "response.incomplete" | "response.failed");
    }
}

fn apply_output(output: Option<&[OutputItem]>, reading: &mut MeterReading) {
    let searches = output.unwrap_or_default().iter().filter(|item| item.kind == "web_search_call").count();
    reading.searches = reading.searches.max(searches as u64);
}

fn apply_status(status: Option<String>, incomplete: Option<IncompleteDetails>, reading: &mut MeterReading) {
    let reason = incomplete.and_then(|details| details.reason);
    reading.stop_reason = reason.or(status.filter(|status| status != "in_progress")).or(reading.stop_reason.take());
}

fn apply_error(error: Option<ErrorDetails>, reading: &mut MeterReading) {
    let Some(error) = error else { return };
    reading.error = Some(match error {
        ErrorDetails::Object { message } => message.unwrap_or_else(|| "the upstream gave no reason".to_owned()),
        ErrorDetails::Text(message) => message,
    });
}

/// `OpenAI`'s prompt count includes cached tokens; [`Usage`] counts them separately.
fn overwrite(usage: &mut Usage, counts: &TokenCounts) {
    let details = counts.prompt_tokens_details.as_ref().or(counts.input_tokens_details.as_ref());
    let cached = details.and_then(|details| details.cached_tokens).or(counts.prompt_cache_hit_tokens);
    usage.cache_read_tokens = cached.unwrap_or(usage.cache_read_tokens);
    if let Some(written) = counts.cache_creation_input_tokens {
        let hour = counts.cache_creation.as_ref().and_then(|creation| creation.ephemeral_1h_input_tokens).unwrap_or(0);
        usage.cache_write_1h_tokens = hour;
        usage.cache_write_tokens = written.saturating_sub(hour);
    }
    if let Some(input) = counts.prompt_tokens.or(counts.input_tokens) {
        let cached = usage.cache_read_tokens + usage.cache_write_tokens + usage.cache_write_1h_tokens;
        usage.input_tokens = input.saturating_sub(cached);
    }
    usage.output_tokens = counts.completion_tokens.or(counts.output_tokens).unwrap_or(usage.output_tokens);
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

    #[test]
    fn usage_of_a_chat_stream_is_in_its_last_chunk() {
        let reading = read_all(&[
            r#"{"object":"chat.completion.chunk","model":"m","choices":[{"delta":{"content":"a"},"finish_reason":null}],"usage":null}"#,
            r#"{"object":"chat.completion.chunk","model":"m","choices":[{"delta":{},"finish_reason":"stop"}],"usage":null}"#,
            r#"{"model":"m","choices":[],"usage":{"prompt_tokens":30,"completion_tokens":4,"prompt_tokens_details":{"cached_tokens":20}}}"#,
            "[DONE]",
        ]);
        let usage = Usage { input_tokens: 10, output_tokens: 4, cache_read_tokens: 20, ..Usage::default() };
        assert_eq!((reading.usage, reading.complete), (usage, true));
        assert_eq!((reading.model.as_deref(), reading.stop_reason.as_deref()), (Some("m"), Some("stop")));
    }

    #[test]
    fn usage_of_a_response_is_in_its_completed_event() {
        let reading = read_all(&[
            r#"{"type":"response.created","response":{"model":"m","status":"in_progress","usage":null}}"#,
            r#"{"type":"response.output_text.delta","delta":"\"usage\":{\"input_tokens\":9}"}"#,
            r#"{"type":"response.completed","response":{"model":"m","status":"completed","usage":{"input_tokens":8,"input_tokens_details":{"cached_tokens":3},"output_tokens":2}}}"#,
        ]);
        let usage = Usage { input_tokens: 5, output_tokens: 2, cache_read_tokens: 3, ..Usage::default() };
        assert_eq!((reading.usage, reading.complete), (usage, true));
        assert_eq!(reading.stop_reason.as_deref(), Some("completed"));
    }

    #[test]
    fn error_is_read_in_each_format() {
        assert_eq!(read_all(&[r#"{"error":{"message":"no","type":"x"}}"#]).error.as_deref(), Some("no"));
        assert_eq!(read_all(&[r#"{"error":"no"}"#]).error.as_deref(), Some("no"));
        assert_eq!(read_all(&[r#"{"type":"error","message":"no","code":null}"#]).error.as_deref(), Some("no"));
        let failed = r#"{"type":"response.failed","response":{"status":"failed","error":{"code":"x","message":"no"}}}"#;
        assert_eq!(read_all(&[failed]).error.as_deref(), Some("no"));
    }

    #[test]
    fn complete_chat_completion_and_response_are_read() {
        let mut reading = MeterReading::default();
        read_document(br#"{"object":"chat.completion","model":"m","choices":[{"finish_reason":"length","message":{}}],"usage":{"prompt_tokens":1,"completion_tokens":2}}"#, &mut reading);
        assert_eq!(
            (reading.usage.output_tokens, reading.stop_reason.as_deref(), reading.complete),
            (2, Some("length"), true)
        );
        let mut reading = MeterReading::default();
        read_document(br#"{"object":"response","model":"m","status":"incomplete","error":null,"incomplete_details":{"reason":"max_output_tokens"},"usage":{"input_tokens":1,"output_tokens":2}}"#, &mut reading);
        assert_eq!((reading.usage.output_tokens, reading.stop_reason.as_deref()), (2, Some("max_output_tokens")));
    }
}
