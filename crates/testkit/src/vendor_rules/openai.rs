//! Rules of the chat completions and responses APIs of `OpenAI`.

use serde_json::Value;

use super::{check_fields, check_tool_name, check_unique, filled};

const CHAT_FIELDS: [&str; 26] = [
    "frequency_penalty",
    "max_completion_tokens",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "n",
    "parallel_tool_calls",
    "presence_penalty",
    "prompt_cache_key",
    "prompt_cache_retention",
    "reasoning_effort",
    "response_format",
    "safety_identifier",
    "seed",
    "service_tier",
    "stop",
    "store",
    "stream",
    "stream_options",
    "temperature",
    "tool_choice",
    "tools",
    "top_p",
    "user",
    "verbosity",
];

pub(super) fn check_chat(body: &Value) -> Result<(), String> {
    check_fields("the request", body, &CHAT_FIELDS)?;
    body["model"].as_str().ok_or("model: it is required")?;
    if !body["stream_options"].is_null() && body["stream"] != true {
        return Err("stream_options: only with `stream`".to_owned());
    }
    let tools = body["tools"].as_array();
    if tools.is_some_and(Vec::is_empty) {
        return Err("tools: the list is empty".to_owned());
    }
    for tool in tools.into_iter().flatten() {
        check_fields("tools", tool, &["type", "function"])?;
        check_fields("tools.function", &tool["function"], &["name", "description", "parameters", "strict"])?;
        check_tool_name(&tool["function"]["name"], 64)?;
    }
    check_unique(tools.into_iter().flatten().map(|tool| &tool["function"]["name"]))?;
    if tools.is_none() && !(body["tool_choice"].is_null() && body["parallel_tool_calls"].is_null()) {
        return Err("tool_choice: only with `tools`".to_owned());
    }
    check_chat_messages(filled("messages", &body["messages"])?)
}

fn check_chat_messages(messages: &[Value]) -> Result<(), String> {
    let mut open: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let role = message["role"].as_str().unwrap_or_default();
        if role == "tool" {
            let id = message["tool_call_id"].as_str().unwrap_or_default();
            let at = open.iter().position(|call| *call == id);
            let at = at.ok_or_else(|| format!("messages[{index}]: no call `{id}` precedes this result"))?;
            open.remove(at);
        } else if let Some(call) = open.first() {
            return Err(format!("messages[{index}]: the call `{call}` has no result"));
        }
        match role {
            "system" | "developer" | "user" | "tool" => check_content(&message["content"])?,
            "assistant" => {
                let calls = message["tool_calls"].as_array().map(Vec::as_slice).unwrap_or_default();
                if message["content"].is_null() && calls.is_empty() {
                    return Err(format!("messages[{index}]: neither content nor tool calls"));
                }
                for call in calls {
                    check_tool_name(&call["function"]["name"], 64)?;
                    call["function"]["arguments"].as_str().ok_or("arguments: it is not a text")?;
                    open.push(call["id"].as_str().filter(|id| !id.is_empty()).ok_or("tool_calls: an id is missing")?);
                }
            }
            other => return Err(format!("messages[{index}]: unknown role `{other}`")),
        }
    }
    open.first().map_or(Ok(()), |call| Err(format!("the call `{call}` has no result")))
}

fn check_content(content: &Value) -> Result<(), String> {
    let parts = match content {
        Value::String(_) => return Ok(()),
        Value::Array(parts) if !parts.is_empty() => parts,
        _ => return Err("content: it is neither a text nor a list of parts".to_owned()),
    };
    let is_known =
        |part: &&Value| ["text", "image_url", "refusal"].contains(&part["type"].as_str().unwrap_or_default());
    parts.iter().find(|part| !is_known(part)).map_or(Ok(()), |part| Err(format!("content: unknown part {part}")))
}

/// Checks only the pairs of calls and results: no request is translated into this API.
pub(super) fn check_responses(body: &Value) -> Result<(), String> {
    body["model"].as_str().ok_or("model: it is required")?;
    let items = body["input"].as_array().map(Vec::as_slice).unwrap_or_default();
    let ids = |ends: &'static str, is_output: bool| {
        let kinds = items.iter().filter(move |item| {
            let kind = item["type"].as_str().unwrap_or_default();
            kind.ends_with(ends) && kind.ends_with("_output") == is_output
        });
        kinds.filter_map(|item| item["call_id"].as_str()).collect::<Vec<_>>()
    };
    let (calls, outputs) = (ids("_call", false), ids("_call_output", true));
    match (calls.iter().find(|call| !outputs.contains(call)), outputs.iter().find(|output| !calls.contains(output))) {
        (Some(call), _) => Err(format!("no tool output found for function call {call}")),
        (None, Some(output)) => Err(format!("no tool call found for function call output {output}")),
        (None, None) => Ok(()),
    }
}
