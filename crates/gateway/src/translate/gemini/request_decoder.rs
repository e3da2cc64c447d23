//! Decoder of Gemini requests.

use serde_json::{Map, Value, json};

use super::response_encoder::unpack_reasoning;
use crate::translate::{
    conversation::{
        AnswerFormat, Conversation, Effort, Image, Message, Part, Speaker, Tool, ToolCall, ToolChoice, ToolResult,
    },
    fields::{Fields, TranslationError},
};

/// Fields that concern only the vendor's filters, storage and accounts.
const HINTS: [&str; 4] = ["labels", "safetySettings", "model", "store"];

/// Reads a request for `model`. The path of the request tells whether a stream is requested.
pub(in crate::translate) fn decode(body: &[u8], model: &str, stream: bool) -> Result<Conversation, TranslationError> {
    let mut request = Fields::body(body)?;
    let mut conversation = Conversation { model: model.to_owned(), stream, ..Conversation::default() };
    if let Some(mut system) = request.object("systemInstruction")? {
        let mut calls = OpenCalls::default();
        let parts = decode_parts(&mut system, &mut calls)?;
        conversation.add(Speaker::System, parts);
        system.finish(&["role"])?;
    }
    let mut calls = OpenCalls::default();
    for mut content in request.objects("contents")? {
        let speaker = match content.take::<String>("role")?.as_deref() {
            Some("model") => Speaker::Assistant,
            Some("user" | "function") | None => Speaker::User,
            Some(other) => return Err(content.invalid("role", format!("the role `{other}` is unknown"))),
        };
        let parts = decode_parts(&mut content, &mut calls)?;
        content.finish(&[])?;
        conversation.messages.push(Message { speaker, parts });
    }
    for mut tool in request.objects("tools")? {
        for function in tool.objects("functionDeclarations")? {
            conversation.tools.push(decode_function(function)?);
        }
        tool.finish(&[])?;
    }
    if let Some(mut config) = request.object("toolConfig")? {
        if let Some(calling) = config.object("functionCallingConfig")? {
            decode_calling(calling, &mut conversation)?;
        }
        config.finish(&[])?;
    }
    if let Some(config) = request.object("generationConfig")? {
        decode_generation(config, &mut conversation)?;
    }
    request.finish(&HINTS)?;
    Ok(conversation)
}

/// The calls without a result. Clients of this API may leave out the ids of calls, which then match by name and order.
#[derive(Default)]
struct OpenCalls {
    open: Vec<(String, String)>,
    count: usize,
}

impl OpenCalls {
    fn add(&mut self, id: Option<String>, name: &str) -> String {
        let id = id.unwrap_or_else(|| format!("call_{}", self.count));
        self.count += 1;
        self.open.push((id.clone(), name.to_owned()));
        id
    }

    fn answer(&mut self, id: Option<String>, name: &str) -> Option<String> {
        let found = self.open.iter().position(|(open, called)| match &id {
            Some(id) => open == id,
            None => called == name,
        });
        found.map(|index| self.open.remove(index).0).or(id)
    }
}

fn decode_parts(content: &mut Fields, calls: &mut OpenCalls) -> Result<Vec<Part>, TranslationError> {
    let mut parts = Vec::new();
    for part in content.objects("parts")? {
        decode_part(part, calls, &mut parts)?;
    }
    Ok(parts)
}

fn decode_part(mut part: Fields, calls: &mut OpenCalls, parts: &mut Vec<Part>) -> Result<(), TranslationError> {
    let signature: Option<String> = part.take("thoughtSignature")?;
    let is_thought = part.take("thought")?.unwrap_or(false);
    if let Some(text) = part.take::<String>("text")? {
        if is_thought {
            parts.push(Part::Reasoning { text, signature });
        } else if !text.is_empty() {
            parts.push(Part::Text(text));
        }
    } else if let Some(mut call) = part.object("functionCall")? {
        let name: String = call.need("name")?;
        let arguments: Map<String, Value> = call.take("args")?.unwrap_or_default();
        let id = calls.add(call.take("id")?, &name);
        call.finish(&[])?;
        // The reasoning of another vendor comes back in the signature of the call after it.
        if let Some((text, signature)) = signature.as_deref().and_then(unpack_reasoning) {
            parts.push(Part::Reasoning { text, signature: Some(signature) });
        }
        let arguments = Value::Object(arguments).to_string();
        parts.push(Part::ToolCall(ToolCall { id, name, arguments, custom: false, signature: None }));
    } else if let Some(mut response) = part.object("functionResponse")? {
        let name: String = response.need("name")?;
        let id = response.take("id")?;
        let Some(id) = calls.answer(id, &name) else {
            return Err(response.invalid("name", format!("no call of `{name}` precedes this result")));
        };
        let (text, is_error) = decode_result(response.take("response")?.unwrap_or_default());
        let mut content = vec![Part::Text(text)];
        for part in response.objects("parts")? {
            decode_part(part, calls, &mut content)?;
        }
        response.finish(&["scheduling", "willContinue"])?;
        parts.push(Part::ToolResult(ToolResult { id, name: Some(name), content, is_error }));
    } else if let Some(mut data) = part.object("inlineData")? {
        let (media_type, bytes) = (data.need::<String>("mimeType")?, data.need("data")?);
        if !media_type.starts_with("image/") {
            return Err(data.no_equivalent(&format!("mimeType: {media_type}")));
        }
        data.finish(&["displayName"])?;
        parts.push(Part::Image(Image::Base64 { media_type, data: bytes }));
    }
    part.finish(&[])
}

/// Returns the text of a result, and whether it is an error.
fn decode_result(response: Map<String, Value>) -> (String, bool) {
    let only = (response.len() == 1).then(|| response.iter().next()).flatten();
    match only {
        Some((name, Value::String(text))) if ["output", "result", "error"].contains(&name.as_str()) => {
            (text.clone(), name == "error")
        }
        _ => (Value::Object(response).to_string(), false),
    }
}

fn decode_function(mut function: Fields) -> Result<Tool, TranslationError> {
    let described: Option<Value> = function.take("parameters")?;
    let schema: Option<Value> = function.take("parametersJsonSchema")?;
    let schema = schema.or_else(|| described.map(with_lower_types));
    let tool = Tool {
        name: function.need("name")?,
        description: function.take("description")?,
        schema: schema.unwrap_or_else(|| json!({"type": "object", "properties": {}})),
        strict: None,
        alias: None,
    };
    function.finish(&["response", "responseJsonSchema"])?;
    Ok(tool)
}

/// Returns a schema of Gemini, with types in upper case, as a JSON schema.
fn with_lower_types(schema: Value) -> Value {
    match schema {
        Value::Object(map) => {
            let fields = map.into_iter().map(|(name, value)| match value {
                Value::String(kind) if name == "type" => (name, kind.to_ascii_lowercase().into()),
                value => (name, with_lower_types(value)),
            });
            Value::Object(fields.collect())
        }
        Value::Array(values) => values.into_iter().map(with_lower_types).collect(),
        other => other,
    }
}

fn decode_calling(mut calling: Fields, conversation: &mut Conversation) -> Result<(), TranslationError> {
    let allowed: Vec<String> = calling.take("allowedFunctionNames")?.unwrap_or_default();
    let mode: String = calling.take("mode")?.unwrap_or_default();
    conversation.tool_choice = match (mode.as_str(), allowed.as_slice()) {
        ("ANY", [name]) => Some(ToolChoice::Tool(name.clone())),
        ("ANY", []) => Some(ToolChoice::Required),
        ("NONE", _) => Some(ToolChoice::None),
        ("AUTO" | "MODE_UNSPECIFIED" | "VALIDATED" | "", []) => Some(ToolChoice::Auto),
        (_, [_, ..]) => return Err(calling.no_equivalent("allowedFunctionNames")),
        (other, []) => return Err(calling.no_equivalent(&format!("mode: {other}"))),
    };
    calling.finish(&[])
}

fn decode_generation(mut config: Fields, conversation: &mut Conversation) -> Result<(), TranslationError> {
    conversation.temperature = config.take("temperature")?;
    conversation.top_p = config.take("topP")?;
    // Some clients write it as a decimal number.
    conversation.top_k = config.take::<f64>("topK")?.and_then(|count| format!("{count:.0}").parse().ok());
    conversation.max_tokens = config.take("maxOutputTokens")?;
    conversation.stop = config.take("stopSequences")?.unwrap_or_default();
    conversation.seed = config.take("seed")?;
    conversation.presence_penalty = config.take("presencePenalty")?;
    conversation.frequency_penalty = config.take("frequencyPenalty")?;
    if config.take::<u64>("candidateCount")?.is_some_and(|answers| answers != 1) {
        return Err(config.no_equivalent("candidateCount"));
    }
    let described: Option<Value> = config.take("responseSchema")?;
    let schema = config.take::<Value>("responseJsonSchema")?.or_else(|| described.map(with_lower_types));
    let is_json = config.take::<String>("responseMimeType")?;
    conversation.format = match (schema, is_json.as_deref()) {
        (Some(schema), _) => Some(AnswerFormat::JsonSchema { name: None, schema, strict: None }),
        (None, Some("application/json")) => Some(AnswerFormat::JsonObject),
        (None, None | Some("text/plain")) => None,
        (None, Some(other)) => return Err(config.no_equivalent(&format!("responseMimeType: {other}"))),
    };
    if let Some(mut thinking) = config.object("thinkingConfig")? {
        let budget: Option<i64> = thinking.take("thinkingBudget")?;
        let level: Option<String> = thinking.take("thinkingLevel")?;
        let named = level.as_deref().and_then(Effort::named);
        conversation.effort = named.or_else(|| budget.map(Effort::from_tokens));
        if thinking.take("includeThoughts")?.unwrap_or(false) {
            conversation.effort = conversation.effort.or(Some(Effort::Medium));
        }
        thinking.finish(&[])?;
    }
    if config.take::<Vec<String>>("responseModalities")?.is_some_and(|kinds| kinds != ["TEXT"]) {
        return Err(config.no_equivalent("responseModalities"));
    }
    config.finish(&[])
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::translate::conversation::join_text;

    #[test]
    fn calls_without_ids_match_their_results() {
        let call = |name: &str| json!({"functionCall": {"name": name, "args": {}}});
        let result = |name: &str, text: &str| json!({"functionResponse": {"name": name, "response": {"output": text}}});
        let body = json!({"contents": [
            {"role": "model", "parts": [call("a"), call("b"), call("a")]},
            {"role": "user", "parts": [result("b", "1"), result("a", "2"), result("a", "3")]},
        ]});
        let conversation = decode(body.to_string().as_bytes(), "m", false).unwrap();
        let results = conversation.messages[1].parts.iter().map(|part| match part {
            Part::ToolResult(result) => (result.id.clone(), join_text(&result.content, "")),
            other => panic!("{other:?}"),
        });
        let expected = [("call_1", "1"), ("call_0", "2"), ("call_2", "3")];
        assert_eq!(results.collect::<Vec<_>>(), expected.map(|(id, text)| (id.to_owned(), text.to_owned())));
    }
}
