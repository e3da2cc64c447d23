//! Translation of chat completions requests to Messages requests.

use serde_json::{Map, Value, json};

use super::chat::{ChatContent, ChatMessage, ChatPart, ChatRequest, ChatStop, ChatTool, ChatToolCall};

/// `max_tokens` for chat requests without a limit; the Messages API requires one.
const DEFAULT_MAX_TOKENS: u64 = 8192;

/// Translates a chat request; fails if the body is not a valid chat request.
pub(super) fn translate_request(body: &[u8]) -> Result<Value, serde_json::Error> {
    let request: ChatRequest = serde_json::from_slice(body)?;
    let mut system = Vec::new();
    let mut messages = Vec::new();
    for message in request.messages {
        add_message(message, &mut system, &mut messages);
    }
    let max_tokens = request.max_completion_tokens.or(request.max_tokens).unwrap_or(DEFAULT_MAX_TOKENS);
    let mut out = Map::new();
    let mut set = |name: &str, value: Option<Value>| value.map(|value| out.insert(name.to_owned(), value));
    set("model", Some(request.model.into()));
    set("max_tokens", Some(max_tokens.into()));
    set("system", (!system.is_empty()).then(|| system.join("\n\n").into()));
    set("messages", Some(messages.into()));
    let tools: Vec<Value> = request.tools.into_iter().filter_map(translate_tool).collect();
    let choice = translate_tool_choice(request.tool_choice.as_ref(), request.parallel_tool_calls);
    set("tool_choice", choice.filter(|_| !tools.is_empty()));
    set("tools", (!tools.is_empty()).then(|| tools.into()));
    // Chat allows temperatures up to 2, Messages up to 1.
    set("temperature", request.temperature.map(|temperature| temperature.min(1.0).into()));
    set("top_p", request.top_p.map(Value::from));
    set(
        "stop_sequences",
        request.stop.map(|stop| match stop {
            ChatStop::One(text) => json!([text]),
            ChatStop::Many(texts) => texts.into(),
        }),
    );
    set("stream", request.stream.filter(|stream| *stream).map(Value::from));
    Ok(Value::Object(out))
}

fn add_message(message: ChatMessage, system: &mut Vec<String>, messages: &mut Vec<Value>) {
    match &*message.role {
        "system" | "developer" => system.extend(message.content.map(ChatContent::into_text)),
        "assistant" => add_blocks(messages, "assistant", translate_assistant(message)),
        "tool" | "function" => {
            let result = json!({
                "type": "tool_result",
                "tool_use_id": message.tool_call_id,
                "content": message.content.map(ChatContent::into_text).unwrap_or_default(),
            });
            add_blocks(messages, "user", vec![result]);
        }
        _ => {
            let parts = message.content.map(ChatContent::into_parts).unwrap_or_default();
            add_blocks(messages, "user", parts.into_iter().filter_map(translate_part).collect());
        }
    }
}

/// Adds blocks to the last message if it has the same role, else a new message.
///
/// Roles must alternate, and all tool results of one answer belong in one message.
fn add_blocks(messages: &mut Vec<Value>, role: &str, mut blocks: Vec<Value>) {
    let last = messages.last_mut().filter(|message| message["role"] == role);
    match last.and_then(|message| message["content"].as_array_mut()) {
        Some(content) => content.append(&mut blocks),
        None if blocks.is_empty() => {}
        None => messages.push(json!({"role": role, "content": blocks})),
    }
}

fn translate_assistant(message: ChatMessage) -> Vec<Value> {
    let text = message.content.map(ChatContent::into_text).or(message.refusal).filter(|text| !text.is_empty());
    let text = text.map(|text| json!({"type": "text", "text": text}));
    text.into_iter().chain(message.tool_calls.into_iter().flatten().map(translate_tool_call)).collect()
}

fn translate_tool_call(call: ChatToolCall) -> Value {
    let (name, arguments) = call.function.map_or((None, None), |called| (called.name, called.arguments));
    let input = arguments.and_then(|arguments| serde_json::from_str::<Map<String, Value>>(&arguments).ok());
    json!({"type": "tool_use", "id": call.id, "name": name, "input": input.unwrap_or_default()})
}

fn translate_part(part: ChatPart) -> Option<Value> {
    match part {
        ChatPart::Text { text } => (!text.is_empty()).then(|| json!({"type": "text", "text": text})),
        ChatPart::ImageUrl { image_url } => Some(json!({"type": "image", "source": image_source(&image_url.url)})),
        ChatPart::Other => None,
    }
}

fn image_source(url: &str) -> Value {
    match url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,")) {
        Some((media_type, data)) => json!({"type": "base64", "media_type": media_type, "data": data}),
        None => json!({"type": "url", "url": url}),
    }
}

fn translate_tool(tool: ChatTool) -> Option<Value> {
    let function = tool.function?;
    let mut out = json!({
        "name": function.name,
        "input_schema": function.parameters.unwrap_or_else(|| json!({"type": "object"})),
    });
    if let Some(description) = function.description {
        out["description"] = description.into();
    }
    Some(out)
}

fn translate_tool_choice(choice: Option<&Value>, parallel: Option<bool>) -> Option<Value> {
    let named = choice.and_then(|choice| choice.pointer("/function/name"));
    let mut out = match (choice.and_then(Value::as_str), named) {
        (_, Some(name)) => json!({"type": "tool", "name": name}),
        (Some("required"), _) => json!({"type": "any"}),
        (Some("none"), _) => return Some(json!({"type": "none"})),
        (Some(_), _) => json!({"type": "auto"}),
        (None, None) if parallel == Some(false) => json!({"type": "auto"}),
        (None, None) => return None,
    };
    if parallel == Some(false) {
        out["disable_parallel_tool_use"] = true.into();
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_conversation_is_translated() {
        let call =
            |id: &str| json!({"id": id, "type": "function", "function": {"name": "run", "arguments": "{\"a\":1}"}});
        let body = json!({
            "model": "m", "stream": true, "stop": "x", "temperature": 1.5, "parallel_tool_calls": false, "tool_choice": "required",
            "tools": [{"type": "function", "function": {"name": "run", "description": "runs", "parameters": {"type": "object"}}}],
            "messages": [
                {"role": "system", "content": "be good"},
                {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}, {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]},
                {"role": "assistant", "content": null, "tool_calls": [call("c1"), call("c2")]},
                {"role": "tool", "tool_call_id": "c1", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": [{"type": "text", "text": "two"}]},
                {"role": "user", "content": "and?"},
            ],
        });
        let used = |id: &str| json!({"type": "tool_use", "id": id, "name": "run", "input": {"a": 1}});
        let result = |id: &str, text: &str| json!({"type": "tool_result", "tool_use_id": id, "content": text});
        let expected = json!({
            "model": "m", "max_tokens": 8192, "stream": true, "stop_sequences": ["x"], "temperature": 1.0, "system": "be good",
            "tools": [{"name": "run", "description": "runs", "input_schema": {"type": "object"}}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
            "messages": [
                {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}, {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}]},
                {"role": "assistant", "content": [used("c1"), used("c2")]},
                {"role": "user", "content": [result("c1", "one"), result("c2", "two"), {"type": "text", "text": "and?"}]},
            ],
        });
        assert_eq!(translate_request(body.to_string().as_bytes()).unwrap(), expected);
    }
}
