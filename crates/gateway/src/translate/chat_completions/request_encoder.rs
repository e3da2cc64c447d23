//! Encoder of chat completions requests.

use serde_json::{Map, Value, json};

use crate::{
    translate::conversation::{
        AnswerFormat, Conversation, Effort, Message, Part, Speaker, Tool, ToolChoice, ToolResult, join_text,
    },
    vendor::VendorKind,
};

/// Writes a chat completions request for a server of `kind`.
pub(in crate::translate) fn encode(mut conversation: Conversation, kind: VendorKind) -> Value {
    let openai = kind == VendorKind::Openai;
    // Some compatible servers accept system messages only at the start.
    let system = conversation.take_system(openai);
    let mut messages: Vec<Value> = system.map(|text| json!({"role": "system", "content": text})).into_iter().collect();
    for message in conversation.messages {
        add_message(message, openai, &mut messages);
    }
    let mut chat = Map::new();
    let mut set = |name: &str, value: Option<Value>| value.map(|value| chat.insert(name.to_owned(), value));
    let effort = conversation.effort.filter(|_| reasons(&conversation.model)).map(effort_name);
    set("model", Some(conversation.model.into()));
    set("messages", Some(messages.into()));
    let has_tools = !conversation.tools.is_empty();
    set("tools", has_tools.then(|| conversation.tools.into_iter().map(encode_tool).collect::<Vec<_>>().into()));
    set("tool_choice", conversation.tool_choice.filter(|_| has_tools).map(encode_tool_choice));
    set("parallel_tool_calls", conversation.parallel_tool_calls.filter(|_| has_tools).map(Value::from));
    // OpenAI rejects `max_tokens` for its newer models; other servers know only `max_tokens`.
    let limit = if openai { "max_completion_tokens" } else { "max_tokens" };
    set(limit, conversation.max_tokens.map(Value::from));
    set("temperature", conversation.temperature.map(Value::from));
    set("top_p", conversation.top_p.map(Value::from));
    // `top_k` only cuts unlikely tokens off, and this API has no such field.
    set("presence_penalty", conversation.presence_penalty.map(Value::from));
    set("frequency_penalty", conversation.frequency_penalty.map(Value::from));
    set("seed", conversation.seed.map(Value::from));
    set("stop", (!conversation.stop.is_empty()).then(|| conversation.stop.into()));
    set("reasoning_effort", effort.map(Value::from));
    set("response_format", conversation.format.map(encode_format));
    if conversation.stream {
        set("stream", Some(true.into()));
        set("stream_options", Some(json!({"include_usage": true})));
    }
    Value::Object(chat)
}

/// Returns whether a model is known to accept an effort. Other models and servers reject the field.
fn reasons(model: &str) -> bool {
    let name = model.rsplit('/').next().unwrap_or(model);
    let is_numbered = |prefix: &str| {
        name.strip_prefix(prefix).and_then(|rest| rest.chars().next()).is_some_and(|c| ('1'..='9').contains(&c))
    };
    name.starts_with("gpt-oss")
        || is_numbered("o")
        || is_numbered("gpt-") && !name.starts_with("gpt-3") && !name.starts_with("gpt-4")
}

fn effort_name(effort: Effort) -> &'static str {
    match effort {
        Effort::None | Effort::Minimal => "minimal",
        Effort::Low => "low",
        Effort::Medium => "medium",
        Effort::High | Effort::Highest => "high",
    }
}

fn add_message(message: Message, openai: bool, messages: &mut Vec<Value>) {
    match message.speaker {
        Speaker::Assistant => messages.push(encode_assistant(message.parts, openai)),
        Speaker::System => {
            messages.push(json!({"role": "system", "content": join_text(&message.parts, "\n\n")}));
        }
        Speaker::User => add_user_message(message.parts, messages),
    }
}

/// Adds a user message. Tool results come first because they must directly follow their calls; images inside them
/// come afterwards.
fn add_user_message(message_parts: Vec<Part>, messages: &mut Vec<Value>) {
    let mut parts = Vec::new();
    for part in message_parts {
        match part {
            Part::ToolResult(ToolResult { id, content, is_error, .. }) => {
                let text = join_text(&content, "\n\n");
                let text = if is_error { format!("Error: {text}") } else { text };
                messages.push(json!({"role": "tool", "tool_call_id": id, "content": text}));
                parts.extend(content.into_iter().filter(|part| matches!(part, Part::Image(_))));
            }
            other => parts.push(other),
        }
    }
    let parts: Vec<Value> = parts.into_iter().filter_map(encode_part).collect();
    match parts.as_slice() {
        [] => {}
        [one] if one["type"] == "text" => messages.push(json!({"role": "user", "content": one["text"]})),
        _ => messages.push(json!({"role": "user", "content": parts})),
    }
}

fn encode_part(part: Part) -> Option<Value> {
    match part {
        Part::Text(text) => Some(json!({"type": "text", "text": text})),
        Part::Image(image) => Some(json!({"type": "image_url", "image_url": {"url": image.to_url()}})),
        Part::Reasoning { .. } | Part::ToolCall(_) | Part::ToolResult(_) => None,
    }
}

fn encode_assistant(parts: Vec<Part>, openai: bool) -> Value {
    let (mut text, mut thoughts, mut calls) = (String::new(), String::new(), Vec::new());
    for part in parts {
        match part {
            Part::Text(more) => text.push_str(&more),
            Part::Reasoning { text: more, .. } => thoughts.push_str(&more),
            Part::ToolCall(call) => {
                let function = json!({"name": call.name, "arguments": call.json_arguments()});
                calls.push(json!({"id": call.id, "type": "function", "function": function}));
            }
            Part::Image(_) | Part::ToolResult(_) => {}
        }
    }
    let content = if text.is_empty() && !calls.is_empty() { Value::Null } else { text.into() };
    let mut message = json!({"role": "assistant", "content": content});
    // Compatible servers expect the reasoning together with the tool calls it led to; OpenAI has no such field.
    if !thoughts.is_empty() && !calls.is_empty() && !openai {
        message["reasoning_content"] = thoughts.into();
    }
    if !calls.is_empty() {
        message["tool_calls"] = calls.into();
    }
    message
}

fn encode_tool(tool: Tool) -> Value {
    let mut function = json!({"name": tool.name, "parameters": tool.schema});
    if let Some(description) = tool.description {
        function["description"] = description.into();
    }
    if let Some(strict) = tool.strict {
        function["strict"] = strict.into();
    }
    json!({"type": "function", "function": function})
}

fn encode_tool_choice(choice: ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => "auto".into(),
        ToolChoice::Required => "required".into(),
        ToolChoice::None => "none".into(),
        ToolChoice::Tool(name) => json!({"type": "function", "function": {"name": name}}),
    }
}

fn encode_format(format: AnswerFormat) -> Value {
    match format {
        AnswerFormat::JsonObject => json!({"type": "json_object"}),
        AnswerFormat::JsonSchema { name, schema, strict } => {
            let mut described = json!({"name": name.as_deref().unwrap_or("answer"), "schema": schema});
            if let Some(strict) = strict {
                described["strict"] = strict.into();
            }
            json!({"type": "json_schema", "json_schema": described})
        }
    }
}
