//! What is said in an `OpenAI` chat completions request.

use serde::Deserialize;

use super::{Speaker, join};

#[derive(Deserialize)]
struct Request {
    messages: Vec<Message>,
}

#[derive(Deserialize)]
struct Message {
    role: String,
    content: Option<Content>,
    #[serde(default)]
    tool_calls: Vec<ToolCall>,
}

/// A text, or a list of parts.
#[derive(Deserialize)]
#[serde(untagged)]
pub(super) enum Content {
    Text(String),
    Parts(Vec<Part>),
}

#[derive(Deserialize)]
pub(super) struct Part {
    text: Option<String>,
}

#[derive(Deserialize)]
struct ToolCall {
    function: Function,
}

#[derive(Deserialize)]
struct Function {
    #[serde(default)]
    arguments: String,
}

/// Who says what in a chat completions request.
pub(super) fn read(body: &[u8]) -> Result<Vec<(Speaker, String)>, serde_json::Error> {
    let request: Request = serde_json::from_slice(body)?;
    Ok(request.messages.into_iter().flat_map(Message::said).collect())
}

/// Who a role stands for.
pub(super) fn speaker(role: &str) -> Speaker {
    match role {
        "assistant" => Speaker::Model,
        "system" | "developer" => Speaker::System,
        "tool" | "function" => Speaker::Tool,
        _ => Speaker::Person,
    }
}

impl Message {
    /// A person's parts are apart, as in every other API.
    fn said(self) -> Vec<(Speaker, String)> {
        match (speaker(&self.role), self.content) {
            (Speaker::Person, Some(Content::Parts(parts))) => {
                parts.into_iter().filter_map(|part| Some((Speaker::Person, part.text?))).collect()
            }
            (speaker, content) => vec![(speaker, Self { content, ..self }.text())],
        }
    }

    fn text(self) -> String {
        let words = self.content.map(Content::text);
        join(words.into_iter().chain(self.tool_calls.into_iter().map(|call| call.function.arguments)))
    }
}

impl Content {
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
    fn every_role_is_heard() {
        let body = r#"{"messages":[{"role":"developer","content":"be good"},
            {"role":"user","content":[{"type":"text","text":"go"},{"type":"image_url","image_url":{"url":"data:"}}]},
            {"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"run","arguments":"{}"}}]},
            {"role":"tool","tool_call_id":"c","content":"done"}]}"#;
        let said =
            [(Speaker::System, "be good"), (Speaker::Person, "go"), (Speaker::Model, "{}"), (Speaker::Tool, "done")];
        assert_eq!(read(body.as_bytes()).unwrap(), said.map(|(speaker, text)| (speaker, text.to_owned())));
    }
}
