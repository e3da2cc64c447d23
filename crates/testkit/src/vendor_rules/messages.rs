//! Rules of the Anthropic Messages API.

use serde_json::Value;

use super::{check_fields, check_tool_name, check_unique, filled};

const FIELDS: [&str; 16] = [
    "cache_control",
    "context_management",
    "max_tokens",
    "messages",
    "metadata",
    "model",
    "output_config",
    "stop_sequences",
    "stream",
    "system",
    "temperature",
    "thinking",
    "tool_choice",
    "tools",
    "top_k",
    "top_p",
];

pub(super) fn check(body: &Value) -> Result<(), String> {
    check_fields("the request", body, &FIELDS)?;
    body["model"].as_str().ok_or("model: it is required")?;
    let limit = body["max_tokens"].as_u64().filter(|limit| *limit > 0).ok_or("max_tokens: it is required")?;
    if let Some(budget) = body["thinking"]["budget_tokens"].as_u64()
        && !(1_024..limit).contains(&budget)
    {
        return Err("thinking.budget_tokens: it must be at least 1024 and less than max_tokens".to_owned());
    }
    if body["temperature"].as_f64().is_some_and(|temperature| !(0.0..=1.0).contains(&temperature)) {
        return Err("temperature: it must be from 0 to 1".to_owned());
    }
    let tools = body["tools"].as_array().map(Vec::as_slice).unwrap_or_default();
    for tool in tools.iter().filter(|tool| tool["type"].as_str().is_none_or(|kind| kind == "custom")) {
        check_tool_name(&tool["name"], 128)?;
        if tool["input_schema"]["type"] != "object" {
            return Err(format!("tools: the schema of {} has no type `object`", tool["name"]));
        }
    }
    check_unique(tools.iter().map(|tool| &tool["name"]))?;
    if !body["tool_choice"].is_null() && tools.is_empty() {
        return Err("tool_choice: there are no tools".to_owned());
    }
    check_messages(filled("messages", &body["messages"])?)
}

fn check_messages(messages: &[Value]) -> Result<(), String> {
    if messages[0]["role"] != "user" {
        return Err("messages.0: the first message must be of the user".to_owned());
    }
    let mut calls: Vec<&str> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        check_fields(&format!("messages.{index}"), message, &["role", "content", "output_config"])?;
        let text = message["content"].as_str();
        let blocks = message["content"].as_array().map(Vec::as_slice).unwrap_or_default();
        if blocks.is_empty() && text.is_none_or(str::is_empty) {
            return Err(format!("messages.{index}: its content is empty"));
        }
        // Claude Code sends system messages in between, with a beta header; they do not separate calls from results.
        if message["role"] == "system" {
            continue;
        }
        let results: Vec<&str> = blocks.iter().filter_map(|block| block["tool_use_id"].as_str()).collect();
        if let Some(call) = calls.iter().find(|call| !results.contains(call)) {
            return Err(format!("messages.{index}: `tool_use` {call} has no `tool_result` in the next message"));
        }
        if let Some(result) = results.iter().find(|result| !calls.contains(result)) {
            return Err(format!("messages.{index}: `tool_result` {result} has no `tool_use` in the message before"));
        }
        let is_result = |block: &Value| block["type"] == "tool_result";
        if blocks.iter().skip_while(|block| is_result(block)).any(is_result) {
            return Err(format!("messages.{index}: a `tool_result` follows other content"));
        }
        for block in blocks {
            check_block(block, &message["role"]).map_err(|error| format!("messages.{index}: {error}"))?;
        }
        calls = blocks
            .iter()
            .filter(|block| block["type"] == "tool_use")
            .filter_map(|block| block["id"].as_str())
            .collect();
        check_unique(blocks.iter().map(|block| &block["id"]))?;
    }
    match calls.first() {
        Some(call) => Err(format!("`tool_use` {call} has no `tool_result`")),
        None => Ok(()),
    }
}

fn check_block(block: &Value, role: &Value) -> Result<(), String> {
    let by_model = role == "assistant";
    match block["type"].as_str().unwrap_or_default() {
        "text" if block["text"].as_str().is_none_or(|text| text.trim().is_empty()) => Err("a text is empty".to_owned()),
        "text" => Ok(()),
        "thinking" if by_model => {
            // The vendor's own signature, as the stub writes it.
            let is_signed = block["signature"].as_str().is_some_and(|signature| !signature.contains('.'));
            is_signed.then_some(()).ok_or_else(|| "invalid `signature` in a `thinking` block".to_owned())
        }
        "redacted_thinking" if by_model => Ok(()),
        "tool_use" if by_model => {
            check_tool_name(&block["name"], 128)?;
            check_tool_name(&block["id"], 512)?;
            block["input"].as_object().map(|_| ()).ok_or_else(|| "input: it is not an object".to_owned())
        }
        "tool_result" if !by_model => Ok(()),
        "image" if !by_model => check_fields("source", &block["source"], &["type", "media_type", "data", "url"]),
        other => Err(format!("a block `{other}` is not accepted here")),
    }
}
