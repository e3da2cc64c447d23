//! Tests that translated Anthropic streams are always valid and complete.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::{
    translate::{chat_completions::response_decoder::ChatResponseDecoder, response_writer::ResponseTranslator},
    upstream::UpstreamFailure,
};

fn translator(input_estimate: u64) -> ResponseTranslator {
    let (decoder, encoder) = (ChatResponseDecoder::default(), MessagesStreamEncoder::default());
    ResponseTranslator::new(Box::new(decoder), Box::new(encoder), input_estimate)
}

/// The result of decoding a stream as an Anthropic client does.
#[derive(Debug, Default, PartialEq)]
struct DecodedMessage {
    text: String,
    thinking: String,
    tools: Vec<(String, String, String)>,
    stop_reason: Option<String>,
    usage: Value,
    failed: bool,
}

/// Decodes a stream strictly; panics on any violation of the protocol.
fn decode_stream(stream: &str) -> DecodedMessage {
    let mut decoded = DecodedMessage::default();
    let (mut open, mut next, mut started, mut ended) = (None::<(u64, String)>, 0, false, false);
    for event in stream.split_terminator("\n\n") {
        let (name, data) = event.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        let kind = data["type"].as_str().unwrap();
        assert_eq!(name, format!("event: {kind}"));
        assert!(!ended, "{kind} came after the end");
        assert_eq!(started, kind != "message_start" && (kind != "error" || started), "{kind} came at the wrong time");
        match kind {
            "message_start" => {
                started = true;
                assert!(data["message"]["usage"]["input_tokens"].as_u64().unwrap() > 0);
            }
            "content_block_start" => {
                assert_eq!((open.as_ref(), data["index"].as_u64()), (None, Some(next)));
                let block = &data["content_block"];
                if block["type"] == "tool_use" {
                    let text = |field: &str| block[field].as_str().unwrap().to_owned();
                    decoded.tools.push((text("id"), text("name"), String::new()));
                }
                open = Some((next, block["type"].as_str().unwrap().to_owned()));
                next += 1;
            }
            "content_block_delta" => {
                let (index, block) = open.as_ref().expect("a delta outside of a block");
                assert_eq!(data["index"].as_u64(), Some(*index));
                let delta = &data["delta"];
                let text = |field: &str| delta[field].as_str().unwrap();
                match (block.as_str(), delta["type"].as_str().unwrap()) {
                    ("text", "text_delta") => decoded.text.push_str(text("text")),
                    ("thinking", "thinking_delta") => decoded.thinking.push_str(text("thinking")),
                    ("thinking", "signature_delta") => assert!(!text("signature").is_empty()),
                    ("tool_use", "input_json_delta") => {
                        decoded.tools.last_mut().unwrap().2.push_str(text("partial_json"));
                    }
                    other => panic!("block type and delta type do not match: {other:?}"),
                }
            }
            "content_block_stop" => assert_eq!(open.take().map(|(index, _)| index), data["index"].as_u64()),
            "message_delta" => {
                assert_eq!(open, None);
                decoded.stop_reason = Some(data["delta"]["stop_reason"].as_str().unwrap().to_owned());
                decoded.usage = data["usage"].clone();
            }
            "message_stop" => {
                assert!(decoded.stop_reason.is_some());
                ended = true;
            }
            "error" => {
                decoded.failed = true;
                ended = true;
            }
            other => panic!("unknown event `{other}`"),
        }
    }
    assert!(ended, "the stream has no final event");
    decoded
}

fn translate(chunks: &[Value]) -> Result<String, UpstreamFailure> {
    let (mut stream, mut out) = (translator(12), BytesMut::new());
    for chunk in chunks {
        let data = chunk.as_str().map_or_else(|| chunk.to_string(), str::to_owned);
        stream.translate_event(data.as_bytes(), &mut out)?;
    }
    stream.end(&mut out)?;
    Ok(String::from_utf8(out.to_vec()).unwrap())
}

fn delta(delta: Value) -> Value {
    json!({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn piece(index: u64, name: Option<&str>, arguments: &str) -> Value {
    let id = format!("id{index}");
    delta(json!({"tool_calls": [{"index": index, "id": id, "function": {"name": name, "arguments": arguments}}]}))
}

fn finish(reason: &str) -> Value {
    json!({"id": "c1", "model": "m", "choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})
}

#[test]
fn interleaved_tool_calls_are_written_one_after_the_other() {
    let decoded = decode_stream(
        &translate(&[
            delta(json!({"role": "assistant", "content": ""})),
            delta(json!({"reasoning_content": "hm"})),
            delta(json!({"content": "let me"})),
            piece(0, Some("run"), "{\"comm"),
            piece(1, Some("read"), "{\"pa"),
            piece(0, None, "and\":\"ls\"}"),
            piece(1, None, "th\":\"/x\"}"),
            finish("tool_calls"),
            json!({"choices": [], "usage": {"prompt_tokens": 30, "completion_tokens": 9, "prompt_tokens_details": {"cached_tokens": 20}}}),
            "[DONE]".into(),
        ])
        .unwrap(),
    );
    assert_eq!((decoded.thinking.as_str(), decoded.text.as_str()), ("hm", "let me"));
    assert_eq!(
        decoded.tools,
        [
            ("id0".into(), "run".into(), "{\"command\":\"ls\"}".into()),
            ("id1".into(), "read".into(), "{\"path\":\"/x\"}".into()),
        ]
    );
    assert_eq!(decoded.stop_reason.as_deref(), Some("tool_use"));
    assert_eq!(
        decoded.usage,
        json!({"input_tokens": 10, "output_tokens": 9, "cache_read_input_tokens": 20, "cache_creation_input_tokens": 0})
    );
}

#[test]
fn complete_tool_call_does_not_delay_the_next_one() {
    let (mut stream, mut out) = (translator(1), BytesMut::new());
    for chunk in [piece(0, Some("run"), "{}"), piece(1, Some("read"), "{\"a\"")] {
        stream.translate_event(chunk.to_string().as_bytes(), &mut out).unwrap();
    }
    let text = String::from_utf8(out.to_vec()).unwrap();
    assert!(text.contains("\"name\":\"read\"") && text.contains(r#""partial_json":"{\"a\"""#), "{text}");
}

#[test]
fn usage_is_estimated_if_the_server_sends_none() {
    let decoded = decode_stream(&translate(&[delta(json!({"content": "12345678"})), finish("stop")]).unwrap());
    assert_eq!((&decoded.usage["input_tokens"], &decoded.usage["output_tokens"]), (&json!(12), &json!(2)));
    assert_eq!(decoded.stop_reason.as_deref(), Some("end_turn"));
}

#[test]
fn error_during_the_stream_becomes_the_final_error_event() {
    let decoded = decode_stream(
        &translate(&[
            delta(json!({"content": "a"})),
            json!({"error": {"message": "no"}}),
            delta(json!({"content": "b"})),
        ])
        .unwrap(),
    );
    assert!(decoded.failed);
    assert!(matches!(translate(&[delta(json!({"content": "a"}))]), Err(UpstreamFailure::Cut)));
    assert!(matches!(translate(&["<html>".into()]), Err(UpstreamFailure::InvalidResponse(_))));
}

#[test]
fn complete_response_becomes_a_message() {
    let call = json!({"id": "c", "type": "function", "function": {"name": "run", "arguments": "{\"a\":1}"}});
    let completion = json!({"id": "x", "model": "m", "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        "choices": [{"message": {"role": "assistant", "content": "hi", "reasoning": "hm", "tool_calls": [call]}, "finish_reason": "stop"}]});
    let message = translator(1).translate_document(completion.to_string().as_bytes()).unwrap();
    assert_eq!(
        message["content"],
        json!([
            {"type": "thinking", "thinking": "hm", "signature": SIGNATURE},
            {"type": "text", "text": "hi"},
            {"type": "tool_use", "id": "c", "name": "run", "input": {"a": 1}},
        ])
    );
    assert_eq!((&message["stop_reason"], &message["usage"]["input_tokens"]), (&json!("tool_use"), &json!(3)));
}

#[test]
fn tool_calls_without_numbers_are_distinguished_by_their_ids() {
    let call = |id: Option<&str>, text: &str| {
        delta(json!({"tool_calls": [{"id": id, "function": {"name": "run", "arguments": text}}]}))
    };
    let chunks = [call(Some("a"), "{\"x\":"), call(None, "1}"), call(Some("b"), "{}"), finish("stop")];
    let decoded = decode_stream(&translate(&chunks).unwrap());
    let calls: Vec<(&str, &str)> = decoded.tools.iter().map(|(id, _, text)| (id.as_str(), text.as_str())).collect();
    assert_eq!(calls, [("a", "{\"x\":1}"), ("b", "{}")]);
}

/// Generates one chunk of a random chat stream.
fn any_chunk() -> impl Strategy<Value = Value> {
    prop_oneof![
        "[a-z ]{0,6}".prop_map(|text| delta(json!({"content": text}))),
        "[a-z ]{0,6}".prop_map(|text| delta(json!({"reasoning_content": text}))),
        (0u64..4, any::<bool>(), "[a-z{}\":1]{0,6}").prop_map(|(index, named, text)| piece(
            index,
            named.then_some("run"),
            &text
        )),
        (0u64..4).prop_map(|index| piece(index, Some("run"), "{}")),
        Just(json!({"id": null, "choices": [], "usage": {"prompt_tokens": 5, "completion_tokens": 5}})),
        Just(delta(json!({"content": null, "tool_calls": null}))),
    ]
}

proptest! {
    #[test]
    fn every_translated_stream_is_valid_and_complete(chunks in prop::collection::vec(any_chunk(), 0..30)) {
        let (mut text, mut thinking, mut arguments_by_id) = (String::new(), String::new(), BTreeMap::<String, String>::new());
        for chunk in &chunks {
            let delta = &chunk["choices"][0]["delta"];
            text.push_str(delta["content"].as_str().unwrap_or_default());
            thinking.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
            let call = &delta["tool_calls"][0];
            if let Some(id) = call["id"].as_str() {
                arguments_by_id.entry(id.to_owned()).or_default().push_str(call["function"]["arguments"].as_str().unwrap());
            }
        }
        let all_chunks: Vec<Value> = chunks.into_iter().chain([finish("stop"), "[DONE]".into()]).collect();
        let decoded = decode_stream(&translate(&all_chunks).unwrap());
        prop_assert_eq!(decoded.text, text);
        prop_assert_eq!(decoded.thinking, thinking);
        prop_assert!(decoded.usage["output_tokens"].as_u64().unwrap() > 0);
        prop_assert_eq!(decoded.tools.len(), arguments_by_id.len());
        for (id, _, arguments) in decoded.tools {
            // Only text after a complete JSON object may be dropped.
            let is_complete = serde_json::from_str::<Value>(&arguments).is_ok();
            prop_assert!(arguments_by_id[&id] == arguments || is_complete && arguments_by_id[&id].starts_with(&arguments));
        }
    }

    #[test]
    fn invalid_bytes_never_panic(data in prop::collection::vec(any::<u8>(), 0..100)) {
        let _ = translator(1).translate_event(&data, &mut BytesMut::new());
    }
}
