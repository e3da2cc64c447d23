//! Both halves of a conversation with a running agent.

use protocol::{Attachment, Draft, PermissionId, PermissionReply, QuestionId, TurnOutcome};

/// One running agent's protocol: its lines to events, our answers to its lines.
///
/// Pure and total: no input makes it panic, what it does not understand becomes an event with `raw`.
/// It emits items, permissions, questions, errors and `agent.unparsed`; turns and the session's own
/// start and end are the caller's.
pub trait Dialogue: Send {
    /// What to do before the first prompt.
    fn open(&mut self) -> Vec<Output>;
    /// Hands a prompt to the agent.
    fn prompt(&mut self, prompt: &Prompt) -> Vec<Output>;
    /// Reads one line of the agent's stdout, without its newline.
    fn line(&mut self, line: &[u8]) -> Vec<Output>;
    /// Answers a permission the agent asked for.
    fn permission(&mut self, id: &PermissionId, reply: PermissionReply) -> Vec<Output>;
    /// Answers a question, or rejects it with `None`.
    fn question(&mut self, id: &QuestionId, answers: Option<&[Vec<String>]>) -> Vec<Output>;
    /// Asks the agent to stop the turn.
    fn interrupt(&mut self) -> Vec<Output>;
}

/// What a person says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prompt {
    /// The words.
    pub text: String,
    /// Files that go with them.
    pub attachments: Vec<Attachment>,
}

/// What a dialogue wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Output {
    /// Record this.
    Event(Draft),
    /// Write this line to the agent's stdin; the newline is the writer's.
    Send(String),
    /// The agent named its own session.
    NativeSession(String),
    /// The turn is over.
    TurnEnded(TurnOutcome),
}
