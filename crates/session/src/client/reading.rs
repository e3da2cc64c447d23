//! One turn, read event by event.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use protocol::{CallId, Event, EventBody, Permission, PermissionReply, Question, SessionId, TurnOutcome};
use store::{Journal, JournalTail};
use tokio::time::Instant;

use super::failure::{GoalError, TurnFailure};
use super::response::AgentResponse;
use super::terms::{PermissionResponder, Terms};
use crate::{AcceptedMessage, SessionError, Sessions};

/// How long the accounts may take after the turn.
const SETTLING: Duration = Duration::from_secs(2);

/// One turn, read event by event: to its end, and to the session's end where the turn took it along.
pub struct TurnReader {
    sessions: Sessions,
    session: SessionId,
    terms: Terms,
    accepted: AcceptedMessage,
    tail: JournalTail,
    events: Vec<Event>,
    deadline: Option<Instant>,
    timed_out: bool,
    unsettled: Unsettled,
    state: State,
}

/// How far a turn has been read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Running,
    /// The agent's process is gone, so the session ends too.
    Dying(TurnOutcome),
    /// The turn is over; what its last model calls cost is still being written.
    Settling(TurnOutcome),
    Ended(TurnOutcome),
}

impl State {
    /// What the turn came to; one that was never told to have ended was interrupted.
    fn outcome(self) -> TurnOutcome {
        match self {
            Self::Running => TurnOutcome::Interrupted,
            Self::Dying(outcome) | Self::Settling(outcome) | Self::Ended(outcome) => outcome,
        }
    }
}

/// Model calls that were made and whose cost is not on record yet.
#[derive(Default)]
struct Unsettled(HashSet<CallId>);

impl Unsettled {
    fn observe(&mut self, body: &EventBody) {
        match body {
            EventBody::AnthropicRequest(request)
            | EventBody::OpenaiRequest(request)
            | EventBody::GeminiRequest(request)
                // Counting costs nothing and is never entered.
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
        terms: Terms,
        journal: Arc<dyn Journal>,
        accepted: AcceptedMessage,
    ) -> Self {
        let tail = JournalTail::new(journal, accepted.sequence);
        let deadline = terms.timeout.map(|timeout| Instant::now() + timeout);
        let (events, timed_out, state) = (Vec::new(), false, State::Running);
        let unsettled = Unsettled::default();
        Self { sessions, session, terms, accepted, tail, events, deadline, timed_out, unsettled, state }
    }

    /// The next event; `None` after the last of the turn. Permissions and questions are answered on the way, as
    /// the terms say.
    pub async fn next(&mut self) -> Result<Option<&Event>, GoalError> {
        if matches!(self.state, State::Ended(_)) {
            return Ok(None);
        }
        let Some(event) = self.read().await? else {
            // The record ended without the turn's own end: the host closed under it.
            self.state = State::Ended(self.state.outcome());
            return Ok(None);
        };
        self.observe(&event);
        self.answer(&event.draft.body).await?;
        if let Some(listener) = &self.terms.listener {
            listener(&event);
        }
        self.events.push(event);
        Ok(self.events.last())
    }

    /// Reads the rest of the turn and tells what came of it.
    pub async fn finish(mut self) -> Result<AgentResponse, GoalError> {
        while self.next().await?.is_some() {
            // A journal that grows faster than it is read must not keep the thread from others.
            tokio::task::coop::consume_budget().await;
        }
        let response = AgentResponse::of(self.session, self.state.outcome(), self.events);
        let limit = self.terms.timeout.filter(|_| self.timed_out);
        match TurnFailure::of(&response, limit) {
            None => Ok(response),
            Some(failure) => Err(GoalError::Failed { failure, response: Box::new(response) }),
        }
    }

    /// The next record. A turn that took too long is asked to stop, and then read to its end.
    async fn read(&mut self) -> Result<Option<Event>, GoalError> {
        loop {
            let deadline = self.deadline.filter(|_| !self.timed_out || self.state != State::Running);
            let read = tokio::select! {
                biased;
                read = self.tail.next(1) => Some(read),
                () = until(deadline) => None,
            };
            match read {
                Some(read) => return Ok(read.map_err(SessionError::Journal)?.pop()),
                // Whoever keeps the accounts is late; the answer does not wait for them.
                None if self.state != State::Running => return Ok(None),
                None => self.give_up().await?,
            }
        }
    }

    async fn give_up(&mut self) -> Result<(), GoalError> {
        self.timed_out = true;
        match self.sessions.interrupt(&self.session).await {
            // It ended while we looked at the clock.
            Err(SessionError::Ended(_)) => Ok(()),
            other => Ok(other?),
        }
    }

    fn observe(&mut self, event: &Event) {
        let ours = event.draft.turn_id.as_ref() == Some(&self.accepted.turn_id);
        match &event.draft.body {
            EventBody::TurnEnded(turn) if ours => {
                let outcome = turn.outcome.unwrap_or(TurnOutcome::Completed);
                let died = self.events.iter().any(|event| TurnFailure::is_death(&event.draft.body));
                self.deadline = Some(Instant::now() + SETTLING);
                self.state = if died { State::Dying(outcome) } else { State::Settling(outcome) };
            }
            // Somebody took the message out before its turn came.
            EventBody::MessageRemoved(_) if ours => self.state = State::Ended(TurnOutcome::Interrupted),
            EventBody::SessionEnded(_) => self.state = State::Ended(self.state.outcome()),
            body => self.unsettled.observe(body),
        }
        if let (State::Settling(outcome), true) = (self.state, self.unsettled.is_empty()) {
            self.state = State::Ended(outcome);
        }
    }

    async fn answer(&self, body: &EventBody) -> Result<(), GoalError> {
        let answered = match (body, self.terms.permissions) {
            (_, PermissionResponder::Manual) => Ok(()),
            (EventBody::PermissionRequested(asked), permissions) => self.permit(asked, permissions).await,
            (EventBody::QuestionRequested(asked), permissions) => self.choose(asked, permissions).await,
            _ => Ok(()),
        };
        match answered {
            // It was withdrawn, or its turn ended, before the answer came.
            Err(
                SessionError::PermissionNotPending(_) | SessionError::QuestionNotPending(_) | SessionError::Ended(_),
            ) => Ok(()),
            other => Ok(other?),
        }
    }

    async fn permit(&self, asked: &Permission, permissions: PermissionResponder) -> Result<(), SessionError> {
        let reply =
            if permissions == PermissionResponder::Allow { PermissionReply::Once } else { PermissionReply::Reject };
        self.sessions.reply_permission(&self.session, &asked.permission_id, reply).await
    }

    async fn choose(&self, asked: &Question, permissions: PermissionResponder) -> Result<(), SessionError> {
        let first = asked.asked().into_iter().map(|one| Some(vec![one.options.into_iter().next()?]));
        match first.collect::<Option<Vec<_>>>().filter(|_| permissions == PermissionResponder::Allow) {
            Some(answers) => self.sessions.reply_question(&self.session, &asked.question_id, answers).await,
            None => self.sessions.reject_question(&self.session, &asked.question_id).await,
        }
    }
}

async fn until(deadline: Option<Instant>) {
    match deadline {
        Some(deadline) => tokio::time::sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}
