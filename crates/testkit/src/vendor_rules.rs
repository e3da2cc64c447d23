//! The rules by which real vendors accept requests, for stub vendors that are as strict.
//!
//! A rule is here only if a vendor answers 400 to a request that breaks it: unknown fields, missing limits, tool calls
//! without results, signatures that did not come back.

mod gemini;
mod messages;
mod openai;

use serde_json::Value;

/// Returns why the vendor of `path` would reject a request; `Ok` if it would accept it.
pub fn check_vendor_request(path: &str, body: &Value) -> Result<(), String> {
    let path = path.split('?').next().unwrap_or_default();
    if path.ends_with("/messages") {
        messages::check(body)
    } else if path.ends_with("/chat/completions") {
        openai::check_chat(body)
    } else if path.ends_with("/responses") {
        openai::check_responses(body)
    } else if path.contains(":generateContent") || path.contains(":streamGenerateContent") {
        gemini::check(body)
    } else {
        Err(format!("there is no `{path}`"))
    }
}

/// Fails if `value` is not an object with these fields only.
fn check_fields(at: &str, value: &Value, known: &[&str]) -> Result<(), String> {
    let map = value.as_object().ok_or_else(|| format!("{at} is not an object"))?;
    match map.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) => Err(format!("{at}: unknown field `{name}`")),
        None => Ok(()),
    }
}

/// Returns the elements of a list; fails if it is absent or empty.
fn filled<'a>(at: &str, value: &'a Value) -> Result<&'a Vec<Value>, String> {
    value.as_array().filter(|list| !list.is_empty()).ok_or_else(|| format!("{at} is not a list with elements"))
}

/// Fails if the name of a tool has other characters than letters, digits, `_` and `-`, or is longer than `limit`.
fn check_tool_name(name: &Value, limit: usize) -> Result<(), String> {
    let text = name.as_str().unwrap_or_default();
    let is_accepted = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == '-';
    let accepted = !text.is_empty() && text.len() <= limit && text.chars().all(is_accepted);
    accepted.then_some(()).ok_or_else(|| format!("invalid name of a tool: {name}"))
}

/// Fails if two of `names` are equal.
fn check_unique<'a>(names: impl Iterator<Item = &'a Value>) -> Result<(), String> {
    let mut names: Vec<&str> = names.filter_map(Value::as_str).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(format!("`{}` occurs twice", pair[0])),
        None => Ok(()),
    }
}
