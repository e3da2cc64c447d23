//! Texts of an `OpenAI` chat completions request.

use serde::Deserialize;

use super::{Speaker, join};

#[derive(Deserialize)]
struct ChatTextRequest {
    messages: Vec<ChatTextMessage>,
}

#[derive(Deserialize)]
struct ChatTextMessage {
    role: String,
    content: Option<ChatTextContent>,
    #[serde(default)]
    tool_calls: Vec<ChatTextToolCall>,
}

/// Message content: a string or a list of parts.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum ChatTextContent {
    Text(String),
    Parts(Vec<ChatTextPart>),
}

#[derive(Deserialize)]
pub(super) struct ChatTextPart {
    text: Option<String>,
}

#[derive(Deserialize)]
struct ChatTextToolCall {
    function: ChatTextFunction,
}

#[derive(Deserialize)]
struct ChatTextFunction {
    #[serde(default)]
    arguments: String,
}

/// Returns the texts of the request with their authors.
pub(super) fn read_texts(body: &[u8]) -> Result<Vec<(Speaker, String)>, serde_json::Error> {
    let request: ChatTextRequest = serde_json::from_slice(body)?;
    Ok(request.messages.into_iter().flat_map(ChatTextMessage::into_texts).collect())
}

/// Returns the author for a message role.
pub(super) fn speaker_for_role(role: &str) -> Speaker {
    match role {
        "assistant" => Speaker::Model,
        "system" | "developer" => Speaker::System,
        "tool" | "function" => Speaker::Tool,
        _ => Speaker::Person,
    }
}

impl ChatTextMessage {
    /// Returns one text per part of a user message, and one text for any other message.
    fn into_texts(self) -> Vec<(Speaker, String)> {
        match (speaker_for_role(&self.role), self.content) {
            (Speaker::Person, Some(ChatTextContent::Parts(parts))) => {
                parts.into_iter().filter_map(|part| Some((Speaker::Person, part.text?))).collect()
            }
            (speaker, content) => vec![(speaker, Self { content, ..self }.text())],
        }
    }

    fn text(self) -> String {
        let content = self.content.map(ChatTextContent::text);
        join(content.into_iter().chain(self.tool_calls.into_iter().map(|call| call.function.arguments)))
    }
}

impl ChatTextContent {
    pub(super) fn text(self) -> String {
        match self {
            Self::Text(text) => text,
            Self::Parts(parts) => join(parts.into_iter().filter_map(|part| part.text)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_role_are_read() {
        let body = r#"{"messages":[{"role":"developer","content":"be good"},
            {"role":"user","content":[{"type":"text","text":"go"},{"type":"image_url","image_url":{"url":"data:"}}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"run","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"c","content":"done"}]}"#;
        let texts =
            [(Speaker::System, "be good"), (Speaker::Person, "go"), (Speaker::Model, "{}"), (Speaker::Tool, "done")];
        assert_eq!(read_texts(body.as_bytes()).unwrap(), texts.map(|(speaker, text)| (speaker, text.to_owned())));
    }
}
