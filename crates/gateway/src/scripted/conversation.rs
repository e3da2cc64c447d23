//! What a script can see of a request: its texts, and how far the conversation has come.

mod chat;
mod contents;
mod messages;
mod notes;
mod responses;

use crate::{endpoint::ModelEndpoint, upstream::UpstreamRequest};

/// A request, as a script sees it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Conversation {
    pub(super) model: String,
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
    /// Who spoke last.
    last: Option<Speaker>,
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
    /// Reads a request, in whichever API's words.
    pub(super) fn read(request: &UpstreamRequest) -> Result<Self, serde_json::Error> {
        let said = match request.endpoint {
            ModelEndpoint::Messages | ModelEndpoint::CountTokens => messages::read(&request.body),
            ModelEndpoint::ChatCompletions => chat::read(&request.body),
            ModelEndpoint::Responses => responses::read(&request.body),
            ModelEndpoint::GenerateContent | ModelEndpoint::StreamGenerateContent => contents::read(&request.body),
        };
        Ok(Self::of(request.model.clone(), said?))
    }

    /// Puts a conversation together from who said what, in order.
    fn of(model: String, said: impl IntoIterator<Item = (Speaker, String)>) -> Self {
        let mut conversation = Self { model, step: 1, ..Self::default() };
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
        // Some APIs cut what one speaker says into several pieces.
        let goes_on = self.last == Some(speaker);
        match speaker {
            Speaker::Person => {
                self.turn += u64::from(!goes_on);
                self.step = 1;
                self.tool_result = None;
                let words = notes::without(&text);
                // Notes alone say nothing, unless nothing else was said.
                if !words.is_empty() || !goes_on {
                    self.prompt = if words.is_empty() { text } else { words.to_owned() };
                }
            }
            Speaker::Model => {
                self.step += u64::from(!goes_on);
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
        self.last = Some(speaker);
    }
}

/// Texts, one a line, without the empty ones.
fn join(texts: impl Iterator<Item = String>) -> String {
    texts.filter(|text| !text.is_empty()).collect::<Vec<_>>().join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversation_knows_its_prompt_turn_and_step() {
        use Speaker::{Model, Person, System, Tool};
        let said = [
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
        let conversation = Conversation::of("m".into(), said.map(|(speaker, text)| (speaker, text.to_owned())));
        assert_eq!(conversation.prompt, "second");
        assert_eq!(conversation.tool_result.as_deref(), Some("one\ntwo"));
        assert_eq!((conversation.turn, conversation.step), (2, 2));
        assert_eq!(conversation.text, "first\nok\n<where we are>\nsecond\nlet me see\nrun a\none\ntwo");
    }
}
