//! Decoder of `OpenAI` responses requests.

use serde_json::Value;

use super::tools::{ToolSet, upstream_name};
use crate::translate::{
    chat_completions::request_decoder::decode_tool_choice,
    conversation::{AnswerFormat, Conversation, Effort, Image, Part, Speaker, ToolCall, ToolChoice, ToolResult},
    fields::{Content, Fields, TranslationError},
};

/// Fields that concern only the vendor's cache, storage and accounts, or how verbose the model is.
const HINTS: [&str; 12] = [
    "client_metadata",
    "include",
    "max_tool_calls",
    "metadata",
    "prompt_cache_key",
    "prompt_cache_options",
    "prompt_cache_retention",
    "safety_identifier",
    "store",
    "stream_options",
    "user",
    "generate",
];
/// Fields of items that only identify them.
const ITEM_HINTS: [&str; 6] =
    ["id", "internal_chat_message_metadata_passthrough", "metadata", "phase", "status", "type"];

/// Reads a responses request. Fails if it refers to a response stored at the vendor.
pub(in crate::translate) fn decode(body: &[u8]) -> Result<Conversation, TranslationError> {
    let mut request = Fields::body(body)?;
    if let Some(id) = request.take("previous_response_id")? {
        return Err(TranslationError::StoredResponse(id));
    }
    let mut conversation = Conversation {
        model: request.need("model")?,
        max_tokens: request.take("max_output_tokens")?,
        parallel_tool_calls: request.take("parallel_tool_calls")?,
        temperature: request.take("temperature")?,
        top_p: request.take("top_p")?,
        stream: request.take("stream")?.unwrap_or(false),
        ..Conversation::default()
    };
    let instructions = request.text("instructions")?;
    if !instructions.is_empty() {
        conversation.add(Speaker::System, vec![Part::Text(instructions)]);
    }
    let mut tools = ToolSet::default();
    for tool in request.objects("tools")? {
        tools.add(tool, None)?;
    }
    match request.content("input")? {
        Content::Text(text) => conversation.add(Speaker::User, vec![Part::Text(text)]),
        Content::Parts(items) => {
            for item in items {
                decode_item(item, &mut conversation, &mut tools)?;
            }
        }
    }
    conversation.tools = tools.into_tools();
    decode_options(&mut request, &mut conversation)?;
    request.finish(&HINTS)?;
    Ok(conversation)
}

fn decode_options(request: &mut Fields, conversation: &mut Conversation) -> Result<(), TranslationError> {
    if let Some(choice) = request.take::<Value>("tool_choice")? {
        let choice = decode_tool_choice(choice)?;
        conversation.tool_choice = Some(match choice {
            ToolChoice::Tool(name) => ToolChoice::Tool(upstream_name(None, &name)),
            other => other,
        });
    }
    if let Some(mut reasoning) = request.object("reasoning")? {
        if let Some(effort) = reasoning.take::<String>("effort")? {
            let named = Effort::named(&effort);
            conversation.effort =
                Some(named.ok_or_else(|| reasoning.invalid("effort", format!("`{effort}` is unknown")))?);
        }
        reasoning.finish(&["context", "generate_summary", "summary"])?;
    }
    if let Some(mut text) = request.object("text")? {
        if let Some(format) = text.object("format")? {
            conversation.format = decode_format(format)?;
        }
        text.finish(&["verbosity"])?;
    }
    if request.take::<String>("truncation")?.is_some_and(|kind| kind != "disabled") {
        return Err(request.no_equivalent("truncation"));
    }
    Ok(())
}

fn decode_format(mut format: Fields) -> Result<Option<AnswerFormat>, TranslationError> {
    let decoded = match format.need::<String>("type")?.as_str() {
        "text" => None,
        "json_object" => Some(AnswerFormat::JsonObject),
        "json_schema" => Some(AnswerFormat::JsonSchema {
            name: format.take("name")?,
            schema: format.need("schema")?,
            strict: format.take("strict")?,
        }),
        other => return Err(format.no_equivalent(&format!("type: {other}"))),
    };
    format.finish(&["description"])?;
    Ok(decoded)
}

fn decode_item(mut item: Fields, conversation: &mut Conversation, tools: &mut ToolSet) -> Result<(), TranslationError> {
    let kind: String = item.take("type")?.unwrap_or_else(|| "message".to_owned());
    match kind.as_str() {
        "message" => {
            let speaker = match item.need::<String>("role")?.as_str() {
                "assistant" => Speaker::Assistant,
                "system" | "developer" => Speaker::System,
                "user" => Speaker::User,
                other => return Err(item.invalid("role", format!("the role `{other}` has no equivalent"))),
            };
            conversation.add(speaker, decode_content(item.content("content")?)?);
        }
        // A message of one of the client's models to another one.
        "agent_message" => {
            let text = decode_content(item.content("content")?)?;
            let (author, recipient) = (item.take::<String>("author")?, item.take::<String>("recipient")?);
            if let (Some(author), Some(recipient)) = (author, recipient) {
                conversation.add(Speaker::User, vec![Part::Text(format!("Message from {author} to {recipient}:"))]);
            }
            conversation.add(Speaker::User, text);
        }
        "reasoning" => conversation.add(Speaker::Assistant, vec![decode_reasoning(&mut item)?]),
        "function_call" | "custom_tool_call" => {
            let custom = kind == "custom_tool_call";
            let namespace: Option<String> = item.take("namespace")?;
            let call = ToolCall {
                id: item.need("call_id")?,
                name: upstream_name(namespace.as_deref(), &item.need::<String>("name")?),
                arguments: item.text(if custom { "input" } else { "arguments" })?,
                custom,
                signature: None,
            };
            conversation.add(Speaker::Assistant, vec![Part::ToolCall(call)]);
        }
        "function_call_output" | "custom_tool_call_output" => {
            let (id, name) = (item.need("call_id")?, item.take("name")?);
            let content = decode_content(item.content("output")?)?;
            let result = ToolResult { id, name, content, is_error: false };
            conversation.add(Speaker::User, vec![Part::ToolResult(result)]);
        }
        // Codex declares the tools of its newest models in the input.
        "additional_tools" => {
            item.take::<String>("role")?;
            for tool in item.objects("tools")? {
                tools.add(tool, None)?;
            }
        }
        other => return Err(item.no_equivalent(&format!("type: {other}"))),
    }
    item.finish(&ITEM_HINTS)
}

/// Reads an item with reasoning; only the vendor that encrypted it can read its content.
fn decode_reasoning(item: &mut Fields) -> Result<Part, TranslationError> {
    let mut text = String::new();
    for list in ["summary", "content"] {
        for mut part in item.objects(list)? {
            text.push_str(&part.text("text")?);
        }
    }
    Ok(Part::Reasoning { text, signature: item.take("encrypted_content")? })
}

fn decode_content(content: Content) -> Result<Vec<Part>, TranslationError> {
    let parts = match content {
        Content::Text(text) => return Ok(vec![Part::Text(text)]),
        Content::Parts(parts) => parts,
    };
    let decode = |mut part: Fields| {
        let decoded = match part.need::<String>("type")?.as_str() {
            "input_text" | "output_text" | "text" | "summary_text" => Part::Text(part.need("text")?),
            "refusal" => Part::Text(part.need("refusal")?),
            "input_image" if part.has("image_url") => Part::Image(Image::from_url(part.need("image_url")?)),
            other => return Err(part.no_equivalent(&format!("type: {other}"))),
        };
        part.finish(&["annotations", "detail", "logprobs", "prompt_cache_breakpoint"])?;
        Ok(decoded)
    };
    parts.into_iter().map(decode).collect()
}
