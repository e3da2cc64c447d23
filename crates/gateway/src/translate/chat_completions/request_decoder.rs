//! Decoder of chat completions requests.

use serde_json::{Value, json};

use crate::translate::{
    conversation::{
        AnswerFormat, Conversation, Effort, Image, Message, Part, Speaker, Tool, ToolCall, ToolChoice, ToolResult,
    },
    fields::{Content, Fields, TranslationError},
};

/// Fields that concern only the vendor's cache, storage and accounts, or how verbose the model is.
const HINTS: [&str; 10] = [
    "cache_control",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "store",
    "user",
    "verbosity",
    "stream_options",
];
/// Fields of messages that repeat text of other fields or only identify something.
const MESSAGE_HINTS: [&str; 6] = ["annotations", "cache_control", "id", "name", "reasoning_details", "refusal"];

/// Reads a chat completions request.
pub(in crate::translate) fn decode(body: &[u8]) -> Result<Conversation, TranslationError> {
    let mut request = Fields::body(body)?;
    let limits: [Option<u64>; 2] = [request.take("max_completion_tokens")?, request.take("max_tokens")?];
    let mut conversation = Conversation {
        model: request.need("model")?,
        max_tokens: limits.into_iter().flatten().next(),
        parallel_tool_calls: request.take("parallel_tool_calls")?,
        temperature: request.take("temperature")?,
        top_p: request.take("top_p")?,
        top_k: request.take("top_k")?,
        presence_penalty: request.take("presence_penalty")?,
        frequency_penalty: request.take("frequency_penalty")?,
        seed: request.take("seed")?,
        stop: match request.take::<Value>("stop")? {
            Some(Value::String(text)) => vec![text],
            Some(texts) => serde_json::from_value(texts)?,
            None => Vec::new(),
        },
        stream: request.take("stream")?.unwrap_or(false),
        ..Conversation::default()
    };
    if let Some(mut options) = request.object("stream_options")? {
        conversation.wants_usage = options.take("include_usage")?.unwrap_or(false);
        options.finish(&["include_obfuscation"])?;
    }
    for message in request.objects("messages")? {
        conversation.messages.push(decode_message(message)?);
    }
    for tool in request.objects("tools")? {
        conversation.tools.push(decode_tool(tool)?);
    }
    conversation.tool_choice = request.take::<Value>("tool_choice")?.map(decode_tool_choice).transpose()?;
    if let Some(effort) = request.take::<String>("reasoning_effort")? {
        let named = Effort::named(&effort);
        conversation.effort =
            Some(named.ok_or_else(|| request.invalid("reasoning_effort", format!("`{effort}` is unknown")))?);
    }
    if let Some(format) = request.object("response_format")? {
        conversation.format = decode_format(format)?;
    }
    if request.take::<u64>("n")?.is_some_and(|answers| answers != 1) {
        return Err(request.no_equivalent("n"));
    }
    if request.take::<Vec<String>>("modalities")?.is_some_and(|kinds| kinds != ["text"]) {
        return Err(request.no_equivalent("modalities"));
    }
    request.finish(&HINTS)?;
    Ok(conversation)
}

fn decode_message(mut message: Fields) -> Result<Message, TranslationError> {
    let role: String = message.need("role")?;
    let speaker = match role.as_str() {
        "system" | "developer" => Speaker::System,
        "assistant" => Speaker::Assistant,
        "user" | "tool" => Speaker::User,
        other => return Err(message.invalid("role", format!("the role `{other}` has no equivalent"))),
    };
    let mut parts = Vec::new();
    let reasoning = [message.take::<Value>("reasoning_content")?, message.take("reasoning")?];
    if let Some(text) = reasoning.iter().flatten().find_map(Value::as_str).filter(|text| !text.is_empty()) {
        parts.push(Part::Reasoning { text: text.to_owned(), signature: None });
    }
    let mut content = decode_content(message.content("content")?)?;
    if content.is_empty() && speaker == Speaker::Assistant {
        content.extend(message.take("refusal")?.map(Part::Text));
    }
    if role == "tool" {
        let (id, name) = (message.need("tool_call_id")?, message.take("name")?);
        content = vec![Part::ToolResult(ToolResult { id, name, content, is_error: false })];
    }
    parts.extend(content);
    for call in message.objects("tool_calls")? {
        parts.push(Part::ToolCall(decode_call(call)?));
    }
    message.finish(&MESSAGE_HINTS)?;
    Ok(Message { speaker, parts })
}

fn decode_content(content: Content) -> Result<Vec<Part>, TranslationError> {
    let parts = match content {
        Content::Text(text) if text.is_empty() => return Ok(Vec::new()),
        Content::Text(text) => return Ok(vec![Part::Text(text)]),
        Content::Parts(parts) => parts,
    };
    let decode = |mut part: Fields| {
        let decoded = match part.need::<String>("type")?.as_str() {
            "text" => Part::Text(part.need("text")?),
            "refusal" => Part::Text(part.need("refusal")?),
            "image_url" => {
                let Some(mut image) = part.object("image_url")? else {
                    return Err(part.invalid("image_url", "it is missing"));
                };
                let url = image.need("url")?;
                image.finish(&["detail"])?;
                Part::Image(Image::from_url(url))
            }
            other => return Err(part.no_equivalent(&format!("type: {other}"))),
        };
        part.finish(&["cache_control"])?;
        Ok(decoded)
    };
    parts.into_iter().map(decode).collect()
}

fn decode_call(mut call: Fields) -> Result<ToolCall, TranslationError> {
    let id = call.need("id")?;
    let kind: String = call.take("type")?.unwrap_or_else(|| "function".to_owned());
    let signature = match call.object("extra_content")?.map(|mut extra| extra.object("google")).transpose()?.flatten() {
        Some(mut google) => google.take("thought_signature")?,
        None => None,
    };
    let Some(mut function) = call.object("function")?.filter(|_| kind == "function") else {
        return Err(call.no_equivalent(&format!("type: {kind}")));
    };
    let (name, arguments) = (function.need("name")?, function.text("arguments")?);
    function.finish(&[])?;
    call.finish(&["index"])?;
    Ok(ToolCall { id, name, arguments, custom: false, signature })
}

fn decode_tool(mut tool: Fields) -> Result<Tool, TranslationError> {
    let kind: String = tool.need("type")?;
    let Some(mut function) = tool.object("function")?.filter(|_| kind == "function") else {
        return Err(tool.no_equivalent(&format!("type: {kind}")));
    };
    let decoded = Tool {
        name: function.need("name")?,
        description: function.take("description")?,
        schema: function.take("parameters")?.unwrap_or_else(|| json!({"type": "object", "properties": {}})),
        strict: function.take("strict")?,
        alias: None,
    };
    function.finish(&[])?;
    tool.finish(&["cache_control"])?;
    Ok(decoded)
}

/// Reads a tool choice of chat or of responses.
pub(in crate::translate) fn decode_tool_choice(choice: Value) -> Result<ToolChoice, TranslationError> {
    let named = choice.get("function").unwrap_or(&choice).get("name").and_then(Value::as_str);
    match (choice.as_str(), named) {
        (Some("auto"), _) => Ok(ToolChoice::Auto),
        (Some("required"), _) => Ok(ToolChoice::Required),
        (Some("none"), _) => Ok(ToolChoice::None),
        (_, Some(name)) => Ok(ToolChoice::Tool(name.to_owned())),
        _ => Err(TranslationError::NoEquivalent { field: "tool_choice".to_owned() }),
    }
}

fn decode_format(mut format: Fields) -> Result<Option<AnswerFormat>, TranslationError> {
    let decoded = match format.need::<String>("type")?.as_str() {
        "text" => None,
        "json_object" => Some(AnswerFormat::JsonObject),
        "json_schema" => {
            let Some(mut schema) = format.object("json_schema")? else {
                return Err(format.invalid("json_schema", "it is missing"));
            };
            let decoded = AnswerFormat::JsonSchema {
                name: schema.take("name")?,
                schema: schema.need("schema")?,
                strict: schema.take("strict")?,
            };
            schema.finish(&["description"])?;
            Some(decoded)
        }
        other => return Err(format.no_equivalent(&format!("type: {other}"))),
    };
    format.finish(&[])?;
    Ok(decoded)
}
