//! Texts of a Gemini request.

use serde::Deserialize;
use serde_json::Value;

use super::{Speaker, join};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiTextRequest {
    #[serde(alias = "system_instruction")]
    system_instruction: Option<GeminiTextContent>,
    contents: Vec<GeminiTextContent>,
}

#[derive(Deserialize)]
struct GeminiTextContent {
    #[serde(default)]
    role: String,
    #[serde(default)]
    parts: Vec<GeminiTextPart>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct GeminiTextPart {
    text: Option<String>,
    function_call: Option<GeminiTextCall>,
    function_response: Option<GeminiTextResult>,
}

#[derive(Deserialize)]
struct GeminiTextCall {
    #[serde(default)]
    args: Value,
}

#[derive(Deserialize)]
struct GeminiTextResult {
    #[serde(default)]
    response: Value,
}

/// Returns the texts of the request with their authors.
pub(super) fn read_texts(body: &[u8]) -> Result<Vec<(Speaker, String)>, serde_json::Error> {
    let request: GeminiTextRequest = serde_json::from_slice(body)?;
    let system = request.system_instruction.map(|content| (Speaker::System, content.text()));
    let texts = request.contents.into_iter().flat_map(GeminiTextContent::into_texts);
    Ok(system.into_iter().chain(texts).collect())
}

impl GeminiTextContent {
    /// Returns one text per part of a user message, and one text for any other message.
    fn into_texts(self) -> Vec<(Speaker, String)> {
        match self.speaker() {
            Speaker::Person => self.parts.into_iter().map(|part| (Speaker::Person, part.text())).collect(),
            speaker => vec![(speaker, self.text())],
        }
    }

    fn speaker(&self) -> Speaker {
        if self.parts.iter().any(|part| part.function_response.is_some()) {
            Speaker::Tool
        } else if self.role == "model" {
            Speaker::Model
        } else {
            Speaker::Person
        }
    }

    fn text(self) -> String {
        join(self.parts.into_iter().map(GeminiTextPart::text))
    }
}

impl GeminiTextPart {
    fn text(self) -> String {
        let arguments = self.function_call.map(|call| call.args.to_string());
        let result = self.function_response.map(|response| match response.response.get("output") {
            Some(Value::String(output)) => output.clone(),
            _ => response.response.to_string(),
        });
        self.text.or(arguments).or(result).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_every_part_are_read() {
        let body = r#"{"systemInstruction":{"parts":[{"text":"be good"}]},"contents":[
            {"role":"user","parts":[{"text":"go"}]},
            {"role":"model","parts":[{"functionCall":{"name":"run","args":{"a":1}}}]},
            {"role":"user","parts":[{"functionResponse":{"name":"run","response":{"output":"done"}}}]}]}"#;
        let texts = [
            (Speaker::System, "be good"),
            (Speaker::Person, "go"),
            (Speaker::Model, "{\"a\":1}"),
            (Speaker::Tool, "done"),
        ];
        assert_eq!(read_texts(body.as_bytes()).unwrap(), texts.map(|(speaker, text)| (speaker, text.to_owned())));
    }
}
