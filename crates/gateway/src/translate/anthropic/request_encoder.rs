//! Encoder of Messages requests.

use serde_json::{Map, Value, json};

use crate::translate::{
    conversation::{
        AnswerFormat, Conversation, Effort, Image, Message, Part, Signature, Speaker, ToolChoice, ToolResult, join_text,
    },
    fields::TranslationError,
};

/// `max_tokens` for requests without a limit; the Messages API requires one.
const DEFAULT_MAX_TOKENS: u64 = 8_192;
/// The fewest tokens that a model without adaptive reasoning can be given to reason.
const MIN_REASONING_TOKENS: u64 = 1_024;

/// Writes a Messages request. Fails if the conversation has a part that this API cannot hold.
pub(in crate::translate) fn encode(mut conversation: Conversation) -> Result<Value, TranslationError> {
    refuse_unknown(&conversation)?;
    let max_tokens = conversation.max_tokens.unwrap_or(DEFAULT_MAX_TOKENS);
    let mut out = Map::new();
    let system = conversation.take_system(false);
    let (thinking, effort) = encode_reasoning(&conversation, max_tokens);
    let mut set = |name: &str, value: Option<Value>| value.map(|value| out.insert(name.to_owned(), value));
    set("model", Some(conversation.model.into()));
    set("max_tokens", Some(max_tokens.into()));
    set("system", system.map(Value::from));
    let forced = matches!(conversation.tool_choice, Some(ToolChoice::Required | ToolChoice::Tool(_)));
    // The API rejects reasoning together with a forced tool, and sampling together with reasoning.
    let thinking = thinking.filter(|_| !forced);
    let samples = thinking.is_none();
    let messages: Vec<Value> =
        conversation.messages.into_iter().filter_map(|message| encode_message(message, thinking.is_some())).collect();
    set("messages", Some(messages.into()));
    let has_tools = !conversation.tools.is_empty();
    let tools: Vec<Value> = conversation
        .tools
        .into_iter()
        .map(|tool| {
            let mut encoded = json!({"name": tool.name, "input_schema": tool.schema});
            if let Some(description) = tool.description {
                encoded["description"] = description.into();
            }
            encoded
        })
        .collect();
    let choice = encode_tool_choice(conversation.tool_choice, conversation.parallel_tool_calls);
    set("tool_choice", choice.filter(|_| has_tools));
    set("tools", has_tools.then(|| tools.into()));
    set("thinking", thinking);
    let mut output = Map::new();
    output.extend(effort.filter(|_| !forced).map(|effort| ("effort".to_owned(), effort.into())));
    if let Some(AnswerFormat::JsonSchema { schema, .. }) = conversation.format {
        output.insert("format".to_owned(), json!({"type": "json_schema", "schema": schema}));
    }
    set("output_config", (!output.is_empty()).then(|| output.into()));
    // Chat allows temperatures up to 2, Messages up to 1.
    set("temperature", conversation.temperature.filter(|_| samples).map(|temperature| temperature.min(1.0).into()));
    set("top_p", conversation.top_p.filter(|_| samples).map(Value::from));
    set("top_k", conversation.top_k.filter(|_| samples).map(Value::from));
    set("stop_sequences", (!conversation.stop.is_empty()).then(|| conversation.stop.into()));
    set("stream", conversation.stream.then(|| true.into()));
    Ok(Value::Object(out))
}

fn refuse_unknown(conversation: &Conversation) -> Result<(), TranslationError> {
    let refused = [
        ("response_format: json_object", matches!(conversation.format, Some(AnswerFormat::JsonObject))),
        ("seed", conversation.seed.is_some()),
        ("presence_penalty", conversation.presence_penalty.is_some_and(|penalty| penalty != 0.0)),
        ("frequency_penalty", conversation.frequency_penalty.is_some_and(|penalty| penalty != 0.0)),
    ];
    let field = refused.into_iter().find(|(_, refused)| *refused).map(|(field, _)| field.to_owned());
    field.map_or(Ok(()), |field| Err(TranslationError::NoEquivalent { field }))
}

fn encode_message(message: Message, reasons: bool) -> Option<Value> {
    let role = if message.speaker == Speaker::Assistant { "assistant" } else { "user" };
    // Results must come before any other part, and all of them in the message after their calls.
    let (results, others): (Vec<Part>, Vec<Part>) =
        message.parts.into_iter().partition(|part| matches!(part, Part::ToolResult(_)));
    let content: Vec<Value> = results.into_iter().chain(others).filter_map(|part| encode_part(part, reasons)).collect();
    (!content.is_empty()).then(|| json!({"role": role, "content": content}))
}

fn encode_part(part: Part, reasons: bool) -> Option<Value> {
    match part {
        Part::Text(text) => (!text.trim().is_empty()).then(|| json!({"type": "text", "text": text})),
        Part::Image(image) => Some(encode_image(image)),
        // The API accepts only reasoning with its own signature.
        Part::Reasoning { text, signature } => {
            let signature = signature.filter(|_| reasons)?;
            if let Some(data) = Signature::AnthropicRedacted.read(&signature) {
                return Some(json!({"type": "redacted_thinking", "data": data}));
            }
            let signature = Signature::Anthropic.read(&signature)?;
            Some(json!({"type": "thinking", "thinking": text, "signature": signature}))
        }
        Part::ToolCall(call) => {
            let input = call.object_arguments();
            Some(json!({"type": "tool_use", "id": tool_id(&call.id), "name": call.name, "input": input}))
        }
        Part::ToolResult(result) => Some(encode_result(result)),
    }
}

fn encode_result(result: ToolResult) -> Value {
    let has_image = result.content.iter().any(|part| matches!(part, Part::Image(_)));
    let content = if has_image {
        result.content.into_iter().filter_map(|part| encode_part(part, false)).collect()
    } else {
        Value::from(join_text(&result.content, "\n"))
    };
    let mut encoded = json!({"type": "tool_result", "tool_use_id": tool_id(&result.id), "content": content});
    if result.is_error {
        encoded["is_error"] = true.into();
    }
    encoded
}

/// Returns an id with only the characters that this API accepts.
fn tool_id(id: &str) -> String {
    let is_accepted = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    id.chars().map(|c| if is_accepted(c) { c } else { '_' }).collect()
}

fn encode_image(image: Image) -> Value {
    let source = match image {
        Image::Base64 { media_type, data } => json!({"type": "base64", "media_type": media_type, "data": data}),
        Image::Url(url) => json!({"type": "url", "url": url}),
    };
    json!({"type": "image", "source": source})
}

fn encode_tool_choice(choice: Option<ToolChoice>, parallel: Option<bool>) -> Option<Value> {
    let mut out = match choice {
        Some(ToolChoice::Auto) => json!({"type": "auto"}),
        Some(ToolChoice::Required) => json!({"type": "any"}),
        Some(ToolChoice::None) => return Some(json!({"type": "none"})),
        Some(ToolChoice::Tool(name)) => json!({"type": "tool", "name": name}),
        None if parallel == Some(false) => json!({"type": "auto"}),
        None => return None,
    };
    if parallel == Some(false) {
        out["disable_parallel_tool_use"] = true.into();
    }
    Some(out)
}

/// Returns the fields `thinking` and `output_config.effort` for the model.
///
/// Older models take a number of tokens, and reject calls whose reasoning is not repeated before the results.
fn encode_reasoning(conversation: &Conversation, max_tokens: u64) -> (Option<Value>, Option<&'static str>) {
    let Some(effort) = conversation.effort.filter(|effort| *effort != Effort::None) else { return (None, None) };
    match ReasoningKind::of(&conversation.model) {
        ReasoningKind::Absent => (None, None),
        ReasoningKind::Adaptive => {
            let name = match effort {
                Effort::None | Effort::Minimal | Effort::Low => "low",
                Effort::Medium => "medium",
                Effort::High => "high",
                Effort::Highest => "max",
            };
            (Some(json!({"type": "adaptive"})), Some(name))
        }
        ReasoningKind::Budget => {
            let budget = effort.tokens().min(max_tokens / 2);
            let fits = budget >= MIN_REASONING_TOKENS && !has_unsigned_call(conversation);
            (fits.then(|| json!({"type": "enabled", "budget_tokens": budget})), None)
        }
    }
}

/// Returns whether the last answer calls tools and does not start with reasoning that this vendor signed.
fn has_unsigned_call(conversation: &Conversation) -> bool {
    let last = conversation.messages.iter().rfind(|message| message.speaker == Speaker::Assistant);
    last.is_some_and(|message| {
        let is_signed = |part: &Part| {
            matches!(part, Part::Reasoning { signature: Some(signature), .. } if signature.starts_with("anthropic"))
        };
        message.parts.iter().any(|part| matches!(part, Part::ToolCall(_))) && !message.parts.first().is_some_and(is_signed)
    })
}

/// How a model is told to reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReasoningKind {
    Absent,
    Budget,
    Adaptive,
}

impl ReasoningKind {
    fn of(model: &str) -> Self {
        let is = |names: &[&str]| names.iter().any(|name| model.contains(name));
        if !model.contains("claude")
            || is(&["claude-3-5", "claude-3-opus", "claude-3-haiku", "claude-3-sonnet", "claude-2"])
        {
            Self::Absent
        } else if is(&["claude-3-7", "-4-0", "-4-1", "-4-5", "opus-4-2025", "sonnet-4-2025"]) || model.ends_with("-4") {
            Self::Budget
        } else {
            Self::Adaptive
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn models_reason_as_they_can() {
        let check = |model: &str, kind| assert_eq!(ReasoningKind::of(model), kind, "{model}");
        check("claude-3-5-haiku-latest", ReasoningKind::Absent);
        check("claude-sonnet-4-20250514", ReasoningKind::Budget);
        check("claude-haiku-4-5", ReasoningKind::Budget);
        check("claude-opus-4-6", ReasoningKind::Adaptive);
        check("claude-opus-5", ReasoningKind::Adaptive);
        check("some-other-model", ReasoningKind::Absent);
    }
}
