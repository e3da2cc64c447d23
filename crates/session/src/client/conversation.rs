//! Conversations: sessions of several turns.

use protocol::{Event, PermissionId, PermissionReply, QuestionId, SessionId};

use super::run_options::{RunOptions, setters};
use super::turn_reader::TurnReader;
use super::{AgentClient, AgentResponse, GoalError};
use crate::{SessionError, Sessions, UserMessage};

/// Configures a [`Conversation`].
#[must_use = "nothing is started before `open`"]
pub struct ConversationBuilder {
    client: AgentClient,
    options: RunOptions,
}

impl ConversationBuilder {
    pub(super) fn new(client: AgentClient) -> Self {
        Self { client, options: RunOptions::default() }
    }

    setters!();

    /// Creates the session and starts its agent.
    pub async fn open(self) -> Result<Conversation, GoalError> {
        Ok(self.client.open(self.options).await?)
    }
}

/// A session of several turns.
///
/// Dropping it does not end the session; [`Conversation::end`] and [`AgentClient::close`] do.
///
/// ```no_run
/// # async fn run(client: session::AgentClient) -> Result<(), session::GoalError> {
/// let conversation = client.conversation().workspace("/home/you/project").open().await?;
/// let plan = conversation.ask("What would you change first?").await?;
/// println!("{}", plan.text);
///
/// // The same, event by event.
/// let mut reading = conversation.stream("Do it.").await?;
/// while let Some(event) = reading.next().await? {
///     println!("{}", event.draft.body.kind());
/// }
/// println!("{:?}", reading.finish().await?.changes);
/// conversation.end().await?;
/// # Ok(()) }
/// ```
pub struct Conversation {
    sessions: Sessions,
    id: SessionId,
    options: RunOptions,
}

impl Conversation {
    pub(super) fn new(sessions: Sessions, id: SessionId, options: RunOptions) -> Self {
        Self { sessions, id, options }
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Sends a prompt and waits for the end of its turn.
    pub async fn ask(&self, text: impl Into<String>) -> Result<AgentResponse, GoalError> {
        self.stream(text).await?.finish().await
    }

    /// Sends a prompt and waits for the end of its turn, with another timeout than the configured one.
    pub async fn ask_within(
        &self,
        text: impl Into<String>,
        limit: std::time::Duration,
    ) -> Result<AgentResponse, GoalError> {
        let options = RunOptions { timeout: Some(limit), ..self.options.clone() };
        self.read(text.into(), options).await?.finish().await
    }

    /// Sends a prompt and returns a reader of the turn's events.
    pub async fn stream(&self, text: impl Into<String>) -> Result<TurnReader, GoalError> {
        self.read(text.into(), self.options.clone()).await
    }

    async fn read(&self, text: String, options: RunOptions) -> Result<TurnReader, GoalError> {
        let journal = self.sessions.journal(&self.id)?;
        let accepted = self.sessions.send(&self.id, UserMessage::text(text)).await?;
        Ok(TurnReader::new(self.sessions.clone(), self.id.clone(), options, journal, accepted))
    }

    /// Asks the agent to stop its turn.
    pub async fn interrupt(&self) -> Result<(), GoalError> {
        Ok(self.sessions.interrupt(&self.id).await?)
    }

    /// Answers a permission request.
    pub async fn reply_permission(&self, permission: &PermissionId, answer: PermissionReply) -> Result<(), GoalError> {
        Ok(self.sessions.reply_permission(&self.id, permission, answer).await?)
    }

    /// Answers a question, with a list of answers for each part; `None` rejects it.
    pub async fn reply_question(
        &self,
        question: &QuestionId,
        answers: Option<Vec<Vec<String>>>,
    ) -> Result<(), GoalError> {
        match answers {
            Some(answers) => self.sessions.reply_question(&self.id, question, answers).await?,
            None => self.sessions.reject_question(&self.id, question).await?,
        }
        Ok(())
    }

    /// Returns all events recorded so far.
    pub fn events(&self) -> Result<Vec<Event>, GoalError> {
        let journal = self.sessions.journal(&self.id)?;
        Ok(journal.after(0, usize::MAX).map_err(SessionError::Journal)?)
    }

    /// Ends the session. When this returns, all its processes are dead.
    pub async fn end(self) -> Result<(), GoalError> {
        Ok(self.sessions.terminate(&self.id).await?)
    }
}
