//! The protocol of a running agent: its lines become events, and answers become lines.

use protocol::{Attachment, EventDraft, PermissionId, PermissionReply, QuestionId, TurnOutcome};

/// The protocol of one running agent.
///
/// A dialogue never panics, whatever the input. A line that it does not understand becomes an event with `raw`. It
/// emits items, permissions, questions, errors and `agent.unparsed`.
///
/// The caller emits turns, the start and end of the session, and the `resolved` event of an answer. If the *agent*
/// withdraws a request, the dialogue emits `permission.resolved` or `question.resolved`, and the caller must not answer
/// it.
pub trait Dialogue: Send {
    /// Starts the conversation. Called once, before the first prompt.
    fn open(&mut self) -> Vec<DialogueOutput>;
    /// Sends a prompt to the agent.
    fn send_prompt(&mut self, prompt: &Prompt) -> Vec<DialogueOutput>;
    /// Handles one line of the agent's stdout, without its newline.
    fn read_line(&mut self, line: &[u8]) -> Vec<DialogueOutput>;
    /// Answers a permission request. An id that is not pending has no effect.
    fn answer_permission(&mut self, id: &PermissionId, reply: PermissionReply) -> Vec<DialogueOutput>;
    /// Answers a question; `None` rejects it. An id that is not pending has no effect.
    fn answer_question(&mut self, id: &QuestionId, answers: Option<&[Vec<String>]>) -> Vec<DialogueOutput>;
    /// Asks the agent to stop the turn.
    fn interrupt(&mut self) -> Vec<DialogueOutput>;
}

/// A prompt for an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prompt {
    /// The text.
    pub text: String,
    /// Attached files.
    pub attachments: Vec<Attachment>,
    /// The attached files that are images, for models that accept them.
    pub images: Vec<PromptImage>,
}

/// An image in a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PromptImage {
    /// The path, as given by the client.
    pub path: String,
    /// The media type.
    pub mime: String,
    /// The content, in Base64.
    pub data: String,
}

impl Prompt {
    /// Returns a prompt with a text and no attachments.
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: text.into(), ..Self::default() }
    }

    /// Returns the text followed by the paths of the attached files, which every agent can read in the workspace.
    pub(crate) fn with_attachments_named(&self) -> String {
        self.attachments.iter().fold(self.text.clone(), |text, file| format!("{text}\n[attached file: {}]", file.path))
    }
}

/// An effect that a dialogue requests.
#[derive(Debug, Clone, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "nearly every output is an event")]
pub enum DialogueOutput {
    /// Record this event.
    Event(EventDraft),
    /// Write this line to the agent's stdin; the writer adds the newline.
    Send(String),
    /// The agent reported the id of its own session.
    NativeSession(String),
    /// The turn ended.
    TurnEnded(TurnOutcome),
}
