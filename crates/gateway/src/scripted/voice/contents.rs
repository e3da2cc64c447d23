//! The voice of the Gemini API.

use http::StatusCode;
use protocol::Usage;
use serde_json::{Value, json};

use super::{Out, Voice};
use crate::{
    endpoint::ApiDialect,
    refusal::error_body,
    scripted::{
        document::{Failure, StopReason},
        reply::{Reply, Spoken},
    },
};

pub(super) struct Contents;

impl Voice for Contents {
    fn document(&self, reply: &Reply) -> Value {
        let parts: Vec<Value> = reply.parts.iter().filter_map(part).collect();
        answer(reply, parts, Some(finish_reason(reply)), &reply.usage)
    }

    fn error(&self, failure: &Failure) -> Value {
        let status = StatusCode::from_u16(failure.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        let mut body = error_body(ApiDialect::Gemini, status, &failure.message);
        if let Some(kind) = &failure.kind {
            body["error"]["status"] = kind.clone().into();
        }
        body
    }

    fn begin(&mut self, _reply: &Reply, _out: &mut Out) {}

    fn block(&mut self, spoken: &Spoken, reply: &Reply, out: &mut Out) {
        let so_far = Usage { output_tokens: 0, ..reply.usage };
        match spoken {
            Spoken::Text(text) | Spoken::Thinking(text) => {
                let thought = matches!(spoken, Spoken::Thinking(_));
                out.paced(text, reply, |out, piece| {
                    let part = if thought { json!({"text": piece, "thought": true}) } else { json!({"text": piece}) };
                    out.data(&answer(reply, vec![part], None, &so_far));
                });
            }
            _ => out.data(&answer(reply, part(spoken).into_iter().collect(), None, &so_far)),
        }
    }

    fn fail(&mut self, failure: &Failure, out: &mut Out) {
        out.data(&self.error(failure));
    }

    fn end(&mut self, reply: &Reply, out: &mut Out) {
        out.data(&answer(reply, vec![json!({"text": ""})], Some(finish_reason(reply)), &reply.usage));
    }
}

fn answer(reply: &Reply, parts: Vec<Value>, finish_reason: Option<&str>, usage: &Usage) -> Value {
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

fn part(spoken: &Spoken) -> Option<Value> {
    match spoken {
        Spoken::Text(text) => Some(json!({"text": text})),
        Spoken::Thinking(text) => Some(json!({"text": text, "thought": true})),
        Spoken::Tool { id, name, input } => Some(json!({"functionCall": {"id": id, "name": name, "args": input}})),
        _ => None,
    }
}

fn finish_reason(reply: &Reply) -> &'static str {
    match reply.stop_reason {
        StopReason::EndTurn | StopReason::StopSequence | StopReason::ToolUse => "STOP",
        StopReason::MaxTokens => "MAX_TOKENS",
        StopReason::Refusal => "SAFETY",
    }
}
