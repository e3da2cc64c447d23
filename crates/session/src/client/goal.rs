//! Goals: one prompt in a session of its own.

use super::run_options::{RunOptions, setters};
use super::turn_reader::TurnReader;
use super::{AgentClient, AgentResponse, Conversation, GoalError};

/// One prompt in a session of its own, which ends with the turn.
#[must_use = "nothing is started before `run` or `stream`"]
pub struct Goal {
    client: AgentClient,
    text: String,
    options: RunOptions,
    retries: u32,
}

impl Goal {
    pub(super) fn new(client: AgentClient, text: String) -> Self {
        Self { client, text, options: RunOptions::default(), retries: 0 }
    }

    setters!();

    /// Sets how often the goal is retried in a new session after a temporary failure of the model or the agent process.
    /// It is never retried after the first tool call, which would then run twice.
    pub fn retries(mut self, retries: u32) -> Self {
        self.retries = retries;
        self
    }

    /// Runs the goal to its end. When this returns, the session's processes are dead; its journal and changes stay.
    pub async fn run(self) -> Result<AgentResponse, GoalError> {
        let mut attempt = 1;
        loop {
            let outcome = self.attempt(attempt).await;
            match &outcome {
                Err(GoalError::Failed { failure, response })
                    if attempt <= self.retries && failure.is_temporary() && !response.has_side_effects() =>
                {
                    attempt += 1;
                }
                _ => return outcome,
            }
        }
    }

    /// Starts the goal and returns a reader of its events. The caller must end the conversation.
    pub async fn stream(self) -> Result<(Conversation, TurnReader), GoalError> {
        let conversation = self.client.open(self.options).await?;
        let reading = conversation.stream(self.text).await?;
        Ok((conversation, reading))
    }

    async fn attempt(&self, attempt: u32) -> Result<AgentResponse, GoalError> {
        let conversation = self.client.open(self.options.clone()).await?;
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
