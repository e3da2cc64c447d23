//! Translation of Messages requests to chat completions requests.

use serde_json::{Map, Value, json};

use super::messages::{
    AnthropicBlock, AnthropicContent, AnthropicImageSource, AnthropicMessage, AnthropicRequest, AnthropicTool,
    AnthropicToolChoice,
};
use crate::vendor::VendorKind;

/// Prefix of a system block that Claude Code sends for billing. The block changes with each call, so it is removed: it
/// would defeat the prompt cache of another vendor.
const BILLING_BLOCK: &str = "x-anthropic-billing-header";

/// Translates a Messages request for a server of `kind`; fails if the body is not a valid Messages request.
pub(super) fn translate_request(body: &[u8], kind: VendorKind) -> Result<Value, serde_json::Error> {
    let request: AnthropicRequest = serde_json::from_slice(body)?;
    let mut chat = Map::new();
    chat.insert("model".to_owned(), request.model.into());
    let system = request.system.map(|system| join_text(system.into_blocks())).filter(|text| !text.is_empty());
    let mut messages: Vec<Value> = system.map(|text| json!({"role": "system", "content": text})).into_iter().collect();
    for message in request.messages {
        add_message(message, kind, &mut messages);
    }
    chat.insert("messages".to_owned(), messages.into());
    let mut set = |name: &str, value: Option<Value>| value.map(|value| chat.insert(name.to_owned(), value));
    let tools: Vec<Value> = request.tools.into_iter().filter_map(translate_tool).collect();
    let has_tools = !tools.is_empty();
    set("tools", has_tools.then(|| tools.into()));
    let choice = request.tool_choice.filter(|_| has_tools);
    set("parallel_tool_calls", choice.as_ref().filter(|choice| choice.disable_parallel_tool_use).map(|_| false.into()));
    set("tool_choice", choice.map(translate_tool_choice));
    // OpenAI rejects `max_tokens` for its newer models; other servers know only `max_tokens`.
    let limit = if kind == VendorKind::Openai { "max_completion_tokens" } else { "max_tokens" };
    set(limit, request.max_tokens.map(Value::from));
    set("temperature", request.temperature.map(Value::from));
    set("top_p", request.top_p.map(Value::from));
    set("stop", (!request.stop_sequences.is_empty()).then(|| request.stop_sequences.into()));
    if request.stream {
        set("stream", Some(true.into()));
        set("stream_options", Some(json!({"include_usage": true})));
    }
    Ok(Value::Object(chat))
}

fn add_message(message: AnthropicMessage, kind: VendorKind, messages: &mut Vec<Value>) {
    let blocks = message.content.into_blocks();
    match &*message.role {
        "assistant" => messages.push(translate_assistant(blocks, kind)),
        "system" => messages.push(json!({"role": "system", "content": join_text(blocks)})),
        _ => add_user_message(blocks, messages),
    }
}

/// Adds a user message. Tool results come first because they must directly follow their calls; images inside them
/// come afterwards.
fn add_user_message(blocks: Vec<AnthropicBlock>, messages: &mut Vec<Value>) {
    let mut parts = Vec::new();
    for block in blocks {
        match block {
            AnthropicBlock::ToolResult { tool_use_id, content, is_error } => {
                let (images, rest): (Vec<AnthropicBlock>, Vec<AnthropicBlock>) = content
                    .map(AnthropicContent::into_blocks)
                    .unwrap_or_default()
                    .into_iter()
                    .partition(|block| matches!(block, AnthropicBlock::Image { .. }));
                let text = join_text(rest);
                let text = if is_error { format!("Error: {text}") } else { text };
                messages.push(json!({"role": "tool", "tool_call_id": tool_use_id, "content": text}));
                parts.extend(images.into_iter().filter_map(translate_block));
            }
            other => parts.extend(translate_block(other)),
        }
    }
    match parts.as_slice() {
        [] => {}
        [one] if one["type"] == "text" => messages.push(json!({"role": "user", "content": one["text"]})),
        _ => messages.push(json!({"role": "user", "content": parts})),
    }
}

fn translate_assistant(blocks: Vec<AnthropicBlock>, kind: VendorKind) -> Value {
    let (mut text, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
    for block in blocks {
        match block {
            AnthropicBlock::Text { text: more } => text.push_str(&more),
            AnthropicBlock::Thinking { thinking } => thoughts.push_str(&thinking),
            AnthropicBlock::ToolUse { id, name, input } => {
                let function = json!({"name": name, "arguments": Value::Object(input).to_string()});
                calls.push(json!({"id": id, "type": "function", "function": function}));
            }
            AnthropicBlock::Image { .. } | AnthropicBlock::ToolResult { .. } | AnthropicBlock::Other => {}
        }
    }
    let mut message = json!({"role": "assistant", "content": if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() }});
    // Compatible servers expect the reasoning together with the tool calls it led to; OpenAI has no such field.
    if !thoughts.is_empty() && !calls.is_empty() && kind == VendorKind::OpenaiCompatible {
        message["reasoning_content"] = thoughts.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

fn translate_block(block: AnthropicBlock) -> Option<Value> {
    match block {
        AnthropicBlock::Text { text } => Some(json!({"type": "text", "text": text})),
        AnthropicBlock::Image { source: AnthropicImageSource::Base64 { media_type, data } } => {
            Some(json!({"type": "image_url", "image_url": {"url": format!("data:{media_type};base64,{data}")}}))
        }
        AnthropicBlock::Image { source: AnthropicImageSource::Url { url } } => {
            Some(json!({"type": "image_url", "image_url": {"url": url}}))
        }
        _ => None,
    }
}

fn join_text(blocks: Vec<AnthropicBlock>) -> String {
    let texts = blocks.into_iter().filter_map(|block| match block {
        AnthropicBlock::Text { text } if !text.starts_with(BILLING_BLOCK) => Some(text),
        _ => None,
    });
    texts.collect::<Vec<_>>().join("\n\n")
}

fn translate_tool(tool: AnthropicTool) -> Option<Value> {
    let mut function = json!({"name": tool.name, "parameters": tool.input_schema?});
    if let Some(description) = tool.description {
        function["description"] = description.into();
    }
    Some(json!({"type": "function", "function": function}))
}

fn translate_tool_choice(choice: AnthropicToolChoice) -> Value {
    match (&*choice.kind, choice.name) {
        ("any", _) => "required".into(),
        ("none", _) => "none".into(),
        ("tool", Some(name)) => json!({"type": "function", "function": {"name": name}}),
        _ => "auto".into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_conversation_is_translated() {
        let body = json!({
            "model": "m", "max_tokens": 9, "stream": true, "stop_sequences": ["x"], "temperature": 0.5,
            "system": [{"type": "text", "text": "x-anthropic-billing-header: a=1"}, {"type": "text", "text": "be good"}],
            "tools": [{"name": "run", "description": "runs", "input_schema": {"type": "object"}}, {"type": "web_search_20250305", "name": "web_search"}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]},
                {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", "signature": "s"}, {"type": "text", "text": "ok"}, {"type": "tool_use", "id": "t1", "name": "run", "input": {"a": 1}}]},
                {"role": "user", "content": [{"type": "text", "text": "and?"}, {"type": "tool_result", "tool_use_id": "t1", "content": "no", "is_error": true}]},
                {"role": "system", "content": "note"},
            ],
        });
        let chat = translate_request(body.to_string().as_bytes(), VendorKind::OpenaiCompatible).unwrap();
        let expected = json!({
            "model": "m", "max_tokens": 9, "stream": true, "stream_options": {"include_usage": true}, "stop": ["x"], "temperature": 0.5,
            "tools": [{"type": "function", "function": {"name": "run", "description": "runs", "parameters": {"type": "object"}}}],
            "tool_choice": "required", "parallel_tool_calls": false,
            "messages": [
                {"role": "system", "content": "be good"},
                {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
                {"role": "assistant", "content": "ok", "reasoning_content": "hm", "tool_calls": [{"id": "t1", "type": "function", "function": {"name": "run", "arguments": "{\"a\":1}"}}]},
                {"role": "tool", "tool_call_id": "t1", "content": "Error: no"},
                {"role": "user", "content": "and?"},
                {"role": "system", "content": "note"},
            ],
        });
        assert_eq!(chat, expected);
    }

    #[test]
    fn each_tool_choice_is_translated() {
        let check = |kind: &str, name: Option<&str>, expected: Value| {
            let choice =
                AnthropicToolChoice { kind: kind.into(), name: name.map(Into::into), disable_parallel_tool_use: false };
            assert_eq!(translate_tool_choice(choice), expected);
        };
        check("auto", None, "auto".into());
        check("any", None, "required".into());
        check("none", None, "none".into());
        check("tool", Some("run"), json!({"type": "function", "function": {"name": "run"}}));
    }
}
