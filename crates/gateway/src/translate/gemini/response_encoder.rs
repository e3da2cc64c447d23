//! Encoder for responses of the Gemini API.
//!
//! A call is written when it is complete: this API has no pieces of calls.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use bytes::BytesMut;
use serde_json::{Map, Value, json};
use uuid::Uuid;

use crate::{
    endpoint::ApiDialect,
    refusal::error_body,
    translate::stream_encoder::{BlockStart, FinishReason, StreamEncoder, TokenCounts},
};

/// Writes a response as a Gemini response.
#[derive(Default)]
pub(in crate::translate) struct GeminiStreamEncoder {
    id: String,
    model: String,
    /// All parts so far, for the document.
    parts: Vec<Value>,
    open: Option<(BlockStart, String)>,
    /// Signed reasoning of another vendor, which belongs to the next call.
    signed: Option<String>,
    document: Value,
}

impl GeminiStreamEncoder {
    fn write_part(&self, part: &Value, out: &mut BytesMut) {
        let content = json!({"role": "model", "parts": [part]});
        let event = self.response(&json!([{"content": content, "index": 0}]));
        out.extend_from_slice(format!("data: {event}\n\n").as_bytes());
    }

    fn response(&self, candidates: &Value) -> Value {
        json!({"candidates": candidates, "modelVersion": self.model, "responseId": self.id})
    }
}

impl StreamEncoder for GeminiStreamEncoder {
    fn begin(&mut self, id: Option<&str>, model: &str, _input_estimate: u64, _out: &mut BytesMut) {
        self.id = id.map_or_else(|| Uuid::now_v7().simple().to_string(), str::to_owned);
        model.clone_into(&mut self.model);
    }

    fn open_block(&mut self, _index: usize, start: BlockStart, _out: &mut BytesMut) {
        self.open = Some((start, String::new()));
    }

    fn extend_block(&mut self, _index: usize, text: &str, out: &mut BytesMut) {
        let Some((start, so_far)) = &mut self.open else { return };
        so_far.push_str(text);
        let part = match start {
            BlockStart::Text => json!({"text": text}),
            BlockStart::Thinking => json!({"text": text, "thought": true}),
            BlockStart::Tool { .. } => return,
        };
        self.write_part(&part, out);
    }

    fn close_block(&mut self, _index: usize, signature: Option<&str>, out: &mut BytesMut) {
        let Some((start, text)) = self.open.take() else { return };
        match start {
            BlockStart::Text if text.is_empty() => {}
            BlockStart::Text => self.parts.push(json!({"text": text})),
            BlockStart::Thinking => {
                self.signed = signature.map(|signature| pack_reasoning(&text, signature)).or(self.signed.take());
                if !text.is_empty() {
                    self.parts.push(json!({"text": text, "thought": true}));
                }
            }
            BlockStart::Tool { id, name } => {
                let parsed: Option<Map<String, Value>> = serde_json::from_str(&text).ok();
                let args = parsed.unwrap_or_else(|| match text.trim() {
                    "" => Map::new(),
                    _ => Map::from_iter([("input".to_owned(), text.clone().into())]),
                });
                let mut part = json!({"functionCall": {"id": id, "name": name, "args": args}});
                if let Some(signed) = self.signed.take() {
                    part["thoughtSignature"] = signed.into();
                }
                self.write_part(&part, out);
                self.parts.push(part);
            }
        }
    }

    fn end(&mut self, reason: FinishReason, tokens: TokenCounts, out: &mut BytesMut) {
        let reason = match reason {
            FinishReason::EndTurn | FinishReason::ToolCalls => "STOP",
            FinishReason::MaxTokens => "MAX_TOKENS",
            FinishReason::Refusal => "SAFETY",
        };
        let last = json!([{"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": reason, "index": 0}]);
        let mut event = self.response(&last);
        event["usageMetadata"] = encode_usage(tokens);
        out.extend_from_slice(format!("data: {event}\n\n").as_bytes());
        let content = json!({"role": "model", "parts": std::mem::take(&mut self.parts)});
        self.document = self.response(&json!([{"content": content, "finishReason": reason, "index": 0}]));
        self.document["usageMetadata"] = encode_usage(tokens);
    }

    fn fail(&mut self, message: &str, out: &mut BytesMut) {
        self.document = error_body(ApiDialect::Gemini, http::StatusCode::BAD_GATEWAY, message);
        out.extend_from_slice(format!("data: {}\n\n", self.document).as_bytes());
    }

    fn take_document(&mut self) -> Value {
        self.document.take()
    }
}

/// Returns reasoning and its signature as one signature of this API, which is Base64.
fn pack_reasoning(text: &str, signature: &str) -> String {
    STANDARD.encode(json!([text, signature]).to_string())
}

/// Returns the reasoning and the signature that [`pack_reasoning`] packed; `None` for any other signature.
pub(super) fn unpack_reasoning(signature: &str) -> Option<(String, String)> {
    // Some clients write Base64 in the alphabet for URLs.
    let standard: String = signature
        .chars()
        .map(|c| {
            if c == '-' {
                '+'
            } else if c == '_' {
                '/'
            } else {
                c
            }
        })
        .collect();
    let [text, signature]: [String; 2] = serde_json::from_slice(&STANDARD.decode(standard).ok()?).ok()?;
    Some((text, signature))
}

fn encode_usage(tokens: TokenCounts) -> Value {
    let shown = tokens.output.saturating_sub(tokens.reasoning);
    let mut usage = json!({
        "promptTokenCount": tokens.prompt(), "cachedContentTokenCount": tokens.cached,
        "candidatesTokenCount": shown, "thoughtsTokenCount": tokens.reasoning,
        "totalTokenCount": tokens.prompt() + tokens.output,
    });
    tokens.add_cache_writes(&mut usage);
    usage
}
