//! Usage of the Gemini API.

use memchr::memmem::Finder;
use protocol::Usage;
use serde::Deserialize;

use super::{MeterReading, Words};

/// Fields that are null where they say nothing.
static TOLD: Words<4> =
    Words::new(|| ["\"usageMetadata\"", "\"finishReason\"", "\"blockReason\"", "\"error\""].map(Finder::new));

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Answer {
    #[serde(default)]
    candidates: Vec<Candidate>,
    usage_metadata: Option<Counts>,
    model_version: Option<String>,
    prompt_feedback: Option<Feedback>,
    error: Option<VendorError>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    finish_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Feedback {
    block_reason: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names are the vendor's")]
struct Counts {
    prompt_token_count: Option<u64>,
    cached_content_token_count: Option<u64>,
    candidates_token_count: Option<u64>,
    thoughts_token_count: Option<u64>,
    tool_use_prompt_token_count: Option<u64>,
}

#[derive(Deserialize)]
struct VendorError {
    #[serde(default)]
    message: String,
}

/// Reads one event of a stream.
pub(super) fn read_event(data: &[u8], reading: &mut MeterReading) {
    if TOLD.have_value(data) {
        read(data, reading);
    }
}

/// Reads a whole answer: one document, or a list of them where a stream was asked for without `alt=sse`.
pub(super) fn read_document(body: &[u8], reading: &mut MeterReading) {
    match serde_json::from_slice::<Vec<Answer>>(body) {
        Ok(answers) => answers.into_iter().for_each(|answer| take(answer, reading)),
        Err(_) => read(body, reading),
    }
}

fn read(json: &[u8], reading: &mut MeterReading) {
    if let Ok(answer) = serde_json::from_slice(json) {
        take(answer, reading);
    }
}

fn take(answer: Answer, reading: &mut MeterReading) {
    reading.model = answer.model_version.or(reading.model.take());
    let blocked = answer.prompt_feedback.and_then(|feedback| feedback.block_reason);
    let finished = answer.candidates.into_iter().find_map(|candidate| candidate.finish_reason);
    reading.stop_reason = finished.or(blocked).or(reading.stop_reason.take());
    reading.error = answer.error.map(|error| error.message).or(reading.error.take());
    // There is no last event: the reason is in the last one that says anything.
    reading.complete |= reading.stop_reason.is_some() || reading.error.is_some();
    if let Some(counts) = answer.usage_metadata {
        overwrite(&mut reading.usage, &counts);
    }
}

/// The prompt counts its cached part, and thoughts are counted beside the answer.
fn overwrite(usage: &mut Usage, counts: &Counts) {
    usage.cache_read_tokens = counts.cached_content_token_count.unwrap_or(usage.cache_read_tokens);
    if let Some(prompt) = counts.prompt_token_count {
        let tools = counts.tool_use_prompt_token_count.unwrap_or(0);
        usage.input_tokens = prompt.saturating_sub(usage.cache_read_tokens) + tools;
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
    fn a_stream_tells_totals_in_each_event() {
        let mut reading = MeterReading::default();
        read_event(FIRST.as_bytes(), &mut reading);
        assert!(!reading.complete);
        read_event(LAST.as_bytes(), &mut reading);
        check(&reading);
    }

    #[test]
    fn a_stream_without_events_is_a_list() {
        let mut reading = MeterReading::default();
        read_document(format!("[{FIRST},\n{LAST}]").as_bytes(), &mut reading);
        check(&reading);
    }
}
