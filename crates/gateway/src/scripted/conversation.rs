//! The view that a script has of a request: its texts, turn and step.
//!
//! A submodule per API extracts the texts. Their request types hold only the fields with text; `translate` has the
//! complete ones.

mod chat;
mod gemini;
mod messages;
mod reminders;
mod responses;

use crate::{endpoint::ModelEndpoint, upstream::UpstreamRequest};

/// A request as the conditions of a script see it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Conversation {
    pub(super) model: String,
    /// The last user message, without the reminders that agents add.
    pub(super) prompt: String,
    /// All texts except system prompts, one per line; tool calls and results included.
    pub(super) text: String,
    /// The tool results at the end of the conversation, if it ends with any.
    pub(super) tool_result: Option<String>,
    /// Number of prompts so far.
    pub(super) turn: u64,
    /// Number of this answer to the last prompt, from 1.
    pub(super) step: u64,
    /// Characters of the whole input, system prompts included.
    pub(super) input_chars: usize,
    last_speaker: Option<Speaker>,
}

/// The author of a text in a conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Speaker {
    Person,
    Model,
    Tool,
    System,
}

impl Conversation {
    /// Reads the request body in the format of its API; fails if the body is not valid JSON of that API.
    pub(super) fn read(request: &UpstreamRequest) -> Result<Self, serde_json::Error> {
        let texts = match request.endpoint {
            ModelEndpoint::Messages | ModelEndpoint::CountTokens => messages::read_texts(&request.body),
            ModelEndpoint::ChatCompletions => chat::read_texts(&request.body),
            ModelEndpoint::Responses => responses::read_texts(&request.body),
            ModelEndpoint::GenerateContent | ModelEndpoint::StreamGenerateContent => gemini::read_texts(&request.body),
        };
        Ok(Self::from_texts(request.model.clone(), texts?))
    }

    /// Builds a conversation from its texts in order.
    fn from_texts(model: String, texts: impl IntoIterator<Item = (Speaker, String)>) -> Self {
        let mut conversation = Self { model, step: 1, ..Self::default() };
        for (speaker, text) in texts {
            conversation.add_text(speaker, text);
        }
        conversation
    }

    fn add_text(&mut self, speaker: Speaker, text: String) {
        self.input_chars += text.chars().count();
        if speaker != Speaker::System {
            if !self.text.is_empty() {
                self.text.push('\n');
            }
            self.text.push_str(&text);
        }
        // Some APIs split one message into several items.
        let continues = self.last_speaker == Some(speaker);
        match speaker {
            Speaker::Person => {
                self.turn += u64::from(!continues);
                self.step = 1;
                self.tool_result = None;
                let stripped = reminders::strip_reminders(&text);
                // A text with nothing but reminders is a prompt only if no other text precedes it.
                if !stripped.is_empty() || !continues {
                    self.prompt = if stripped.is_empty() { text } else { stripped.to_owned() };
                }
            }
            Speaker::Model => {
                self.step += u64::from(!continues);
                self.tool_result = None;
            }
            Speaker::Tool => match &mut self.tool_result {
                Some(results) => {
                    results.push('\n');
                    results.push_str(&text);
                }
                None => self.tool_result = Some(text),
            },
            Speaker::System => return,
        }
        self.last_speaker = Some(speaker);
    }
}

/// Joins the non-empty texts with line breaks.
fn join(texts: impl Iterator<Item = String>) -> String {
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prompt_turn_step_and_tool_result_are_derived_from_the_texts() {
        use Speaker::{Model, Person, System, Tool};
        let texts = [
            (System, "be good"),
            (Person, "first"),
            (Model, "ok"),
            (Person, "<where we are>"),
            (System, "still good"),
            (Person, "second"),
            (Model, "let me see"),
            (Model, "run a"),
            (Tool, "one"),
            (Tool, "two"),
        ];
        let conversation =
            Conversation::from_texts("m".into(), texts.map(|(speaker, text)| (speaker, text.to_owned())));
        assert_eq!(conversation.prompt, "second");
        assert_eq!(conversation.tool_result.as_deref(), Some("one\ntwo"));
        assert_eq!((conversation.turn, conversation.step), (2, 2));
        assert_eq!(conversation.text, "first\nok\n<where we are>\nsecond\nlet me see\nrun a\none\ntwo");
    }
}
