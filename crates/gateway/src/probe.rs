//! Fuzz targets for the parsers and translators. Each checks rules that hold for arbitrary bytes.
//!
//! A broken rule panics. The fuzzers call the targets, and the tests run each briefly. If a target needs a request and a
//! response, a zero byte separates them in the input.

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use protocol::{CallId, SessionId};
use serde_json::Value;

use crate::{
    call::SendProgress,
    endpoint::{ApiDialect, ModelEndpoint},
    meter::{SseReader, UsageMeter},
    request_fields::RequestFields,
    translate::Translation,
    upstream::{UpstreamRequest, UpstreamResponse},
    usage_filter::UsageFilter,
    vendor::VendorKind,
};

/// The name of a fuzz target and its function.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 7] = [
    ("sse", sse),
    ("usage", usage),
    ("request", request),
    ("messages_to_chat", messages_to_chat),
    ("chat_to_messages", chat_to_messages),
    ("responses_to_chat", responses_to_chat),
    ("gemini_to_others", gemini_to_others),
];

/// Checks that frame boundaries do not change the events.
pub fn sse(data: &[u8]) {
    let read = |size: usize| {
        let mut events: Vec<Vec<u8>> = Vec::new();
        let mut reader = SseReader::new(1 << 20);
        let mut keep = |data: &[u8]| events.push(data.to_vec());
        let valid = data.chunks(size).all(|chunk| reader.push(chunk, &mut keep).is_ok());
        reader.finish(&mut keep);
        valid.then_some(events)
    };
    let size = usize::from(data.first().copied().unwrap_or_default() % 7) + 1;
    assert_eq!(read(size), read(data.len().max(1)), "frame boundaries make no difference");
    let mut filter = UsageFilter::default();
    let visible: usize = data.chunks(size).filter_map(|chunk| filter.push(chunk)).map(|bytes| bytes.len()).sum();
    assert!(visible + filter.finish().map_or(0, |rest| rest.len()) <= data.len(), "a filter only removes bytes");
}

/// Checks that frame boundaries do not change the reading of the meter.
pub fn usage(data: &[u8]) {
    for dialect in [ApiDialect::Anthropic, ApiDialect::Openai, ApiDialect::Gemini] {
        for is_stream in [false, true] {
            let read = |size: usize| {
                let mut meter = UsageMeter::new(dialect, is_stream);
                data.chunks(size).all(|chunk| meter.push(chunk).is_ok()).then(|| meter.finish(data))
            };
            assert_eq!(read(3), read(data.len().max(1)), "frame boundaries make no difference");
        }
    }
}

/// Checks that reading a request does not panic, and that setting `include_usage` keeps it valid JSON.
pub fn request(data: &[u8]) {
    for endpoint in [ModelEndpoint::Messages, ModelEndpoint::ChatCompletions, ModelEndpoint::Responses] {
        let _ = RequestFields::read(endpoint, "/v1/messages", data);
    }
    let body = Bytes::copy_from_slice(data);
    if let Ok(Some(changed)) = crate::splice::ask_for_usage(&body)
        && serde_json::from_slice::<Value>(&body).is_ok_and(|value| value.as_object().is_some_and(|it| !it.is_empty()))
    {
        assert!(serde_json::from_slice::<Value>(&changed).is_ok(), "the changed body is JSON");
    }
}

/// Checks that a Messages client of a chat or Gemini upstream gets a valid stream, or an error.
pub fn messages_to_chat(data: &[u8]) {
    for kind in [VendorKind::OpenaiCompatible, VendorKind::Gemini] {
        if let Some(text) = translate(ModelEndpoint::Messages, kind, data) {
            check_blocks(&text);
        }
    }
}

/// Checks that a chat client of an Anthropic or Gemini upstream gets JSON events, or an error.
pub fn chat_to_messages(data: &[u8]) {
    check_events(ModelEndpoint::ChatCompletions, &[VendorKind::Anthropic, VendorKind::Gemini], data);
}

/// Checks that a Responses client of any other upstream gets JSON events, or an error.
pub fn responses_to_chat(data: &[u8]) {
    let kinds = [VendorKind::OpenaiCompatible, VendorKind::Anthropic, VendorKind::Gemini];
    check_events(ModelEndpoint::Responses, &kinds, data);
}

/// Checks that a Gemini client of any other upstream gets JSON events, or an error.
pub fn gemini_to_others(data: &[u8]) {
    let kinds = [VendorKind::OpenaiCompatible, VendorKind::Anthropic];
    check_events(ModelEndpoint::StreamGenerateContent, &kinds, data);
}

fn check_events(endpoint: ModelEndpoint, kinds: &[VendorKind], data: &[u8]) {
    for kind in kinds {
        if let Some(text) = translate(endpoint, *kind, data) {
            events(&text);
        }
    }
}

/// Returns the translated stream; `None` if the translation fails.
fn translate(endpoint: ModelEndpoint, kind: VendorKind, data: &[u8]) -> Option<Vec<u8>> {
    let (asked, answer) = match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let mut request = upstream_request(endpoint, asked)?;
    let asked = Translation::between(endpoint, kind)?.translate_request(kind, &mut request).ok()?;
    // Translated as a document only to see that it does not panic, and as a stream for its bytes.
    for is_stream in [false, true] {
        let mut headers = HeaderMap::new();
        let content = if is_stream { "text/event-stream" } else { "application/json" };
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(content));
        let pieces: Vec<_> = answer.chunks(11).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
        let answer = UpstreamResponse {
            status: StatusCode::OK,
            headers,
            frames: Box::pin(stream::iter(pieces)),
            hide_usage: false,
        };
        // The frames are all there, so the future is ready at once.
        let translated = asked.clone().translate_response(answer).now_or_never()?;
        if let (Ok(translated), true) = (translated, is_stream) {
            let frames = translated.frames.collect::<Vec<_>>().now_or_never()?;
            let whole = frames.into_iter().collect::<Result<Vec<Bytes>, _>>().ok()?;
            return Some(whole.concat());
        }
    }
    None
}

fn upstream_request(endpoint: ModelEndpoint, body: &[u8]) -> Option<UpstreamRequest> {
    Some(UpstreamRequest {
        endpoint,
        method: Method::POST,
        path_and_query: "/?alt=sse".to_owned(),
        headers: HeaderMap::new(),
        body: Bytes::copy_from_slice(body),
        model: "m".to_owned(),
        stream: true,
        call: CallId::new("call_1").ok()?,
        session: SessionId::new("s").ok()?,
        account: "a".into(),
        run: "r".into(),
        attempt: 1,
        user: None,
        progress: SendProgress::default(),
    })
}

/// Returns the events of a stream that the gateway made, and checks that each is JSON.
fn events(text: &[u8]) -> Vec<Value> {
    let mut events = Vec::new();
    let mut reader = SseReader::new(64 << 20);
    let mut read = |data: &[u8]| {
        if data != b"[DONE]" {
            let event = serde_json::from_slice(data);
            assert!(event.is_ok(), "the event is not JSON: {}", String::from_utf8_lossy(data));
            events.extend(event.ok());
        }
    };
    assert!(reader.push(text, &mut read).is_ok(), "the event is too long");
    reader.finish(&mut read);
    events
}

/// Checks that content blocks are numbered from 0 without gaps, and that only one is open at a time.
fn check_blocks(text: &[u8]) {
    let (mut next, mut open) = (0, None);
    for event in events(text) {
        let index = event["index"].as_u64();
        match event["type"].as_str().unwrap_or_default() {
            "content_block_start" => {
                assert!(open.is_none() && index == Some(next), "a block starts before the previous one ended");
                (open, next) = (index, next + 1);
            }
            "content_block_delta" => assert!(open.is_some() && open == index, "a delta for a block that is not open"),
            "content_block_stop" => assert_eq!(open.take(), index, "another block than the open one ended"),
            "message_stop" => assert!(open.is_none(), "a block is open at the end"),
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_holds_for_the_corpus_and_its_mutations() {
        for (name, target) in TARGETS {
            testkit::try_mutations(name, target);
        }
    }
}
