//! What is said in a Gemini request.

use serde::Deserialize;
use serde_json::Value;

use super::{Speaker, join};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    #[serde(alias = "system_instruction")]
    system_instruction: Option<Content>,
    contents: Vec<Content>,
}

#[derive(Deserialize)]
struct Content {
    #[serde(default)]
    role: String,
    #[serde(default)]
    parts: Vec<Part>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Part {
    text: Option<String>,
    function_call: Option<FunctionCall>,
    function_response: Option<FunctionResponse>,
}

#[derive(Deserialize)]
struct FunctionCall {
    #[serde(default)]
    args: Value,
}

#[derive(Deserialize)]
struct FunctionResponse {
    #[serde(default)]
    response: Value,
}

/// Who says what in a Gemini request.
pub(super) fn read(body: &[u8]) -> Result<Vec<(Speaker, String)>, serde_json::Error> {
    let request: Request = serde_json::from_slice(body)?;
    let system = request.system_instruction.map(|content| (Speaker::System, content.text()));
    let said = request.contents.into_iter().flat_map(Content::said);
    Ok(system.into_iter().chain(said).collect())
}

impl Content {
    /// A person's parts are apart, as in every other API.
    fn said(self) -> Vec<(Speaker, String)> {
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
        join(self.parts.into_iter().map(Part::text))
    }
}

impl Part {
    fn text(self) -> String {
        let called = self.function_call.map(|call| call.args.to_string());
        let answered = self.function_response.map(|response| match response.response.get("output") {
            Some(Value::String(output)) => output.clone(),
            _ => response.response.to_string(),
        });
        self.text.or(called).or(answered).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_is_heard() {
        let body = r#"{"systemInstruction":{"parts":[{"text":"be good"}]},"contents":[
            {"role":"user","parts":[{"text":"go"}]},
            {"role":"model","parts":[{"functionCall":{"name":"run","args":{"a":1}}}]},
            {"role":"user","parts":[{"functionResponse":{"name":"run","response":{"output":"done"}}}]}]}"#;
        let said = [
            (Speaker::System, "be good"),
            (Speaker::Person, "go"),
            (Speaker::Model, "{\"a\":1}"),
            (Speaker::Tool, "done"),
        ];
        assert_eq!(read(body.as_bytes()).unwrap(), said.map(|(speaker, text)| (speaker, text.to_owned())));
    }
}
