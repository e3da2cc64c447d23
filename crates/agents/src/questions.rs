//! Questions with options, in the format that the tools of several agents use.

use protocol::QuestionId;
use serde_json::{Value, json};

use crate::transcript::Transcript;

/// Asks the questions in `list`, each `{question, header, options: [{label, description}]}`.
///
/// The event shows the first question; its metadata contains the whole list.
pub(crate) fn ask(transcript: &mut Transcript, list: &[Value]) -> QuestionId {
    let first = list.first().unwrap_or(&Value::Null);
    let prompt = first["question"].as_str().unwrap_or("The agent asks.");
    let options = first["options"].as_array().into_iter().flatten();
    let labels = options.filter_map(|option| option["label"].as_str().or(option.as_str())).map(str::to_owned).collect();
    transcript.request_question(prompt, labels, Some(json!({ "questions": list })))
}
