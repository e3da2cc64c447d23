//! Both halves of a conversation with a running agent.

use protocol::{Attachment, EventDraft, PermissionId, PermissionReply, QuestionId, TurnOutcome};

/// One running agent's protocol: its lines to events, our answers to its lines.
///
/// Pure and total: no input makes it panic, what it does not understand becomes an event with `raw`.
/// It emits items, permissions, questions, errors and `agent.unparsed`. Turns, the session's own start
/// and end, and the `resolved` event of an answer are the caller's: only when the *agent* withdraws what
/// it asked does the dialogue emit `permission.resolved` or `question.resolved` itself, and the caller
/// must then no longer answer it.
pub trait Dialogue: Send {
    /// What to do before the first prompt.
    fn open(&mut self) -> Vec<DialogueOutput>;
    /// Hands a prompt to the agent.
    fn send_prompt(&mut self, prompt: &Prompt) -> Vec<DialogueOutput>;
    /// Reads one line of the agent's stdout, without its newline.
    fn read_line(&mut self, line: &[u8]) -> Vec<DialogueOutput>;
    /// Answers a permission the agent asked for. An id that is not pending does nothing.
    fn answer_permission(&mut self, id: &PermissionId, reply: PermissionReply) -> Vec<DialogueOutput>;
    /// Answers a question, or rejects it with `None`. An id that is not pending does nothing.
    fn answer_question(&mut self, id: &QuestionId, answers: Option<&[Vec<String>]>) -> Vec<DialogueOutput>;
    /// Asks the agent to stop the turn.
    fn interrupt(&mut self) -> Vec<DialogueOutput>;
}

/// What a person says.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The words.
    pub text: String,
    /// Files that go with them.
    pub attachments: Vec<Attachment>,
    /// Those of them that are pictures, for models that can look at them.
    pub images: Vec<PromptImage>,
}

/// A picture that goes with a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptImage {
    /// Where it is, as the person named it.
    pub path: String,
    /// Its media type.
    pub mime: String,
    /// Its bytes, in Base64.
    pub data: String,
}

impl Prompt {
    /// A prompt of words alone.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// The words, and below them the paths of the files: every agent can read its workspace.
    pub(crate) fn with_attachments_named(&self) -> String {
        self.attachments.iter().fold(self.text.clone(), |text, file| format!("{text}\n[attached file: {}]", file.path))
    }
}

/// What a dialogue wants done.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly every output is an event")]
pub enum DialogueOutput {
    /// Record this.
    Event(EventDraft),
    /// Write this line to the agent's stdin; the newline is the writer's.
    Send(String),
    /// The agent named its own session.
    NativeSession(String),
    /// The turn is over.
    TurnEnded(TurnOutcome),
}
