//! Texts of an `OpenAI` responses request.

use serde::Deserialize;

use super::{
    Speaker,
    chat::{self, ChatTextContent},
};

#[derive(Deserialize)]
struct ResponsesTextRequest {
    instructions: Option<String>,
    input: ResponsesTextInput,
}

/// The input: a prompt or a list of items.
#[derive(Deserialize)]
#[serde(untagged)]
enum ResponsesTextInput {
    Text(String),
    Items(Vec<ResponsesTextItem>),
}

#[derive(Deserialize)]
struct ResponsesTextItem {
    #[serde(rename = "type")]
    kind: Option<String>,
    role: Option<String>,
    content: Option<ChatTextContent>,
    arguments: Option<String>,
    input: Option<String>,
    output: Option<ChatTextContent>,
}

/// Returns the texts of the request with their authors.
pub(super) fn read_texts(body: &[u8]) -> Result<Vec<(Speaker, String)>, serde_json::Error> {
    let request: ResponsesTextRequest = serde_json::from_slice(body)?;
    let instructions = request.instructions.map(|text| (Speaker::System, text));
    let texts = match request.input {
        ResponsesTextInput::Text(text) => vec![(Speaker::Person, text)],
        ResponsesTextInput::Items(items) => items.into_iter().map(ResponsesTextItem::into_text).collect(),
    };
    Ok(instructions.into_iter().chain(texts).collect())
}

impl ResponsesTextItem {
    fn into_text(self) -> (Speaker, String) {
        if let Some(role) = &self.role {
            return (chat::speaker_for_role(role), self.content.map(ChatTextContent::text).unwrap_or_default());
        }
        match self.output {
            // `function_call_output`, `custom_tool_call_output` and similar types.
            Some(output) if self.kind.is_some_and(|kind| kind.ends_with("_output")) => (Speaker::Tool, output.text()),
            _ => (Speaker::Model, self.arguments.or(self.input).unwrap_or_default()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_item_are_read() {
        let body = r#"{"instructions":"be good","input":[
            {"type":"message","role":"user","content":[{"type":"input_text","text":"go"}]},
            {"type":"reasoning","summary":[],"encrypted_content":"x"},
            {"type":"function_call","call_id":"c","name":"run","arguments":"{}"},
            {"type":"function_call_output","call_id":"c","output":"done"}]}"#;
        let texts = [
            (Speaker::System, "be good"),
            (Speaker::Person, "go"),
            (Speaker::Model, ""),
            (Speaker::Model, "{}"),
            (Speaker::Tool, "done"),
        ];
        assert_eq!(read_texts(body.as_bytes()).unwrap(), texts.map(|(speaker, text)| (speaker, text.to_owned())));
        assert_eq!(read_texts(br#"{"input":"hi"}"#).unwrap(), [(Speaker::Person, "hi".to_owned())]);
    }
}
