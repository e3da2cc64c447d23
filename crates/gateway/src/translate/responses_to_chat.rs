//! Translation of `OpenAI` responses requests to chat completions requests.

use serde::Deserialize;
use serde_json::{Map, Value, json};

use super::chat::error_message;

#[derive(Deserialize)]
struct ResponsesRequest {
    model: String,
    instructions: Option<String>,
    input: ResponsesInput,
    #[serde(default)]
    tools: Vec<Value>,
    tool_choice: Option<Value>,
    parallel_tool_calls: Option<bool>,
    max_output_tokens: Option<u64>,
    temperature: Option<f64>,
    top_p: Option<f64>,
    text: Option<Value>,
    #[serde(default)]
    stream: Option<bool>,
    previous_response_id: Option<String>,
}

/// The input: a prompt or a list of items.
#[derive(Deserialize)]
#[serde(untagged)]
enum ResponsesInput {
    Text(String),
    Items(Vec<ResponsesItem>),
}

#[derive(Deserialize)]
struct ResponsesItem {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Value>,
    call_id: Option<String>,
    name: Option<String>,
    arguments: Option<String>,
    input: Option<String>,
    output: Option<Value>,
}

/// Error of translating a responses request.
#[derive(Debug, thiserror::Error)]
pub(super) enum ResponsesError {
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error("`previous_response_id` is `{0}`, but this upstream stores no responses; send the conversation in `input`")]
    StoredResponse(String),
}

/// Returns the chat request and the names of the tools that take free text.
///
/// Fails if the body is invalid or refers to a response stored at the vendor.
pub(super) fn translate_request(body: &[u8]) -> Result<(Value, Vec<String>), ResponsesError> {
    let request: ResponsesRequest = serde_json::from_slice(body)?;
    if let Some(id) = request.previous_response_id {
        return Err(ResponsesError::StoredResponse(id));
    }
    let mut messages: Vec<Value> =
        request.instructions.map(|text| json!({"role": "system", "content": text})).into_iter().collect();
    match request.input {
        ResponsesInput::Text(text) => messages.push(json!({"role": "user", "content": text})),
        ResponsesInput::Items(items) => items.into_iter().for_each(|item| add_item(item, &mut messages)),
    }
    let mut chat = Map::new();
    let mut set = |name: &str, value: Option<Value>| value.map(|value| chat.insert(name.to_owned(), value));
    set("model", Some(request.model.into()));
    set("messages", Some(messages.into()));
    let tools: Vec<Value> = request.tools.iter().filter_map(translate_tool).collect();
    let has_tools = !tools.is_empty();
    set("tools", has_tools.then(|| tools.into()));
    set("tool_choice", request.tool_choice.filter(|_| has_tools).map(translate_tool_choice));
    set("parallel_tool_calls", request.parallel_tool_calls.filter(|_| has_tools).map(Value::from));
    set("max_tokens", request.max_output_tokens.map(Value::from));
    set("temperature", request.temperature.map(Value::from));
    set("top_p", request.top_p.map(Value::from));
    set("response_format", request.text.as_ref().and_then(translate_response_format));
    if request.stream == Some(true) {
        set("stream", Some(true.into()));
        set("stream_options", Some(json!({"include_usage": true})));
    }
    let custom = request.tools.iter().filter(|tool| tool["type"] == "custom");
    let custom = custom.filter_map(|tool| tool["name"].as_str().map(str::to_owned)).collect();
    Ok((Value::Object(chat), custom))
}

fn add_item(item: ResponsesItem, messages: &mut Vec<Value>) {
    match item.kind.as_deref() {
        None | Some("message") => {
            let role = match item.role.as_deref() {
                Some("developer") => "system",
                Some(role) => role,
                None => "user",
            };
            messages.push(json!({"role": role, "content": translate_content(item.content)}));
        }
        Some("function_call") => add_tool_call(item.call_id, item.name, item.arguments.unwrap_or_default(), messages),
        Some("custom_tool_call") => {
            let arguments = json!({"input": item.input.unwrap_or_default()}).to_string();
            add_tool_call(item.call_id, item.name, arguments, messages);
        }
        Some("function_call_output" | "custom_tool_call_output") => {
            let output = translate_content(item.output);
            let output = output.as_str().map_or_else(|| join_text(&output), str::to_owned);
            messages.push(json!({"role": "tool", "tool_call_id": item.call_id, "content": output}));
        }
        // Reasoning items and calls of the vendor's own tools have no equivalent in chat.
        Some(_) => {}
    }
}

/// Adds a tool call; all calls of one answer belong in one message.
fn add_tool_call(id: Option<String>, name: Option<String>, arguments: String, messages: &mut Vec<Value>) {
    let call = json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    match messages.last_mut().filter(|message| message["role"] == "assistant") {
        Some(message) => match message["tool_calls"].as_array_mut() {
            Some(calls) => calls.push(call),
            None => message["tool_calls"] = json!([call]),
        },
        None => messages.push(json!({"role": "assistant", "content": null, "tool_calls": [call]})),
    }
}

/// Returns a string if all parts are text, else a list of parts.
fn translate_content(content: Option<Value>) -> Value {
    let parts = match content {
        Some(Value::Array(parts)) => parts,
        Some(Value::String(text)) => return text.into(),
        Some(other) => return error_message(&other).into(),
        None => return "".into(),
    };
    let parts: Vec<Value> = parts.iter().filter_map(translate_part).collect();
    if parts.iter().all(|part| part["type"] == "text") { join_text(&parts.into()).into() } else { parts.into() }
}

fn translate_part(part: &Value) -> Option<Value> {
    match part["type"].as_str()? {
        "input_text" | "output_text" | "text" | "summary_text" => Some(json!({"type": "text", "text": part["text"]})),
        "input_image" => Some(json!({"type": "image_url", "image_url": {"url": part["image_url"]}})),
        _ => None,
    }
}

fn join_text(parts: &Value) -> String {
    let texts = parts.as_array().into_iter().flatten().filter_map(|part| part["text"].as_str());
    texts.collect::<Vec<_>>().join("\n")
}

/// Returns a tool in chat format; a free-text tool becomes a function with one string field `input`.
fn translate_tool(tool: &Value) -> Option<Value> {
    let parameters = match tool["type"].as_str()? {
        "function" => tool["parameters"].clone(),
        "custom" => json!({"type": "object", "properties": {"input": {"type": "string"}}, "required": ["input"]}),
        _ => return None,
    };
    let function = json!({"name": tool["name"], "description": tool["description"], "parameters": parameters});
    Some(json!({"type": "function", "function": function}))
}

fn translate_tool_choice(choice: Value) -> Value {
    match choice.get("name") {
        Some(name) => json!({"type": "function", "function": {"name": name}}),
        None => choice,
    }
}

fn translate_response_format(text: &Value) -> Option<Value> {
    let format = text.get("format").filter(|format| format["type"] == "json_schema")?;
    let schema = json!({"name": format["name"], "schema": format["schema"], "strict": format["strict"]});
    Some(json!({"type": "json_schema", "json_schema": schema}))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn complete_conversation_is_translated() {
        let body = json!({
            "model": "m", "instructions": "be good", "stream": true, "max_output_tokens": 9, "store": false,
            "tools": [{"type": "function", "name": "run", "description": "runs", "parameters": {"type": "object"}}, {"type": "custom", "name": "patch", "description": "patches"}, {"type": "web_search"}],
            "tool_choice": "auto", "parallel_tool_calls": true,
            "input": [
                {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "note"}]},
                {"role": "user", "content": [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": "data:image/png;base64,AA=="}]},
                {"type": "reasoning", "summary": [], "encrypted_content": "x"},
                {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "ok"}]},
                {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{}"},
                {"type": "custom_tool_call", "call_id": "c2", "name": "patch", "input": "*** x"},
                {"type": "function_call_output", "call_id": "c1", "output": "one"},
                {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
            ],
        });
        let (chat, custom) = translate_request(body.to_string().as_bytes()).unwrap();
        assert_eq!(custom, ["patch"]);
        let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
        assert_eq!(
            chat["messages"],
            json!([
                {"role": "system", "content": "be good"},
                {"role": "system", "content": "note"},
                {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": "data:image/png;base64,AA=="}}]},
                {"role": "assistant", "content": "ok", "tool_calls": [call("c1", "run", "{}"), call("c2", "patch", "{\"input\":\"*** x\"}")]},
                {"role": "tool", "tool_call_id": "c1", "content": "one"},
                {"role": "tool", "tool_call_id": "c2", "content": "two"},
            ])
        );
        assert_eq!(chat["tools"].as_array().unwrap().len(), 2);
        assert_eq!((&chat["max_tokens"], &chat["stream_options"]), (&json!(9), &json!({"include_usage": true})));
    }

    #[test]
    fn request_with_previous_response_id_is_rejected() {
        let body = br#"{"model":"m","input":"hi","previous_response_id":"resp_1"}"#;
        let error = translate_request(body).unwrap_err().to_string();
        assert!(error.contains("`previous_response_id` is `resp_1`"), "{error}");
    }
}
