//! What is said in an `OpenAI` responses request.

use serde::Deserialize;

use super::{
    Speaker,
    chat::{self, Content},
};

#[derive(Deserialize)]
struct Request {
    instructions: Option<String>,
    input: Input,
}

/// A prompt, or a list of what happened so far.
#[derive(Deserialize)]
#[serde(untagged)]
enum Input {
    Text(String),
    Items(Vec<Item>),
}

#[derive(Deserialize)]
struct Item {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<Content>,
    arguments: Option<String>,
    input: Option<String>,
    output: Option<Content>,
}

/// Who says what in a responses request.
pub(super) fn read(body: &[u8]) -> Result<Vec<(Speaker, String)>, serde_json::Error> {
    let request: Request = serde_json::from_slice(body)?;
    let instructions = request.instructions.map(|text| (Speaker::System, text));
    let said = match request.input {
        Input::Text(text) => vec![(Speaker::Person, text)],
        Input::Items(items) => items.into_iter().map(Item::said).collect(),
    };
    Ok(instructions.into_iter().chain(said).collect())
}

impl Item {
    fn said(self) -> (Speaker, String) {
        if let Some(role) = &self.role {
            return (chat::speaker(role), self.content.map(Content::text).unwrap_or_default());
        }
        match self.output {
            // `function_call_output`, `custom_tool_call_output` and their like.
            Some(output) if self.kind.is_some_and(|kind| kind.ends_with("_output")) => (Speaker::Tool, output.text()),
            _ => (Speaker::Model, self.arguments.or(self.input).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_item_is_heard() {
        let body = r#"{"instructions":"be good","input":[
            {"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]},
            {"type":"reasoning","summary":[],"encrypted_content":"x"},
            {"type":"function_call","call_id":"c","name":"run","arguments":"{}"},
            {"type":"function_call_output","call_id":"c","output":"done"}]}"#;
        let said = [
            (Speaker::System, "be good"),
            (Speaker::Person, "go"),
            (Speaker::Model, ""),
            (Speaker::Model, "{}"),
            (Speaker::Tool, "done"),
        ];
        assert_eq!(read(body.as_bytes()).unwrap(), said.map(|(speaker, text)| (speaker, text.to_owned())));
        assert_eq!(read(br#"{"input":"hi"}"#).unwrap(), [(Speaker::Person, "hi".to_owned())]);
    }
}
