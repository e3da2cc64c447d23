//! What must hold for any bytes at all: the readers and translators, as fuzzers and their short run in the tests call
//! them. A broken rule panics.
//!
//! An input is bytes; where a target needs a request and an answer, a zero byte stands between them.

use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, stream};
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use protocol::{CallId, SessionId};
use serde_json::Value;

use crate::{
    ask::Ask,
    conceal::UsageFilter,
    endpoint::{ApiDialect, ModelEndpoint},
    meter::{Meter, SseReader},
    translate::Translation,
    upstream::{UpstreamRequest, UpstreamResponse},
    vendor::VendorKind,
};

/// A rule, and the name of the fuzz target that tries it.
pub type Target = (&'static str, fn(&[u8]));

/// Every target.
pub const TARGETS: [Target; 6] = [
    ("sse", sse),
    ("usage", usage),
    ("request", request),
    ("messages_to_chat", messages_to_chat),
    ("chat_to_messages", chat_to_messages),
    ("responses_to_chat", responses_to_chat),
];

/// Events are the same however the bytes are cut.
pub fn sse(data: &[u8]) {
    let read = |size: usize| {
        let mut events: Vec<Vec<u8>> = Vec::new();
        let mut reader = SseReader::new(1 << 20);
        let mut keep = |data: &[u8]| events.push(data.to_vec());
        let whole = data.chunks(size).all(|chunk| reader.push(chunk, &mut keep).is_ok());
        reader.finish(&mut keep);
        whole.then_some(events)
    };
    let size = usize::from(data.first().copied().unwrap_or_default() % 7) + 1;
    assert_eq!(read(size), read(data.len().max(1)), "cuts make no difference");
    let mut filter = UsageFilter::default();
    let shown: usize = data.chunks(size).filter_map(|chunk| filter.pass(chunk)).map(|bytes| bytes.len()).sum();
    assert!(shown + filter.finish().map_or(0, |rest| rest.len()) <= data.len(), "a filter only takes away");
}

/// Usage is read off any answer, and the same however the bytes are cut.
pub fn usage(data: &[u8]) {
    for dialect in [ApiDialect::Anthropic, ApiDialect::Openai, ApiDialect::Gemini] {
        for is_stream in [false, true] {
            let read = |size: usize| {
                let mut meter = Meter::new(dialect, is_stream);
                data.chunks(size).all(|chunk| meter.pass(chunk).is_ok()).then(|| meter.finish(data))
            };
            assert_eq!(read(3), read(data.len().max(1)), "cuts make no difference");
        }
    }
}

/// What a request asks for is read, or it is refused.
pub fn request(data: &[u8]) {
    for endpoint in [ModelEndpoint::Messages, ModelEndpoint::ChatCompletions, ModelEndpoint::Responses] {
        let _ = Ask::read(endpoint, "/v1/messages", data);
    }
    let body = Bytes::copy_from_slice(data);
    if let Ok(Some(asking)) = crate::splice::ask_for_usage(&body)
        && serde_json::from_slice::<Value>(&body).is_ok_and(|value| value.as_object().is_some_and(|it| !it.is_empty()))
    {
        assert!(serde_json::from_slice::<Value>(&asking).is_ok(), "a wish more is still JSON");
    }
}

/// A Messages client before a chat upstream gets a valid stream, or an error.
pub fn messages_to_chat(data: &[u8]) {
    if let Some(text) = translate(ModelEndpoint::Messages, VendorKind::OpenaiCompatible, data) {
        check_blocks(&text);
    }
}

/// A chat client before an Anthropic upstream gets events of JSON, or an error.
pub fn chat_to_messages(data: &[u8]) {
    if let Some(text) = translate(ModelEndpoint::ChatCompletions, VendorKind::Anthropic, data) {
        events(&text);
    }
}

/// A responses client before a chat upstream gets events of JSON, or an error.
pub fn responses_to_chat(data: &[u8]) {
    if let Some(text) = translate(ModelEndpoint::Responses, VendorKind::OpenaiCompatible, data) {
        events(&text);
    }
}

/// What a client gets as a stream; none: an error instead.
fn translate(endpoint: ModelEndpoint, kind: VendorKind, data: &[u8]) -> Option<Vec<u8>> {
    let (asked, answer) = match data.iter().position(|byte| *byte == 0) {
        Some(at) => (&data[..at], &data[at + 1..]),
        None => (data, &[][..]),
    };
    let mut request = upstream_request(endpoint, asked)?;
    let asked = Translation::between(endpoint, kind)?.translate_request(kind, &mut request).ok()?;
    // Once as a document, for what it may do wrong; once as a stream, to be looked at.
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
        // Nothing in it waits, so it is ready at once.
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
        path_and_query: "/".to_owned(),
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
    })
}

/// The events of a stream of ours, each of which is JSON.
fn events(text: &[u8]) -> Vec<Value> {
    let mut events = Vec::new();
    let mut reader = SseReader::new(64 << 20);
    let mut read = |data: &[u8]| {
        if data != b"[DONE]" {
            let event = serde_json::from_slice(data);
            assert!(event.is_ok(), "an event of ours is JSON: {}", String::from_utf8_lossy(data));
            events.extend(event.ok());
        }
    };
    assert!(reader.push(text, &mut read).is_ok(), "an event of ours is not too long");
    reader.finish(&mut read);
    events
}

/// Blocks are numbered from 0 without gaps, and one is open at a time.
fn check_blocks(text: &[u8]) {
    let (mut next, mut open) = (0, None);
    for event in events(text) {
        let index = event["index"].as_u64();
        match event["type"].as_str().unwrap_or_default() {
            "content_block_start" => {
                assert!(open.is_none() && index == Some(next), "a block begins when the one before is whole");
                (open, next) = (index, next + 1);
            }
            "content_block_delta" => assert!(open.is_some() && open == index, "only the open block grows"),
            "content_block_stop" => assert_eq!(open.take(), index, "the open block ends"),
            "message_stop" => assert!(open.is_none(), "every block is whole at the end"),
            _ => {}
        }
    }
}

#[cfg(test)]
#[path = "../../../tests/mutation.rs"]
mod mutation;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_holds_for_the_corpus_and_what_is_like_it() {
        for (name, target) in TARGETS {
            mutation::check(name, target);
        }
    }
}
