//! Rules of the Gemini API.

use serde_json::Value;

use super::{check_fields, check_tool_name, check_unique, filled};

const FIELDS: [&str; 8] = [
    "cachedContent",
    "contents",
    "generationConfig",
    "labels",
    "safetySettings",
    "systemInstruction",
    "toolConfig",
    "tools",
];
const GENERATION_FIELDS: [&str; 14] = [
    "candidateCount",
    "frequencyPenalty",
    "maxOutputTokens",
    "presencePenalty",
    "responseJsonSchema",
    "responseMimeType",
    "responseModalities",
    "responseSchema",
    "seed",
    "stopSequences",
    "temperature",
    "thinkingConfig",
    "topK",
    "topP",
];
const PART_FIELDS: [&str; 6] =
    ["text", "thought", "thoughtSignature", "functionCall", "functionResponse", "inlineData"];

pub(super) fn check(body: &Value) -> Result<(), String> {
    check_fields("the request", body, &FIELDS)?;
    if !body["generationConfig"].is_null() {
        check_fields("generationConfig", &body["generationConfig"], &GENERATION_FIELDS)?;
    }
    let functions = body["tools"].as_array().into_iter().flatten();
    let functions: Vec<&Value> =
        functions.flat_map(|tool| tool["functionDeclarations"].as_array().into_iter().flatten()).collect();
    for function in &functions {
        let known = ["name", "description", "parameters", "parametersJsonSchema", "response", "responseJsonSchema"];
        check_fields("functionDeclarations", function, &known)?;
        check_tool_name(&function["name"], 64)?;
        if !function["parameters"].is_null() && !function["parametersJsonSchema"].is_null() {
            return Err(format!("{}: both `parameters` and `parametersJsonSchema`", function["name"]));
        }
    }
    check_unique(functions.iter().map(|function| &function["name"]))?;
    check_contents(filled("contents", &body["contents"])?)
}

fn check_contents(contents: &[Value]) -> Result<(), String> {
    let mut last_role = "model";
    let mut calls: Vec<&Value> = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let at = format!("contents[{index}]");
        check_fields(&at, content, &["role", "parts"])?;
        let role = content["role"].as_str().unwrap_or_default();
        if !["user", "model"].contains(&role) {
            return Err(format!("{at}: the role must be `user` or `model`"));
        }
        if role == "model" && last_role == "model" {
            return Err(format!("{at}: it must follow a turn of the user"));
        }
        last_role = role;
        let parts = filled(&at, &content["parts"])?;
        for part in parts {
            check_fields(&at, part, &PART_FIELDS)?;
        }
        let named = |field: &str| -> Vec<&Value> {
            parts.iter().filter(|part| !part[field].is_null()).map(|part| &part[field]["name"]).collect()
        };
        let responses = named("functionResponse");
        if responses.len() != calls.len() {
            let counts = (calls.len(), responses.len());
            return Err(format!("{at}: the turn before has {} calls, and this one {} responses", counts.0, counts.1));
        }
        if let Some(name) = responses.iter().find(|name| !calls.contains(name)) {
            return Err(format!("{at}: no call of {name} precedes its response"));
        }
        calls = named("functionCall");
        let first = parts.iter().find(|part| !part["functionCall"].is_null());
        if let Some(part) = first
            && (role != "model" || part["thoughtSignature"].as_str().is_none_or(str::is_empty))
        {
            return Err(format!("{at}: a function call is missing a `thoughtSignature`"));
        }
        for part in parts.iter().filter(|part| !part["functionResponse"].is_null()) {
            if !part["functionResponse"]["response"].is_object() {
                return Err(format!("{at}: a function response is not an object"));
            }
        }
    }
    if calls.is_empty() { Ok(()) } else { Err("the last turn has function calls".to_owned()) }
}
