//! A session of several turns.

use protocol::{Event, PermissionId, PermissionReply, QuestionId, SessionId};

use super::reading::TurnReader;
use super::terms::{Terms, setters};
use super::{AgentClient, AgentResponse, GoalError};
use crate::{SessionError, Sessions, UserMessage};

/// A conversation before its first word.
#[must_use = "nothing is started before `open`"]
pub struct ConversationBuilder {
    client: AgentClient,
    terms: Terms,
}

impl ConversationBuilder {
    pub(super) fn new(client: AgentClient) -> Self {
        Self { client, terms: Terms::default() }
    }

    setters!();

    /// Makes the session and starts its agent.
    pub async fn open(self) -> Result<Conversation, GoalError> {
        Ok(self.client.open(self.terms).await?)
    }
}

/// A session whose agent is spoken to turn by turn.
///
/// Dropping it ends nothing: [`Conversation::end`] does, or [`AgentClient::close`].
///
/// ```no_run
/// # async fn run(client: session::AgentClient) -> Result<(), session::GoalError> {
/// let conversation = client.conversation().workspace("/home/you/project").open().await?;
/// let plan = conversation.ask("What would you change first?").await?;
/// println!("{}", plan.text);
///
/// // The same, heard event by event.
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
    terms: Terms,
}

impl Conversation {
    pub(super) fn new(sessions: Sessions, id: SessionId, terms: Terms) -> Self {
        Self { sessions, id, terms }
    }

    /// The session.
    pub fn id(&self) -> &SessionId {
        &self.id
    }

    /// Says something and waits for the end of its turn.
    pub async fn ask(&self, text: impl Into<String>) -> Result<AgentResponse, GoalError> {
        self.stream(text).await?.finish().await
    }

    /// The same, with another limit for this turn than the terms say.
    pub async fn ask_within(
        &self,
        text: impl Into<String>,
        limit: std::time::Duration,
    ) -> Result<AgentResponse, GoalError> {
        let terms = Terms { timeout: Some(limit), ..self.terms.clone() };
        self.read(text.into(), terms).await?.finish().await
    }

    /// Says something; what comes of it is read event by event.
    pub async fn stream(&self, text: impl Into<String>) -> Result<TurnReader, GoalError> {
        self.read(text.into(), self.terms.clone()).await
    }

    async fn read(&self, text: String, terms: Terms) -> Result<TurnReader, GoalError> {
        let journal = self.sessions.journal(&self.id)?;
        let accepted = self.sessions.send(&self.id, UserMessage::text(text)).await?;
        Ok(TurnReader::new(self.sessions.clone(), self.id.clone(), terms, journal, accepted))
    }

    /// Asks the agent to stop its turn.
    pub async fn interrupt(&self) -> Result<(), GoalError> {
        Ok(self.sessions.interrupt(&self.id).await?)
    }

    /// Answers a permission.
    pub async fn reply_permission(&self, permission: &PermissionId, answer: PermissionReply) -> Result<(), GoalError> {
        Ok(self.sessions.reply_permission(&self.id, permission, answer).await?)
    }

    /// Answers a question, a list of answers for each thing it asks; `None` rejects it.
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

    /// Everything on record so far.
    pub fn events(&self) -> Result<Vec<Event>, GoalError> {
        let journal = self.sessions.journal(&self.id)?;
        Ok(journal.after(0, usize::MAX).map_err(SessionError::Journal)?)
    }

    /// Ends the session. When this returns every process of it is dead.
    pub async fn end(self) -> Result<(), GoalError> {
        Ok(self.sessions.terminate(&self.id).await?)
    }
}
