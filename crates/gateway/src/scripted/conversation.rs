//! What a script can see of a request: its texts, and how far the conversation has come.

use serde::Deserialize;
use serde_json::Value;

/// A request, as a script sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Conversation {
    pub(super) model: String,
    pub(super) stream: bool,
    /// The last thing a person said.
    pub(super) prompt: String,
    /// Everything anybody said, tools included.
    pub(super) text: String,
    /// What the tools just gave back, if they were last to speak.
    pub(super) tool_result: Option<String>,
    /// How many prompts there were.
    pub(super) turn: u64,
    /// Which answer to the last prompt this will be, from 1.
    pub(super) step: u64,
    /// Characters the model has to read.
    pub(super) input_chars: usize,
}

/// Who said one piece of a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    Person,
    Model,
    Tool,
    System,
}

impl Conversation {
    /// Puts a conversation together from who said what, in order.
    pub(super) fn of(model: String, stream: bool, said: impl IntoIterator<Item = (Speaker, String)>) -> Self {
        let mut conversation = Self { model, stream, step: 1, ..Self::default() };
        for (speaker, text) in said {
            conversation.hear(speaker, text);
        }
        conversation
    }

    fn hear(&mut self, speaker: Speaker, text: String) {
        self.input_chars += text.chars().count();
        if speaker != Speaker::System {
            if !self.text.is_empty() {
                self.text.push('\n');
            }
            self.text.push_str(&text);
        }
        match speaker {
            Speaker::Person => {
                self.turn += 1;
                self.step = 1;
                self.tool_result = None;
                self.prompt = text;
            }
            Speaker::Model => {
                self.step += 1;
                self.tool_result = None;
            }
            Speaker::Tool => match &mut self.tool_result {
                Some(results) => {
                    results.push('\n');
                    results.push_str(&text);
                }
                None => self.tool_result = Some(text),
            },
            Speaker::System => {}
        }
    }
}

#[derive(Deserialize)]
struct MessagesRequest {
    model: String,
    #[serde(default)]
    stream: bool,
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

/// Reads the body of an Anthropic Messages request.
pub(super) fn read_messages(body: &[u8]) -> Result<Conversation, serde_json::Error> {
    let request: MessagesRequest = serde_json::from_slice(body)?;
    let system = request.system.iter().map(|system| (Speaker::System, system.text()));
    let said = request.messages.iter().map(|message| (message.speaker(), message.content.text()));
    Ok(Conversation::of(request.model, request.stream, system.chain(said)))
}

impl Message {
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

fn join(texts: impl Iterator<Item = String>) -> String {
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_knows_its_prompt_turn_and_step() {
        let body = r#"{"model":"m","system":[{"type":"text","text":"be good"}],"messages":[
            {"role":"user","content":"first"},
            {"role":"assistant","content":[{"type":"text","text":"ok"}]},
            {"role":"user","content":[{"type":"text","text":"second"},{"type":"text","text":"please"}]},
            {"role":"assistant","content":[{"type":"tool_use","id":"t","name":"run","input":{"a":1}}]},
            {"role":"user","content":[{"type":"tool_result","tool_use_id":"t","content":[{"type":"text","text":"done"}]},
                                      {"type":"text","text":"<reminder>"}]}]}"#;
        let conversation = read_messages(body.as_bytes()).unwrap();
        assert_eq!(conversation.prompt, "second\nplease");
        assert_eq!(conversation.tool_result.as_deref(), Some("done"));
        assert_eq!((conversation.turn, conversation.step), (2, 2));
        assert_eq!(conversation.text, "first\nok\nsecond\nplease\n{\"a\":1}\ndone");
    }

    #[test]
    fn what_is_no_request_is_refused() {
        assert!(read_messages(b"{\"model\":\"m\"}").is_err());
        assert!(read_messages(br#"{"model":"m","messages":[{"role":"user"}]}"#).is_err());
    }
}
