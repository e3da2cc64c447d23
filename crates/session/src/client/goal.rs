//! One prompt in a session of its own.

use super::reading::TurnReader;
use super::terms::{Terms, setters};
use super::{AgentClient, AgentResponse, Conversation, GoalError};

/// One prompt in a session of its own, which ends with its turn.
#[must_use = "nothing is started before `run` or `stream`"]
pub struct Goal {
    client: AgentClient,
    text: String,
    terms: Terms,
    retries: u32,
}

impl Goal {
    pub(super) fn new(client: AgentClient, text: String) -> Self {
        Self { client, text, terms: Terms::default(), retries: 0 }
    }

    setters!();

    /// How often it is tried again, in a new session, when the model's side or the agent's process failed for the
    /// moment. Never after the first tool call: what was done would be done twice.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Runs it to its end. The session's processes are dead when this returns; its record and its changes stay.
    pub async fn run(self) -> Result<AgentResponse, GoalError> {
        let mut attempt = 1;
        loop {
            let outcome = self.attempt(attempt).await;
            match &outcome {
                Err(GoalError::Failed { failure, response })
                    if attempt <= self.retries && failure.is_passing() && !response.acted() =>
                {
                    attempt += 1;
                }
                _ => return outcome,
            }
        }
    }

    /// Starts it; what happens is read event by event, and the conversation is ended by the caller.
    pub async fn stream(self) -> Result<(Conversation, TurnReader), GoalError> {
        let conversation = self.client.open(self.terms).await?;
        let reading = conversation.stream(self.text).await?;
        Ok((conversation, reading))
    }

    async fn attempt(&self, attempt: u32) -> Result<AgentResponse, GoalError> {
        let conversation = self.client.open(self.terms.clone()).await?;
        let outcome = conversation.ask(self.text.as_str()).await;
        conversation.end().await?;
        match outcome {
            Ok(response) => Ok(AgentResponse { attempt, ..response }),
            Err(GoalError::Failed { failure, mut response }) => {
                response.attempt = attempt;
                Err(GoalError::Failed { failure, response })
            }
            Err(error) => Err(error),
        }
    }
}
