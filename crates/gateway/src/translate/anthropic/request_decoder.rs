//! Decoder of Messages requests.

use serde_json::{Map, Value};

use crate::translate::{
    conversation::{
        AnswerFormat, Conversation, Effort, Image, Message, Part, Speaker, Tool, ToolCall, ToolChoice, ToolResult,
    },
    fields::{Content, Fields, TranslationError},
};

/// Prefix of a system block that Claude Code sends for billing. The block changes with each call, so it is removed: it
/// would defeat the prompt cache of another vendor.
const BILLING_BLOCK: &str = "x-anthropic-billing-header";
/// Fields that concern only the vendor's cache, memory and accounts.
const HINTS: [&str; 4] = ["cache_control", "citations", "context_management", "metadata"];
/// Fields of tools that concern only how the vendor presents them to its model.
const TOOL_HINTS: [&str; 5] =
    ["allowed_callers", "cache_control", "defer_loading", "eager_input_streaming", "input_examples"];

/// Reads a Messages request.
pub(in crate::translate) fn decode(body: &[u8]) -> Result<Conversation, TranslationError> {
    let mut request = Fields::body(body)?;
    let mut conversation = Conversation {
        model: request.need("model")?,
        max_tokens: request.take("max_tokens")?,
        temperature: request.take("temperature")?,
        top_p: request.take("top_p")?,
        top_k: request.take("top_k")?,
        stop: request.take("stop_sequences")?.unwrap_or_default(),
        stream: request.take("stream")?.unwrap_or(false),
        ..Conversation::default()
    };
    let mut system = decode_content(request.content("system")?)?;
    system.retain(|part| !matches!(part, Part::Text(text) if text.starts_with(BILLING_BLOCK)));
    conversation.add(Speaker::System, system);
    for message in request.objects("messages")? {
        let message = decode_message(message, &mut conversation.effort)?;
        conversation.messages.push(message);
    }
    for tool in request.objects("tools")? {
        conversation.tools.push(decode_tool(tool)?);
    }
    if let Some(choice) = request.object("tool_choice")? {
        decode_tool_choice(choice, &mut conversation)?;
    }
    decode_reasoning(&mut request, &mut conversation)?;
    request.finish(&HINTS)?;
    Ok(conversation)
}

fn decode_message(mut message: Fields, effort: &mut Option<Effort>) -> Result<Message, TranslationError> {
    let speaker = match message.need::<String>("role")?.as_str() {
        "assistant" => Speaker::Assistant,
        "system" => Speaker::System,
        "user" => Speaker::User,
        other => return Err(message.invalid("role", format!("the role `{other}` is unknown"))),
    };
    let parts = decode_content(message.content("content")?)?;
    // The effort of one turn, which the last message may change.
    if let Some(mut output) = message.object("output_config")? {
        *effort = decode_effort(&mut output)?.or(*effort);
        output.finish(&[])?;
    }
    message.finish(&HINTS)?;
    Ok(Message { speaker, parts })
}

fn decode_content(content: Content) -> Result<Vec<Part>, TranslationError> {
    match content {
        Content::Text(text) => Ok(vec![Part::Text(text)]),
        Content::Parts(parts) => parts.into_iter().map(decode_block).collect(),
    }
}

fn decode_block(mut block: Fields) -> Result<Part, TranslationError> {
    let part = match block.need::<String>("type")?.as_str() {
        "text" => Part::Text(block.need("text")?),
        "image" => Part::Image(decode_image(&mut block)?),
        "thinking" => Part::Reasoning { text: block.text("thinking")?, signature: block.take("signature")? },
        // Only the vendor that encrypted it can read it.
        "redacted_thinking" => Part::Reasoning { text: String::new(), signature: block.take("data")? },
        "tool_use" => {
            let input: Map<String, Value> = block.take("input")?.unwrap_or_default();
            block.take::<Value>("caller")?;
            Part::ToolCall(ToolCall {
                id: block.need("id")?,
                name: block.need("name")?,
                arguments: Value::Object(input).to_string(),
                custom: false,
                signature: None,
            })
        }
        "tool_result" => Part::ToolResult(ToolResult {
            id: block.need("tool_use_id")?,
            name: None,
            content: decode_content(block.content("content")?)?,
            is_error: block.take("is_error")?.unwrap_or(false),
        }),
        // The client has already looked the tool up: its definition is among the tools.
        "tool_reference" => Part::Text(block.need("tool_name")?),
        other => return Err(block.no_equivalent(&format!("type: {other}"))),
    };
    block.finish(&HINTS)?;
    Ok(part)
}

fn decode_image(block: &mut Fields) -> Result<Image, TranslationError> {
    let Some(mut source) = block.object("source")? else { return Err(block.invalid("source", "it is missing")) };
    let image = match source.need::<String>("type")?.as_str() {
        "base64" => Image::Base64 { media_type: source.need("media_type")?, data: source.need("data")? },
        "url" => Image::Url(source.need("url")?),
        other => return Err(source.no_equivalent(&format!("type: {other}"))),
    };
    source.finish(&[])?;
    Ok(image)
}

fn decode_tool(mut tool: Fields) -> Result<Tool, TranslationError> {
    match tool.take::<String>("type")? {
        Some(kind) if kind != "custom" => return Err(tool.no_equivalent(&format!("type: {kind}"))),
        _ => {}
    }
    let decoded = Tool {
        name: tool.need("name")?,
        description: tool.take("description")?,
        schema: tool.need("input_schema")?,
        strict: tool.take("strict")?,
        alias: None,
    };
    tool.finish(&TOOL_HINTS)?;
    Ok(decoded)
}

fn decode_tool_choice(mut choice: Fields, conversation: &mut Conversation) -> Result<(), TranslationError> {
    conversation.tool_choice = Some(match choice.need::<String>("type")?.as_str() {
        "auto" => ToolChoice::Auto,
        "any" => ToolChoice::Required,
        "none" => ToolChoice::None,
        "tool" => ToolChoice::Tool(choice.need("name")?),
        other => return Err(choice.no_equivalent(&format!("type: {other}"))),
    });
    conversation.parallel_tool_calls =
        choice.take::<bool>("disable_parallel_tool_use")?.filter(|disabled| *disabled).map(|_| false);
    choice.finish(&[])
}

fn decode_reasoning(request: &mut Fields, conversation: &mut Conversation) -> Result<(), TranslationError> {
    let of_turn = conversation.effort.take();
    if let Some(mut thinking) = request.object("thinking")? {
        conversation.effort = match thinking.need::<String>("type")?.as_str() {
            "disabled" => Some(Effort::None),
            "enabled" => Some(Effort::from_tokens(thinking.need("budget_tokens")?)),
            "adaptive" => Some(Effort::Medium),
            other => return Err(thinking.no_equivalent(&format!("type: {other}"))),
        };
        thinking.finish(&["display"])?;
    }
    let mut output = request.object("output_config")?;
    let of_request = output.as_mut().map(decode_effort).transpose()?.flatten();
    if conversation.effort != Some(Effort::None) {
        conversation.effort = of_turn.or(of_request).or(conversation.effort);
    }
    let Some(mut output) = output else { return Ok(()) };
    if let Some(mut format) = output.object("format")? {
        let kind: String = format.need("type")?;
        if kind != "json_schema" {
            return Err(format.no_equivalent(&format!("type: {kind}")));
        }
        let schema = format.need("schema")?;
        conversation.format = Some(AnswerFormat::JsonSchema { name: None, schema, strict: Some(true) });
        format.finish(&[])?;
    }
    output.finish(&[])
}

fn decode_effort(output: &mut Fields) -> Result<Option<Effort>, TranslationError> {
    let Some(effort) = output.take::<String>("effort")? else { return Ok(None) };
    let named = Effort::named(&effort).ok_or_else(|| output.invalid("effort", format!("`{effort}` is unknown")))?;
    Ok(Some(named))
}
