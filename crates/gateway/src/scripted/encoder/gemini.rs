//! Encoder for the Gemini API.

use http::StatusCode;
use protocol::Usage;
use serde_json::{Value, json};

use super::{EventWriter, ResponseEncoder};
use crate::{
    endpoint::ApiDialect,
    refusal::error_body,
    scripted::{
        reply::{ReplyPart, ScriptedReply},
        script::{ScriptedError, ScriptedStopReason},
    },
};

pub(super) struct GeminiEncoder;

impl ResponseEncoder for GeminiEncoder {
    fn encode_document(&self, reply: &ScriptedReply) -> Value {
        let parts: Vec<Value> = reply.parts.iter().filter_map(encode_part).collect();
        encode_response(reply, parts, Some(finish_reason(reply)), &reply.usage)
    }

    fn encode_error(&self, failure: &ScriptedError) -> Value {
        let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut body = error_body(ApiDialect::Gemini, status, &failure.message);
        if let Some(kind) = &failure.kind {
            body["error"]["status"] = kind.clone().into();
        }
        body
    }

    fn begin(&mut self, _reply: &ScriptedReply, _out: &mut EventWriter) {}

    fn encode_block(&mut self, reply_part: &ReplyPart, reply: &ScriptedReply, out: &mut EventWriter) {
        let usage_so_far = Usage { output_tokens: 0, ..reply.usage };
        match reply_part {
            ReplyPart::Text(text) | ReplyPart::Thinking(text) => {
                let thought = matches!(reply_part, ReplyPart::Thinking(_));
                out.write_paced(text, reply, |out, piece| {
                    let part = if thought { json!({"text": piece, "thought": true}) } else { json!({"text": piece}) };
                    out.write_event(&encode_response(reply, vec![part], None, &usage_so_far));
                });
            }
            _ => out.write_event(&encode_response(
                reply,
                encode_part(reply_part).into_iter().collect(),
                None,
                &usage_so_far,
            )),
        }
    }

    fn encode_failure(&mut self, failure: &ScriptedError, out: &mut EventWriter) {
        out.write_event(&self.encode_error(failure));
    }

    fn end(&mut self, reply: &ScriptedReply, out: &mut EventWriter) {
        out.write_event(&encode_response(reply, vec![json!({"text": ""})], Some(finish_reason(reply)), &reply.usage));
    }
}

fn encode_response(reply: &ScriptedReply, parts: Vec<Value>, finish_reason: Option<&str>, usage: &Usage) -> Value {
    let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
    if let Some(reason) = finish_reason {
        candidate["finishReason"] = reason.into();
    }
    let prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens + usage.cache_write_1h_tokens;
    json!({
        "candidates": [candidate],
        "usageMetadata": {
            "promptTokenCount": prompt,
            "cachedContentTokenCount": usage.cache_read_tokens,
            "candidatesTokenCount": usage.output_tokens,
            "totalTokenCount": prompt + usage.output_tokens,
        },
        "modelVersion": reply.model,
        "responseId": reply.id,
    })
}

fn encode_part(reply_part: &ReplyPart) -> Option<Value> {
    match reply_part {
        ReplyPart::Text(text) => Some(json!({"text": text})),
        ReplyPart::Thinking(text) => Some(json!({"text": text, "thought": true})),
        ReplyPart::Tool { id, name, input } => Some(json!({"functionCall": {"id": id, "name": name, "args": input}})),
        _ => None,
    }
}

fn finish_reason(reply: &ScriptedReply) -> &'static str {
    match reply.stop_reason {
        ScriptedStopReason::EndTurn | ScriptedStopReason::StopSequence | ScriptedStopReason::ToolUse => "STOP",
        ScriptedStopReason::MaxTokens => "MAX_TOKENS",
        ScriptedStopReason::Refusal => "SAFETY",
    }
}
