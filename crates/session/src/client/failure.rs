//! Why a goal was not reached, as something a program can tell apart.

use std::time::Duration;

use protocol::{ErrorData, EventBody, LlmCall, ProblemCode, StderrOutput, TurnOutcome};
use serde_json::Value;

use super::AgentResponse;
use crate::SessionError;

/// Why a goal was not reached.
#[derive(Debug, thiserror::Error)]
pub enum GoalError {
    /// The session could not be made or used: nothing was asked of the agent, or its record broke.
    #[error("the session could not be made or used")]
    Session(#[from] SessionError),
    /// The turn came to an end, and not to a good one.
    #[error("{failure}")]
    Failed {
        /// What went wrong.
        failure: TurnFailure,
        /// What there is of an answer.
        response: Box<AgentResponse>,
    },
}

/// What went wrong with a turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TurnFailure {
    /// The agent itself said that it failed.
    #[error("the agent failed: {0}")]
    Agent(String),
    /// The agent's process exited in the middle of the turn.
    #[error("the agent's process exited with code {code}")]
    Exited {
        /// Its exit code.
        code: i32,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// A signal ended the agent's process.
    #[error("the agent's process was ended by signal {signal}")]
    Signal {
        /// The signal.
        signal: i32,
        /// The end of what it wrote to stderr.
        stderr: String,
    },
    /// The sandbox was out of memory and the kernel ended the agent's process.
    #[error("the agent needed more memory than the policy allows")]
    OutOfMemory,
    /// The turn took longer than it was given.
    #[error("the turn was not done within {0:?}")]
    TimedOut(Duration),
    /// Nothing came from the agent for too long.
    #[error("nothing came from the agent for too long")]
    Silent,
    /// The model's side failed, and the agent gave up.
    #[error("the model's side failed: {message}")]
    Upstream {
        /// What it answered, when it answered at all.
        status: Option<u16>,
        /// In words.
        message: String,
    },
    /// The budget is used up.
    #[error("the budget is used up: {0}")]
    Budget(String),
    /// Somebody stopped the turn, or the host closed under it.
    #[error("the turn was interrupted")]
    Interrupted,
}

impl TurnFailure {
    /// What went wrong with the turn behind `response`; `limit` is the time it was given, if it used it up.
    pub(super) fn of(response: &AgentResponse, limit: Option<Duration>) -> Option<Self> {
        let events = || response.events.iter().rev().map(|event| &event.draft.body);
        match (response.outcome, limit) {
            (TurnOutcome::Completed, _) => return None,
            (_, Some(limit)) => return Some(Self::TimedOut(limit)),
            (TurnOutcome::TimedOut, None) => return Some(Self::Silent),
            (TurnOutcome::Interrupted, None) => return Some(Self::Interrupted),
            (TurnOutcome::Failed, None) => {}
        }
        if let Some(death) = events().find_map(death) {
            let stderr = events().find_map(|body| match body {
                EventBody::SessionEnded(ended) => ended.stderr.as_ref().map(last_words),
                _ => None,
            });
            return Some(Self::of_death(death, stderr.unwrap_or_default()));
        }
        // What was asked last and refused: the account of a call before it may be written later still.
        let refused = events().find_map(|body| match body {
            EventBody::BudgetExceeded(exceeded) => Some(Some(Self::Budget(exceeded.message.clone()))),
            EventBody::AnthropicRequest(_) | EventBody::OpenaiRequest(_) | EventBody::GeminiRequest(_) => Some(None),
            _ => None,
        });
        if let Some(budget) = refused.flatten() {
            return Some(budget);
        }
        // The last call tells whether it was the model's side: agents try again, and what failed before was mended.
        let known = events().find_map(|body| match body {
            EventBody::LlmCall(call) if call.status >= 400 => Some(Self::of_call(call, response)),
            EventBody::LlmCall(_) => Some(Self::Agent(said(response))),
            _ => None,
        });
        Some(known.unwrap_or_else(|| Self::Agent(said(response))))
    }

    fn of_call(call: &LlmCall, response: &AgentResponse) -> Self {
        let told = response.events.iter().find_map(|event| match &event.draft.body {
            EventBody::UpstreamError(error) if error.call_id == call.call_id => Some(error),
            _ => None,
        });
        match told {
            // Nobody answered: the status is what the agent was told, not what the model's side said.
            Some(error) => Self::Upstream { status: error.status, message: error.message.clone() },
            None => Self::Upstream { status: Some(call.status), message: format!("it answered {}", call.status) },
        }
    }

    fn of_death(details: &ErrorData, stderr: String) -> Self {
        let field = |name: &str| details.details.as_ref().and_then(|details| details.get(name));
        let number = |name: &str| field(name).and_then(Value::as_i64).and_then(|number| i32::try_from(number).ok());
        if field("out_of_memory").and_then(Value::as_bool) == Some(true) {
            return Self::OutOfMemory;
        }
        match (number("exit_code"), number("signal")) {
            (_, Some(signal)) => Self::Signal { signal, stderr },
            (Some(code), None) => Self::Exited { code, stderr },
            (None, None) => Self::Agent(details.message.clone()),
        }
    }

    /// Whether `body` tells that the agent's process is gone.
    pub(super) fn is_death(body: &EventBody) -> bool {
        death(body).is_some()
    }

    /// Whether the same goal may well be reached at the next attempt, if nothing was done in this one.
    pub(super) fn is_passing(&self) -> bool {
        match self {
            Self::Exited { .. } | Self::Signal { .. } => true,
            Self::Upstream { status, .. } => status.is_none_or(|status| matches!(status, 408 | 429 | 500..)),
            _ => false,
        }
    }
}

fn death(body: &EventBody) -> Option<&ErrorData> {
    match body {
        EventBody::Error(error) if error.code.as_deref() == Some(ProblemCode::AgentProcessExited.as_str()) => {
            Some(error)
        }
        _ => None,
    }
}

/// What the agent said went wrong.
fn said(response: &AgentResponse) -> String {
    let error = response.events.iter().rev().find_map(|event| match &event.draft.body {
        EventBody::Error(error) => Some(error.message.clone()),
        _ => None,
    });
    error.unwrap_or_else(|| response.text.clone())
}

fn last_words(stderr: &StderrOutput) -> String {
    stderr.tail.clone().or_else(|| stderr.head.clone()).unwrap_or_default()
}
