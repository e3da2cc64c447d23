//! Decoder of Gemini responses, complete or streamed.

use bytes::BytesMut;
use serde::Deserialize;
use serde_json::{Map, Value};

use crate::{
    translate::{
        block_sequencer::ToolCallDelta,
        conversation::Signature,
        response_writer::{ResponseDecoder, ResponseWriter, error_message},
        stream_encoder::{FinishReason, TokenCounts},
    },
    upstream::UpstreamFailure,
};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiResponse {
    #[serde(default)]
    candidates: Vec<Candidate>,
    usage_metadata: Option<GeminiUsage>,
    model_version: Option<String>,
    response_id: Option<String>,
    prompt_feedback: Option<Value>,
    error: Option<Value>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate {
    content: Option<CandidateContent>,
    finish_reason: Option<String>,
    finish_message: Option<String>,
}

#[derive(Deserialize)]
struct CandidateContent {
    #[serde(default)]
    parts: Vec<CandidatePart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct CandidatePart {
    text: Option<String>,
    #[serde(default)]
    thought: bool,
    thought_signature: Option<String>,
    function_call: Option<FunctionCall>,
}

#[derive(Deserialize)]
struct FunctionCall {
    id: Option<String>,
    name: String,
    #[serde(default)]
    args: Map<String, Value>,
}

#[derive(Deserialize, Clone, Copy)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_field_names, reason = "the names are the vendor's")]
struct GeminiUsage {
    #[serde(default)]
    prompt_token_count: u64,
    #[serde(default)]
    cached_content_token_count: u64,
    #[serde(default)]
    candidates_token_count: u64,
    #[serde(default)]
    thoughts_token_count: u64,
    #[serde(default)]
    tool_use_prompt_token_count: u64,
}

/// Reads one Gemini response.
#[derive(Default)]
pub(in crate::translate) struct GeminiResponseDecoder {
    usage: Option<GeminiUsage>,
    finish_reason: Option<FinishReason>,
    calls: u64,
    response_id: String,
}

impl GeminiResponseDecoder {
    fn read(&mut self, response: GeminiResponse, writer: &mut ResponseWriter, out: &mut BytesMut) {
        if let Some(error) = &response.error {
            return writer.fail(&error_message(error), out);
        }
        if let Some(id) = &response.response_id {
            self.response_id.clone_from(id);
        }
        writer.begin(response.response_id.as_deref(), response.model_version.as_deref(), out);
        self.usage = response.usage_metadata.or(self.usage);
        if response.prompt_feedback.is_some_and(|feedback| feedback.get("blockReason").is_some()) {
            self.finish_reason = Some(FinishReason::Refusal);
        }
        let Some(candidate) = response.candidates.into_iter().next() else { return };
        for part in candidate.content.map(|content| content.parts).unwrap_or_default() {
            self.push_part(part, writer);
        }
        match candidate.finish_reason.as_deref() {
            None | Some("FINISH_REASON_UNSPECIFIED") => {}
            Some("STOP") => self.finish_reason = Some(FinishReason::EndTurn),
            Some("MAX_TOKENS") => self.finish_reason = Some(FinishReason::MaxTokens),
            Some("SAFETY" | "RECITATION" | "LANGUAGE" | "BLOCKLIST" | "PROHIBITED_CONTENT" | "SPII") => {
                self.finish_reason = Some(FinishReason::Refusal);
            }
            // Such as a call that the model wrote wrongly: the answer is of no use.
            Some(other) => {
                let message = candidate.finish_message.unwrap_or_default();
                writer.fail(format!("the model stopped: {other} {message}").trim_end(), out);
            }
        }
    }

    fn push_part(&mut self, part: CandidatePart, writer: &mut ResponseWriter) {
        if let Some(signature) = part.thought_signature {
            writer.push_signature(Signature::Gemini.write(&signature));
        }
        match part.text.filter(|text| !text.is_empty()) {
            Some(text) if part.thought => writer.push_thinking(&text),
            Some(text) => writer.push_text(&text),
            None => {}
        }
        if let Some(FunctionCall { id, name, args }) = part.function_call {
            let call = self.calls;
            self.calls += 1;
            // The ids must differ within a conversation, not only within a response.
            let id = id.unwrap_or_else(|| format!("call_{}_{call}", self.response_id));
            let arguments = Value::Object(args).to_string();
            let (id, name) = (Some(id.as_str()), Some(name.as_str()));
            writer.push_tool_call(&ToolCallDelta { call: Some(call), id, name, arguments: &arguments });
        }
    }

    fn finish(&mut self, writer: &mut ResponseWriter, out: &mut BytesMut) {
        let tokens = self.usage.map(|usage| TokenCounts {
            input: usage.prompt_token_count.saturating_sub(usage.cached_content_token_count)
                + usage.tool_use_prompt_token_count,
            cached: usage.cached_content_token_count,
            output: usage.candidates_token_count + usage.thoughts_token_count,
            reasoning: usage.thoughts_token_count,
            ..TokenCounts::default()
        });
        writer.finish(self.finish_reason.unwrap_or(FinishReason::EndTurn), tokens, out);
    }
}

fn parse(json: &[u8]) -> Result<GeminiResponse, UpstreamFailure> {
    serde_json::from_slice(json).map_err(|error| UpstreamFailure::InvalidResponse(error.to_string()))
}

impl ResponseDecoder for GeminiResponseDecoder {
    fn read_event(
        &mut self,
        data: &[u8],
        writer: &mut ResponseWriter,
        out: &mut BytesMut,
    ) -> Result<(), UpstreamFailure> {
        self.read(parse(data)?, writer, out);
        writer.flush(out)
    }

    fn read_document(
        &mut self,
        body: &[u8],
        writer: &mut ResponseWriter,
        out: &mut BytesMut,
    ) -> Result<(), UpstreamFailure> {
        self.read(parse(body)?, writer, out);
        self.finish(writer, out);
        Ok(())
    }

    fn end(&mut self, writer: &mut ResponseWriter, out: &mut BytesMut) -> Result<(), UpstreamFailure> {
        // There is no last event: the finish reason marks the end.
        if self.finish_reason.is_none() {
            return Err(UpstreamFailure::Cut);
        }
        self.finish(writer, out);
        Ok(())
    }
}
