//! Encoder of Gemini requests.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::translate::{
    conversation::{
        AnswerFormat, Conversation, Effort, Image, Part, Signature, Speaker, ToolChoice, ToolResult, join_text,
    },
    fields::TranslationError,
};

/// The signature that the vendor documents for calls that its model did not make. Its newer models reject calls of the
/// current turn without a signature.
const FOREIGN_SIGNATURE: &str = "skip_thought_signature_validator";

/// The instruction in place of `parallel_tool_calls: false`, for which this API has no field.
const ONE_CALL: &str = "Call at most one tool in each answer.";

/// Writes a Gemini request. The model and the stream flag belong into the path.
pub(in crate::translate) fn encode(mut conversation: Conversation) -> Result<Value, TranslationError> {
    let mut out = Map::new();
    let mut system = conversation.take_system(false);
    if conversation.parallel_tool_calls == Some(false) && !conversation.tools.is_empty() {
        system = Some(system.map_or_else(|| ONE_CALL.to_owned(), |text| format!("{text}\n\n{ONE_CALL}")));
    }
    if let Some(text) = system {
        out.insert("systemInstruction".to_owned(), json!({"parts": [{"text": text}]}));
    }
    let names = call_names(&conversation);
    let mut contents: Vec<Value> = Vec::new();
    for message in std::mem::take(&mut conversation.messages) {
        let is_model = message.speaker == Speaker::Assistant;
        let role = if is_model { "model" } else { "user" };
        let parts = encode_parts(message.parts, &names)?;
        // Roles must alternate.
        match contents.last_mut().filter(|last| last["role"] == role).and_then(|last| last["parts"].as_array_mut()) {
            Some(last) => last.extend(parts),
            None if parts.is_empty() => {}
            None => contents.push(json!({"role": role, "parts": parts})),
        }
    }
    out.insert("contents".to_owned(), contents.into());
    if !conversation.tools.is_empty() {
        let functions: Vec<Value> = conversation
            .tools
            .drain(..)
            .map(|tool| {
                let description = tool.description.unwrap_or_default();
                json!({"name": tool.name, "description": description, "parametersJsonSchema": tool.schema})
            })
            .collect();
        out.insert("tools".to_owned(), json!([{"functionDeclarations": functions}]));
        if let Some(choice) = &conversation.tool_choice {
            out.insert("toolConfig".to_owned(), json!({"functionCallingConfig": encode_choice(choice)}));
        }
    }
    let generation = encode_generation(conversation);
    if !generation.is_empty() {
        out.insert("generationConfig".to_owned(), generation.into());
    }
    Ok(Value::Object(out))
}

/// Returns the name of each call by its id: results repeat it.
fn call_names(conversation: &Conversation) -> BTreeMap<String, String> {
    let parts = conversation.messages.iter().flat_map(|message| &message.parts);
    let calls = parts.filter_map(|part| if let Part::ToolCall(call) = part { Some(call) } else { None });
    calls.map(|call| (call.id.clone(), call.name.clone())).collect()
}

fn encode_parts(parts: Vec<Part>, names: &BTreeMap<String, String>) -> Result<Vec<Value>, TranslationError> {
    let (mut encoded, mut images) = (Vec::new(), Vec::new());
    let mut signature: Option<String> = None;
    let mut has_call = false;
    for part in parts {
        match part {
            Part::Text(text) if text.is_empty() => {}
            Part::Text(text) => encoded.push(json!({"text": text})),
            Part::Image(image) => encoded.push(encode_image(image)?),
            // Only the signature must come back; earlier thoughts are not part of a request.
            Part::Reasoning { signature: given, .. } => {
                let own = given.as_deref().and_then(|given| Signature::Gemini.read(given));
                signature = own.map(str::to_owned).or(signature);
            }
            Part::ToolCall(call) => {
                let function = json!({"id": call.id, "name": call.name, "args": call.object_arguments()});
                let mut part = json!({"functionCall": function});
                let own = call.signature.as_deref().and_then(|given| Signature::Gemini.read(given)).map(str::to_owned);
                let own = own.or_else(|| signature.take());
                // Of parallel calls the vendor signs only the first.
                let own = own.or_else(|| (!has_call).then(|| FOREIGN_SIGNATURE.to_owned()));
                if let Some(own) = own {
                    part["thoughtSignature"] = own.into();
                }
                has_call = true;
                encoded.push(part);
            }
            Part::ToolResult(result) => {
                encoded.push(encode_result(&result, names)?);
                for part in result.content {
                    if let Part::Image(image) = part {
                        images.push(encode_image(image)?);
                    }
                }
            }
        }
    }
    encoded.extend(images);
    Ok(encoded)
}

fn encode_result(result: &ToolResult, names: &BTreeMap<String, String>) -> Result<Value, TranslationError> {
    let name = names.get(&result.id).or(result.name.as_ref()).ok_or_else(|| TranslationError::Invalid {
        field: format!("tool result `{}`", result.id),
        reason: "no tool call with its id precedes it".to_owned(),
    })?;
    let text = join_text(&result.content, "\n");
    let field = if result.is_error { "error" } else { "output" };
    Ok(json!({"functionResponse": {"id": result.id, "name": name, "response": {field: text}}}))
}

fn encode_image(image: Image) -> Result<Value, TranslationError> {
    match image {
        Image::Base64 { media_type, data } => Ok(json!({"inlineData": {"mimeType": media_type, "data": data}})),
        // This API reads only files that were uploaded to it.
        Image::Url(_) => Err(TranslationError::NoEquivalent { field: "an image by URL".to_owned() }),
    }
}

fn encode_choice(choice: &ToolChoice) -> Value {
    match choice {
        ToolChoice::Auto => json!({"mode": "AUTO"}),
        ToolChoice::Required => json!({"mode": "ANY"}),
        ToolChoice::None => json!({"mode": "NONE"}),
        ToolChoice::Tool(name) => json!({"mode": "ANY", "allowedFunctionNames": [name]}),
    }
}

fn encode_generation(conversation: Conversation) -> Map<String, Value> {
    let mut out = Map::new();
    let mut set = |name: &str, value: Option<Value>| value.map(|value| out.insert(name.to_owned(), value));
    set("maxOutputTokens", conversation.max_tokens.map(Value::from));
    set("temperature", conversation.temperature.map(Value::from));
    set("topP", conversation.top_p.map(Value::from));
    set("topK", conversation.top_k.map(Value::from));
    set("stopSequences", (!conversation.stop.is_empty()).then(|| conversation.stop.into()));
    set("seed", conversation.seed.map(Value::from));
    set("presencePenalty", conversation.presence_penalty.map(Value::from));
    set("frequencyPenalty", conversation.frequency_penalty.map(Value::from));
    if let Some(format) = conversation.format {
        set("responseMimeType", Some("application/json".into()));
        if let AnswerFormat::JsonSchema { schema, .. } = format {
            set("responseJsonSchema", Some(schema));
        }
    }
    set("thinkingConfig", conversation.effort.and_then(|effort| encode_thinking(effort, &conversation.model)));
    out
}

/// Returns the field `thinkingConfig`; older models take a number of tokens, newer ones a level.
fn encode_thinking(effort: Effort, model: &str) -> Option<Value> {
    if !model.contains("gemini-") || ["gemini-1", "gemini-2.0"].iter().any(|old| model.contains(old)) {
        return None;
    }
    let shown = effort != Effort::None;
    if model.contains("gemini-2.") {
        // The larger models always reason a little.
        let least = if model.contains("-pro") { 128 } else { 0 };
        return Some(json!({"includeThoughts": shown, "thinkingBudget": effort.tokens().max(least)}));
    }
    let level = if effort <= Effort::Low { "low" } else { "high" };
    Some(json!({"includeThoughts": shown, "thinkingLevel": level}))
}
