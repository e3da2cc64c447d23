//! Texts of an Anthropic Messages request.

use serde::Deserialize;
use serde_json::Value;

use super::{Speaker, join};

#[derive(Deserialize)]
struct MessagesTextRequest {
    #[serde(default)]
    system: Option<MessagesTextContent>,
    messages: Vec<MessagesTextMessage>,
}

#[derive(Deserialize)]
struct MessagesTextMessage {
    role: String,
    content: MessagesTextContent,
}

/// Message content: a string or a list of blocks.
#[derive(Deserialize)]
#[serde(untagged)]
enum MessagesTextContent {
    Text(String),
    Blocks(Vec<MessagesTextBlock>),
}

#[derive(Deserialize)]
struct MessagesTextBlock {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    input: Option<Value>,
    content: Option<MessagesTextContent>,
}

/// Returns the texts of the request with their authors.
pub(super) fn read_texts(body: &[u8]) -> Result<Vec<(Speaker, String)>, serde_json::Error> {
    let request: MessagesTextRequest = serde_json::from_slice(body)?;
    let system = request.system.iter().map(|system| (Speaker::System, system.text()));
    let texts = request.messages.iter().flat_map(MessagesTextMessage::texts);
    Ok(system.chain(texts).collect())
}

impl MessagesTextMessage {
    /// Returns one text per block of a user message, and one text for any other message.
    ///
    /// Agents put reminders and earlier unanswered prompts into the same message as the last prompt.
    fn texts(&self) -> Vec<(Speaker, String)> {
        let speaker = self.speaker();
        match &self.content {
            MessagesTextContent::Blocks(blocks) if speaker == Speaker::Person => {
                blocks.iter().map(|block| (speaker, block.text())).filter(|(_, text)| !text.is_empty()).collect()
            }
            content => vec![(speaker, content.text())],
        }
    }

    fn speaker(&self) -> Speaker {
        match &*self.role {
            "assistant" => Speaker::Model,
            "system" => Speaker::System,
            // Agents add reminders to messages with tool results; such a message is not a new prompt.
            _ if self.content.has_block("tool_result") => Speaker::Tool,
            _ => Speaker::Person,
        }
    }
}

impl MessagesTextContent {
    fn has_block(&self, kind: &str) -> bool {
        matches!(self, Self::Blocks(blocks) if blocks.iter().any(|block| block.kind == kind))
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) if self.has_block("tool_result") => {
                join(blocks.iter().filter(|block| block.kind == "tool_result").map(MessagesTextBlock::text))
            }
            Self::Blocks(blocks) => join(blocks.iter().map(MessagesTextBlock::text)),
        }
    }
}

impl MessagesTextBlock {
    fn text(&self) -> String {
        let input = || self.input.as_ref().map(Value::to_string);
        let inner = || self.content.as_ref().map(MessagesTextContent::text);
        self.text.clone().or_else(|| self.thinking.clone()).or_else(input).or_else(inner).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tool_results_are_distinguished_from_prompts() {
        let body = r#"{"system":[{"type":"text","text":"be good"}],"messages":[
            {"role":"user","content":[{"type":"text","text":"<system-reminder>today</system-reminder>"},{"type":"text","text":"go"},{"type":"text","text":"please"}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"run","input":{"a":1}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"done"}]},
                                      {"type":"text","text":"<reminder>"}]}]}"#;
        let texts = [
            (Speaker::System, "be good"),
            (Speaker::Person, "<system-reminder>today</system-reminder>"),
            (Speaker::Person, "go"),
            (Speaker::Person, "please"),
            (Speaker::Model, "{\"a\":1}"),
            (Speaker::Tool, "done"),
        ];
        assert_eq!(read_texts(body.as_bytes()).unwrap(), texts.map(|(speaker, text)| (speaker, text.to_owned())));
    }

    #[test]
    fn body_without_messages_or_content_is_rejected() {
        assert!(read_texts(b"{\"model\":\"m\"}").is_err());
        assert!(read_texts(br#"{"messages":[{"role":"user"}]}"#).is_err());
    }
}
