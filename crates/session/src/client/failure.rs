//! Failures of goals, as types that a program can match.

use std::time::Duration;

use protocol::{ErrorData, EventBody, LlmCall, ProblemCode, StderrOutput, TurnOutcome};

use super::AgentResponse;
use crate::SessionError;
use crate::lifecycle::ExitDetails;

/// Why a goal failed.
#[derive(Debug, thiserror::Error)]
pub enum GoalError {
    /// The session could not be created or used, or its journal failed.
    #[error("the session could not be created or used")]
    Session(#[from] SessionError),
    /// The turn ended without success.
    #[error("{failure}")]
    Failed {
        /// The failure.
        failure: TurnFailure,
        /// The events and text up to the failure.
        response: Box<AgentResponse>,
    },
}

/// The failure of a turn.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TurnFailure {
    /// The agent reported a failure.
    #[error("the agent failed: {0}")]
    Agent(String),
    /// The agent process exited during the turn.
    #[error("the agent process exited with code {code}")]
    Exited {
        /// The exit code.
        code: i32,
        /// The last lines of stderr.
        stderr: String,
    },
    /// A signal killed the agent process.
    #[error("the agent process was killed by signal {signal}")]
    Signal {
        /// The signal.
        signal: i32,
        /// The last lines of stderr.
        stderr: String,
    },
    /// The kernel killed the agent process because the sandbox was out of memory.
    #[error("memory limit exceeded: the agent used more memory than the policy allows (proc.memory)")]
    OutOfMemory,
    /// The turn exceeded its timeout.
    #[error("the turn did not finish within {0:?}")]
    TimedOut(Duration),
    /// The turn timed out because the agent was silent, or by the policy's limit.
    #[error("the turn timed out")]
    Silent,
    /// The upstream failed, and the agent gave up.
    #[error("the upstream failed: {message}")]
    Upstream {
        /// The HTTP status, if there was a response.
        status: Option<u16>,
        /// The error message.
        message: String,
    },
    /// The budget is exhausted.
    #[error("budget exceeded: {0}")]
    Budget(String),
    /// A client interrupted the turn, or the host was closed.
    #[error("the turn was interrupted")]
    Interrupted,
}

impl TurnFailure {
    /// Returns the failure of the turn of `response`; `None` on success. `limit` is the timeout, if it was exceeded.
    pub(super) fn of(response: &AgentResponse, limit: Option<Duration>) -> Option<Self> {
        let events = || response.events.iter().rev().map(|event| &event.draft.body);
        match (response.outcome, limit) {
            (TurnOutcome::Completed, _) => return None,
            (_, Some(limit)) => return Some(Self::TimedOut(limit)),
            (TurnOutcome::TimedOut, None) => return Some(Self::Silent),
            (TurnOutcome::Interrupted, None) => return Some(Self::Interrupted),
            (TurnOutcome::Failed, None) => {}
        }
        if let Some(exit) = events().find_map(process_exit) {
            let stderr = events().find_map(|body| match body {
                EventBody::SessionEnded(ended) => ended.stderr.as_ref().map(last_lines),
                _ => None,
            });
            return Some(Self::of_process_exit(exit, stderr.unwrap_or_default()));
        }
        // The last request decides: the ledger entry of an earlier call may be recorded after it.
        let refused = events().find_map(|body| match body {
            EventBody::BudgetExceeded(exceeded) => Some(Some(Self::Budget(exceeded.message.clone()))),
            EventBody::AnthropicRequest(_) | EventBody::OpenaiRequest(_) | EventBody::GeminiRequest(_) => Some(None),
            _ => None,
        });
        if let Some(budget) = refused.flatten() {
            return Some(budget);
        }
        // The last call decides whether the upstream failed: agents retry, so earlier failures were recovered.
        let known = events().find_map(|body| match body {
            EventBody::LlmCall(call) if call.status >= 400 => Some(Self::of_call(call, response)),
            EventBody::LlmCall(_) => Some(Self::Agent(agent_error(response))),
            _ => None,
        });
        Some(known.unwrap_or_else(|| Self::Agent(agent_error(response))))
    }

    fn of_call(call: &LlmCall, response: &AgentResponse) -> Self {
        let upstream_error = response.events.iter().find_map(|event| match &event.draft.body {
            EventBody::UpstreamError(error) if error.call_id == call.call_id => Some(error),
            _ => None,
        });
        match upstream_error {
            // Without a response, the call's status is the one that the gateway sent to the agent.
            Some(error) => Self::Upstream { status: error.status, message: error.message.clone() },
            None => Self::Upstream { status: Some(call.status), message: format!("status {}", call.status) },
        }
    }

    fn of_process_exit(error: &ErrorData, stderr: String) -> Self {
        match ExitDetails::read(error.details.as_ref()) {
            ExitDetails { out_of_memory: true, .. } => Self::OutOfMemory,
            ExitDetails { signal: Some(signal), .. } => Self::Signal { signal, stderr },
            ExitDetails { exit_code: Some(code), .. } => Self::Exited { code, stderr },
            ExitDetails { .. } => Self::Agent(error.message.clone()),
        }
    }

    /// Returns whether `body` reports the exit of the agent process.
    pub(super) fn is_process_exit(body: &EventBody) -> bool {
        process_exit(body).is_some()
    }

    /// Returns whether a retry may succeed.
    pub(super) fn is_temporary(&self) -> bool {
        match self {
            Self::Exited { .. } | Self::Signal { .. } => true,
            Self::Upstream { status, .. } => status.is_none_or(|status| matches!(status, 408 | 429 | 500..)),
            _ => false,
        }
    }
}

fn process_exit(body: &EventBody) -> Option<&ErrorData> {
    match body {
        EventBody::Error(error) if error.code.as_deref() == Some(ProblemCode::AgentProcessExited.as_str()) => {
            Some(error)
        }
        _ => None,
    }
}

/// Returns the error that the agent reported, else its text.
fn agent_error(response: &AgentResponse) -> String {
    let error = response.events.iter().rev().find_map(|event| match &event.draft.body {
        EventBody::Error(error) => Some(error.message.clone()),
        _ => None,
    });
    error.unwrap_or_else(|| response.text.clone())
}

fn last_lines(stderr: &StderrOutput) -> String {
    stderr.tail.clone().or_else(|| stderr.head.clone()).unwrap_or_default()
}
