//! What is said in an Anthropic Messages request.

use serde::Deserialize;
use serde_json::Value;

use super::{Speaker, join};

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    system: Option<Content>,
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Content,
}

/// A text, or a list of blocks.
#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Blocks(Vec<Block>),
}

#[derive(Deserialize)]
struct Block {
    #[serde(rename = "type")]
    kind: String,
    text: Option<String>,
    thinking: Option<String>,
    input: Option<Value>,
    content: Option<Content>,
}

/// Who says what in an Anthropic Messages request.
pub(super) fn read(body: &[u8]) -> Result<Vec<(Speaker, String)>, serde_json::Error> {
    let request: Request = serde_json::from_slice(body)?;
    let system = request.system.iter().map(|system| (Speaker::System, system.text()));
    let said = request.messages.iter().flat_map(Message::said);
    Ok(system.chain(said).collect())
}

impl Message {
    /// A person's blocks are apart: agents put notes, and what was said before and never answered, beside the
    /// last prompt.
    fn said(&self) -> Vec<(Speaker, String)> {
        let speaker = self.speaker();
        match &self.content {
            Content::Blocks(blocks) if speaker == Speaker::Person => {
                blocks.iter().map(|block| (speaker, block.words())).filter(|(_, words)| !words.is_empty()).collect()
            }
            content => vec![(speaker, content.text())],
        }
    }

    fn speaker(&self) -> Speaker {
        match &*self.role {
            "assistant" => Speaker::Model,
            "system" => Speaker::System,
            // Agents add reminders beside the results of their tools: those are no new prompt.
            _ if self.content.has("tool_result") => Speaker::Tool,
            _ => Speaker::Person,
        }
    }
}

impl Content {
    fn has(&self, kind: &str) -> bool {
        matches!(self, Self::Blocks(blocks) if blocks.iter().any(|block| block.kind == kind))
    }

    fn text(&self) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Blocks(blocks) if self.has("tool_result") => {
                join(blocks.iter().filter(|block| block.kind == "tool_result").map(Block::words))
            }
            Self::Blocks(blocks) => join(blocks.iter().map(Block::words)),
        }
    }
}

impl Block {
    fn words(&self) -> String {
        let input = || self.input.as_ref().map(Value::to_string);
        let inner = || self.content.as_ref().map(Content::text);
        self.text.clone().or_else(|| self.thinking.clone()).or_else(input).or_else(inner).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_of_tools_are_told_from_prompts() {
        let body = r#"{"system":[{"type":"text","text":"be good"}],"messages":[
            {"role":"user","content":[{"type":"text","text":"<system-reminder>today</system-reminder>"},{"type":"text","text":"go"},{"type":"text","text":"please"}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"run","input":{"a":1}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"done"}]},
                                      {"type":"text","text":"<reminder>"}]}]}"#;
        let said = [
            (Speaker::System, "be good"),
            (Speaker::Person, "<system-reminder>today</system-reminder>"),
            (Speaker::Person, "go"),
            (Speaker::Person, "please"),
            (Speaker::Model, "{\"a\":1}"),
            (Speaker::Tool, "done"),
        ];
        assert_eq!(read(body.as_bytes()).unwrap(), said.map(|(speaker, text)| (speaker, text.to_owned())));
    }

    #[test]
    fn what_is_no_request_is_refused() {
        assert!(read(b"{\"model\":\"m\"}").is_err());
        assert!(read(br#"{"messages":[{"role":"user"}]}"#).is_err());
    }
}
