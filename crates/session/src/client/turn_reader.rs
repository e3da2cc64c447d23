//! Reads the events of one turn and answers its requests.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use protocol::{CallId, Event, EventBody, Permission, PermissionReply, Question, SessionId, TurnOutcome};
use store::{Journal, JournalTail};
use tokio::time::Instant;

use super::failure::{GoalError, TurnFailure};
use super::response::AgentResponse;
use super::run_options::{PermissionResponder, RunOptions};
use crate::{AcceptedMessage, SessionError, Sessions};

/// How long to wait for the cost of model calls after the turn.
const BILLING_TIMEOUT: Duration = Duration::from_secs(2);

/// Reads the events of one turn, up to its end, or up to the session's end if the agent process exited.
pub struct TurnReader {
    sessions: Sessions,
    session: SessionId,
    options: RunOptions,
    accepted: AcceptedMessage,
    tail: JournalTail,
    events: Vec<Event>,
    deadline: Option<Instant>,
    timed_out: bool,
    unsettled: UnsettledCalls,
    state: ReadState,
}

/// How far the turn has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ReadState {
    Running,
    /// The agent process has exited, so the session ends too.
    SessionEnding(TurnOutcome),
    /// The turn is over; the cost of its last model calls is not recorded yet.
    AwaitingBilling(TurnOutcome),
    Ended(TurnOutcome),
}

impl ReadState {
    /// Returns the outcome of the turn; a turn without a recorded end was interrupted.
    fn outcome(self) -> TurnOutcome {
        match self {
            Self::Running => TurnOutcome::Interrupted,
            Self::SessionEnding(outcome) | Self::AwaitingBilling(outcome) | Self::Ended(outcome) => outcome,
        }
    }
}

/// Model calls whose cost is not recorded yet.
#[derive(Default)]
struct UnsettledCalls(HashSet<CallId>);

impl UnsettledCalls {
    fn observe(&mut self, body: &EventBody) {
        match body {
            EventBody::AnthropicRequest(request)
            | EventBody::OpenaiRequest(request)
            | EventBody::GeminiRequest(request)
                // Token counting is free and has no ledger entry.
                if !request.path.contains("count_tokens") =>
            {
                self.0.insert(request.call_id.clone());
            }
            EventBody::LlmCall(call) => drop(self.0.remove(&call.call_id)),
            _ => {}
        }
    }

    fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl TurnReader {
    pub(super) fn new(
        sessions: Sessions,
        session: SessionId,
        options: RunOptions,
        journal: Arc<dyn Journal>,
        accepted: AcceptedMessage,
    ) -> Self {
        let tail = JournalTail::new(journal, accepted.sequence);
        let deadline = options.timeout.map(|timeout| Instant::now() + timeout);
        let (events, timed_out, state) = (Vec::new(), false, ReadState::Running);
        let unsettled = UnsettledCalls::default();
        Self { sessions, session, options, accepted, tail, events, deadline, timed_out, unsettled, state }
    }

    /// Returns the next event; `None` after the last event of the turn. Answers permission requests and questions as
    /// configured.
    pub async fn next(&mut self) -> Result<Option<&Event>, GoalError> {
        if matches!(self.state, ReadState::Ended(_)) {
            return Ok(None);
        }
        let Some(event) = self.read().await? else {
            // The journal ended before the turn did: the host was closed.
            self.state = ReadState::Ended(self.state.outcome());
            return Ok(None);
        };
        self.observe(&event);
        self.answer_request(&event.draft.body).await?;
        if let Some(listener) = &self.options.listener {
            listener(&event);
        }
        self.events.push(event);
        Ok(self.events.last())
    }

    /// Reads the rest of the turn. Returns the response, or fails when the turn did not complete.
    pub async fn finish(mut self) -> Result<AgentResponse, GoalError> {
        while self.next().await?.is_some() {
            // Yields, so that a journal that grows faster than it is read does not block the thread.
            tokio::task::coop::consume_budget().await;
        }
        let response = AgentResponse::of(self.session, self.state.outcome(), self.events);
        let limit = self.options.timeout.filter(|_| self.timed_out);
        match TurnFailure::of(&response, limit) {
            None => Ok(response),
            Some(failure) => Err(GoalError::Failed { failure, response: Box::new(response) }),
        }
    }

    /// Returns the next event. After the timeout, interrupts the turn and continues to read.
    async fn read(&mut self) -> Result<Option<Event>, GoalError> {
        loop {
            let deadline = self.deadline.filter(|_| !self.timed_out || self.state != ReadState::Running);
            let read = tokio::select! {
                biased;
                read = self.tail.next(1) => Some(read),
                () = until(deadline) => None,
            };
            match read {
                Some(read) => return Ok(read.map_err(SessionError::Journal)?.pop()),
                // The billing is late; the response does not wait for it.
                None if self.state != ReadState::Running => return Ok(None),
                None => self.interrupt_after_timeout().await?,
            }
        }
    }

    async fn interrupt_after_timeout(&mut self) -> Result<(), GoalError> {
        self.timed_out = true;
        match self.sessions.interrupt(&self.session).await {
            // The session ended meanwhile.
            Err(SessionError::Ended(_)) => Ok(()),
            other => Ok(other?),
        }
    }

    fn observe(&mut self, event: &Event) {
        let in_this_turn = event.draft.turn_id.as_ref() == Some(&self.accepted.turn_id);
        match &event.draft.body {
            EventBody::TurnEnded(turn) if in_this_turn => {
                let outcome = turn.outcome.unwrap_or(TurnOutcome::Completed);
                let exited = self.events.iter().any(|event| TurnFailure::is_process_exit(&event.draft.body));
                self.deadline = Some(Instant::now() + BILLING_TIMEOUT);
                self.state =
                    if exited { ReadState::SessionEnding(outcome) } else { ReadState::AwaitingBilling(outcome) };
            }
            // The message was removed from the queue.
            EventBody::MessageRemoved(_) if in_this_turn => self.state = ReadState::Ended(TurnOutcome::Interrupted),
            EventBody::SessionEnded(_) => self.state = ReadState::Ended(self.state.outcome()),
            body => self.unsettled.observe(body),
        }
        if let (ReadState::AwaitingBilling(outcome), true) = (self.state, self.unsettled.is_empty()) {
            self.state = ReadState::Ended(outcome);
        }
    }

    async fn answer_request(&self, body: &EventBody) -> Result<(), GoalError> {
        let answered = match (body, self.options.permissions) {
            (_, PermissionResponder::Manual) => Ok(()),
            (EventBody::PermissionRequested(request), permissions) => {
                self.answer_permission(request, permissions).await
            }
            (EventBody::QuestionRequested(request), permissions) => self.answer_question(request, permissions).await,
            _ => Ok(()),
        };
        match answered {
            // The agent withdrew the request, or its turn ended.
            Err(
                SessionError::PermissionNotPending(_) | SessionError::QuestionNotPending(_) | SessionError::Ended(_),
            ) => Ok(()),
            other => Ok(other?),
        }
    }

    async fn answer_permission(
        &self,
        request: &Permission,
        permissions: PermissionResponder,
    ) -> Result<(), SessionError> {
        let reply =
            if permissions == PermissionResponder::Allow { PermissionReply::Once } else { PermissionReply::Reject };
        self.sessions.reply_permission(&self.session, &request.permission_id, reply).await
    }

    async fn answer_question(&self, request: &Question, permissions: PermissionResponder) -> Result<(), SessionError> {
        let first = request.prompts().into_iter().map(|one| Some(vec![one.options.into_iter().next()?]));
        match first.collect::<Option<Vec<_>>>().filter(|_| permissions == PermissionResponder::Allow) {
            Some(answers) => self.sessions.reply_question(&self.session, &request.question_id, answers).await,
            None => self.sessions.reject_question(&self.session, &request.question_id).await,
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
