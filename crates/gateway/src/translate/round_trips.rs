//! Property tests: a conversation survives each API, and each request is one that the vendor accepts.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::{
    anthropic, chat_completions,
    conversation::{Conversation, Image, Part, Speaker, Tool, ToolCall, ToolResult},
    gemini,
};
use crate::vendor::VendorKind;

fn any_text() -> impl Strategy<Value = String> {
    "[a-z<>\"\\\\ä]{1,8}"
}

/// A prompt, whether it has a picture, the answer, and its calls: their text, and whether they fail.
type Exchange = (String, bool, String, Vec<(String, bool)>);

/// Generates one prompt, and perhaps calls with their results.
fn any_exchange() -> impl Strategy<Value = Exchange> {
    (any_text(), any::<bool>(), any_text(), prop::collection::vec((any_text(), any::<bool>()), 0..3))
}

fn conversation(exchanges: Vec<Exchange>) -> Conversation {
    let schema = json!({"type": "object", "properties": {"a": {"type": "string"}}});
    let tool = Tool { name: "run".to_owned(), description: Some("runs".to_owned()), schema, strict: None, alias: None };
    let mut conversation = Conversation {
        model: "m".to_owned(),
        max_tokens: Some(9),
        temperature: Some(0.5),
        stream: true,
        wants_usage: true,
        tools: vec![tool],
        ..Conversation::default()
    };
    conversation.add(Speaker::System, vec![Part::Text("be good".to_owned())]);
    for (turn, (prompt, picture, answer, calls)) in exchanges.into_iter().enumerate() {
        let image = Image::Base64 { media_type: "image/png".to_owned(), data: "AA==".to_owned() };
        let image = picture.then_some(Part::Image(image));
        conversation.add(Speaker::User, [Part::Text(prompt)].into_iter().chain(image).collect());
        let mut parts = vec![Part::Text(answer)];
        let mut results = Vec::new();
        for (index, (text, is_error)) in calls.into_iter().enumerate() {
            let (id, name) = (format!("call_{turn}_{index}"), "run".to_owned());
            let arguments = json!({"a": text}).to_string();
            parts.push(Part::ToolCall(ToolCall { id: id.clone(), name, arguments, custom: false, signature: None }));
            results.push(Part::ToolResult(ToolResult { id, name: None, content: vec![Part::Text(text)], is_error }));
        }
        conversation.add(Speaker::Assistant, parts);
        conversation.add(Speaker::User, results);
    }
    conversation.add(Speaker::User, vec![Part::Text("and now?".to_owned())]);
    conversation
}

/// Returns the messages as one list of parts, without what some APIs do not repeat.
fn normalized(conversation: Conversation, has_errors: bool) -> Vec<(Speaker, Part)> {
    let parts = conversation.messages.into_iter().flat_map(|message| {
        let speaker = message.speaker;
        message.parts.into_iter().map(move |part| (speaker, part))
    });
    let simplify = |(speaker, part)| match part {
        Part::ToolResult(ToolResult { id, content, is_error, .. }) => {
            let error = if has_errors { is_error } else { false };
            (speaker, Part::ToolResult(ToolResult { id, name: None, content, is_error: error }))
        }
        other => (speaker, other),
    };
    parts.map(simplify).collect()
}

#[track_caller]
fn check(given: &Conversation, path: &str, encoded: &Value, decoded: Conversation, has_errors: bool) {
    assert_eq!(testkit::check_vendor_request(path, encoded), Ok(()), "{encoded}");
    assert_eq!((&decoded.tools, decoded.max_tokens), (&given.tools, given.max_tokens));
    assert_eq!((decoded.temperature, decoded.stream), (given.temperature, given.stream));
    let mut expected = normalized(given.clone(), has_errors);
    if !has_errors {
        // Chat has no field for errors, so they are marked in the text.
        for (result, (_, part)) in given.messages.iter().flat_map(|message| &message.parts).zip(&mut expected) {
            if let (Part::ToolResult(ToolResult { is_error: true, .. }), Part::ToolResult(result)) = (result, part)
                && let [Part::Text(text)] = &mut result.content[..]
            {
                *text = format!("Error: {text}");
            }
        }
    }
    assert_eq!(normalized(decoded, has_errors), expected, "{encoded}");
}

proptest! {
    #[test]
    fn conversation_survives_every_api(exchanges in prop::collection::vec(any_exchange(), 1..4)) {
        let given = conversation(exchanges);

        let encoded = anthropic::request_encoder::encode(given.clone()).unwrap();
        let decoded = anthropic::request_decoder::decode(encoded.to_string().as_bytes()).unwrap();
        check(&given, "/v1/messages", &encoded, decoded, true);

        let encoded = chat_completions::request_encoder::encode(given.clone(), VendorKind::OpenaiCompatible);
        let decoded = chat_completions::request_decoder::decode(encoded.to_string().as_bytes()).unwrap();
        check(&given, "/v1/chat/completions", &encoded, decoded, false);

        let encoded = gemini::request_encoder::encode(given.clone()).unwrap();
        let decoded = gemini::request_decoder::decode(encoded.to_string().as_bytes(), "m", true).unwrap();
        check(&given, "/v1beta/models/m:generateContent", &encoded, decoded, true);
    }

    #[test]
    fn arbitrary_requests_never_panic(body in "\\PC{0,60}") {
        let _ = anthropic::request_decoder::decode(body.as_bytes());
        let _ = chat_completions::request_decoder::decode(body.as_bytes());
        let _ = super::responses::request_decoder::decode(body.as_bytes());
        let _ = gemini::request_decoder::decode(body.as_bytes(), "m", true);
    }
}
