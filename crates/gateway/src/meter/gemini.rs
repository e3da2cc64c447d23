//! The usage parser for the Gemini API.

use memchr::memmem::Finder;
use protocol::Usage;
use serde::Deserialize;

use super::{MeterReading, WordFinder};

/// Fields of which every relevant event has one that is not null.
static RELEVANT: WordFinder<5> = WordFinder::new(|| {
    ["\"usageMetadata\"", "\"finishReason\"", "\"blockReason\"", "\"error\"", "\"webSearchQueries\""].map(Finder::new)
});

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiResponse {
    #[serde(default)]
    candidates: Vec<Candidate>,
    usage_metadata: Option<TokenCounts>,
    model_version: Option<String>,
    prompt_feedback: Option<PromptFeedback>,
    error: Option<ErrorDetails>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    finish_reason: Option<String>,
    grounding_metadata: Option<GroundingMetadata>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GroundingMetadata {
    #[serde(default)]
    web_search_queries: Vec<serde::de::IgnoredAny>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct PromptFeedback {
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct TokenCounts {
    prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
    /// Sent by the gateway's translation from Anthropic's API, as the next field.
    #[serde(rename = "cache_creation_input_tokens")]
    cache_creation: Option<u64>,
    #[serde(rename = "cache_creation")]
    cache_lifetimes: Option<CacheLifetimes>,
}

#[derive(Deserialize)]
struct CacheLifetimes {
    ephemeral_1h_input_tokens: Option<u64>,
}

#[derive(Deserialize)]
struct ErrorDetails {
    #[serde(default)]
    message: String,
}

/// Reads one event of a stream.
pub(super) fn read_event(data: &[u8], reading: &mut MeterReading) {
    if RELEVANT.have_value(data) {
        read(data, reading);
    }
}

/// Reads a complete response: one document, or a list of documents for a stream without `alt=sse`.
pub(super) fn read_document(body: &[u8], reading: &mut MeterReading) {
    match serde_json::from_slice::<Vec<GeminiResponse>>(body) {
        Ok(responses) => responses.into_iter().for_each(|response| apply(response, reading)),
        Err(_) => read(body, reading),
    }
}

fn read(json: &[u8], reading: &mut MeterReading) {
    if let Ok(response) = serde_json::from_slice(json) {
        apply(response, reading);
    }
}

fn apply(response: GeminiResponse, reading: &mut MeterReading) {
    reading.model = response.model_version.or(reading.model.take());
    let blocked = response.prompt_feedback.and_then(|feedback| feedback.block_reason);
    let grounding = response.candidates.iter().filter_map(|candidate| candidate.grounding_metadata.as_ref());
    let searches: usize = grounding.map(|metadata| metadata.web_search_queries.len().max(1)).sum();
    reading.searches = reading.searches.max(searches as u64);
    let finished = response.candidates.into_iter().find_map(|candidate| candidate.finish_reason);
    reading.stop_reason = finished.or(blocked).or(reading.stop_reason.take());
    reading.error = response.error.map(|error| error.message).or(reading.error.take());
    // Gemini has no final event: the stop reason is in the last event with content.
    reading.complete |= reading.stop_reason.is_some() || reading.error.is_some();
    if let Some(counts) = response.usage_metadata {
        overwrite(&mut reading.usage, &counts);
    }
}

/// Gemini's prompt count includes cached tokens, and its response count excludes thoughts.
fn overwrite(usage: &mut Usage, counts: &TokenCounts) {
    usage.cache_read_tokens = counts.cached_content_token_count.unwrap_or(usage.cache_read_tokens);
    let written = counts.cache_creation.unwrap_or(0);
    if written > 0 {
        let hour = counts.cache_lifetimes.as_ref().and_then(|by_lifetime| by_lifetime.ephemeral_1h_input_tokens);
        usage.cache_write_1h_tokens = hour.unwrap_or(0).min(written);
        usage.cache_write_tokens = written - usage.cache_write_1h_tokens;
    }
    if let Some(prompt) = counts.prompt_token_count {
        let tools = counts.tool_use_prompt_token_count.unwrap_or(0);
        usage.input_tokens = prompt.saturating_sub(usage.cache_read_tokens).saturating_sub(written) + tools;
    }
    if counts.candidates_token_count.is_some() || counts.thoughts_token_count.is_some() {
        usage.output_tokens = counts.candidates_token_count.unwrap_or(0) + counts.thoughts_token_count.unwrap_or(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIRST: &str = r#"{"candidates":[{"content":{"parts":[{"text":"a"}]}}],"usageMetadata":{"promptTokenCount":30,"cachedContentTokenCount":20,"thoughtsTokenCount":2}}"#;
    const LAST: &str = r#"{"candidates":[{"finishReason":"STOP"}],"modelVersion":"g","usageMetadata":{"promptTokenCount":30,"cachedContentTokenCount":20,"candidatesTokenCount":5,"thoughtsTokenCount":2}}"#;

    #[track_caller]
    fn check(reading: &MeterReading) {
        let usage = Usage { input_tokens: 10, output_tokens: 7, cache_read_tokens: 20, ..Usage::default() };
        assert_eq!((reading.usage, reading.complete), (usage, true));
        assert_eq!((reading.model.as_deref(), reading.stop_reason.as_deref()), (Some("g"), Some("STOP")));
    }

    #[test]
    fn later_totals_of_a_stream_replace_earlier_ones() {
        let mut reading = MeterReading::default();
        read_event(FIRST.as_bytes(), &mut reading);
        assert!(!reading.complete);
        read_event(LAST.as_bytes(), &mut reading);
        check(&reading);
    }

    #[test]
    fn stream_without_events_is_read_as_a_list() {
        let mut reading = MeterReading::default();
        read_document(format!("[{FIRST},\n{LAST}]").as_bytes(), &mut reading);
        check(&reading);
    }
}
