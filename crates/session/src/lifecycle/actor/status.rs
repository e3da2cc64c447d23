//! The status of the session for lists and clients, with its last message, counts, title and labels.
//!
//! A change of the status is recorded before the caller that caused it gets its reply, so a caller never reads an older
//! status afterwards. The index is written at once; the counts follow at the end of a turn.

use std::time::Duration;

use protocol::{EventBody, HostDraining, SessionStatus, SessionStatusChanged, SessionUpdated};
use store::SessionPatch;
use tokio::time::Instant;

use super::{Actor, Flow};
use crate::SessionError;
use crate::lifecycle::TurnState;

/// Most characters of the last message in lists.
const PROMPT_CHARACTERS: usize = 200;

impl Actor {
    fn current_status(&self) -> SessionStatus {
        match self.turn {
            TurnState::Running | TurnState::Stopping(_) => SessionStatus::Running,
            TurnState::Waiting(_) => SessionStatus::Waiting,
            TurnState::Idle if !self.queue.is_empty() => SessionStatus::Queued,
            TurnState::Idle if self.agent.is_some() => SessionStatus::Idle,
            TurnState::Idle => SessionStatus::Asleep,
        }
    }

    /// Records the status if it has changed. The end of a session is told by `session.ended`.
    pub(super) fn note_status(&mut self) {
        let status = self.current_status();
        if status == self.status || self.handle.journal.get().is_some_and(|journal| journal.is_ended()) {
            return;
        }
        self.note_idle(status);
        let previous = Some(std::mem::replace(&mut self.status, status));
        let since = self.host.store.now_ms();
        self.handle.set_status(status, since);
        let reason = self.sleep_reason.take().filter(|_| self.agent.is_none()).map(str::to_owned);
        let changed = SessionStatusChanged { status, previous, reason };
        let id = &self.plan.id;
        // A full disk must not keep the session from going on: the status in memory is right in any case.
        if let Err(error) = self.recorder.daemon(EventBody::SessionStatus(changed)) {
            tracing::warn!(session = %id, %error, "cannot record the status of the session");
        }
        if let Err(error) = self.host.store.index.set_status(id, status, since) {
            tracing::warn!(session = %id, %error, "cannot write the status to the session index");
        }
    }

    /// Continues with the queue of a host that died.
    pub(super) fn run_queue(&mut self) {
        // The queue starts the agent only after this.
        self.agent_started |= !self.queue.is_empty();
        let (since, status) = (self.host.store.now_ms(), self.current_status());
        // Takes the mark of the dead host away. If this host dies as well, the status shows the queue.
        if let Err(error) = self.host.store.index.set_status(&self.plan.id, status, since) {
            tracing::warn!(session = %self.plan.id, %error, "cannot write the status to the session index");
        }
    }

    /// Tells clients that the host stops.
    pub(super) fn tell_draining(&self, draining: HostDraining) {
        if self.turn != TurnState::Idle
            && let Err(error) = self.recorder.daemon(EventBody::HostDraining(draining))
        {
            tracing::warn!(session = %self.plan.id, %error, "cannot record that the host stops");
        }
    }

    /// Sets the end of a session that was created at `created_ms`.
    pub(super) fn live_since(&mut self, created_ms: i64) {
        let age = u64::try_from(self.host.store.now_ms().saturating_sub(created_ms)).unwrap_or_default();
        let left = |ttl: Duration| Instant::now() + ttl.saturating_sub(Duration::from_millis(age));
        self.ttl_deadline = self.host.config.lifetime.ttl.map(left);
        self.note_idle(self.current_status());
    }

    /// Sets when an idle agent is stopped. A terminal belongs to a person, who may come back to it.
    fn note_idle(&mut self, status: SessionStatus) {
        let idle_stop = self.host.config.lifetime.idle_stop.filter(|_| self.plan.terminal.is_none());
        self.idle_deadline = idle_stop.filter(|_| status == SessionStatus::Idle).map(|time| Instant::now() + time);
    }

    /// Ends a session whose time is over, and stops an agent that had no turn for too long.
    pub(super) async fn check_lifetime(&mut self, now: Instant) -> Result<Flow, SessionError> {
        if self.ttl_deadline.is_some_and(|deadline| deadline <= now) {
            self.ttl_deadline = None;
            self.terminate_with(Some("the session reached its lifetime (sessions.ttl)".to_owned())).await?;
            return Ok(Flow::Break(()));
        }
        if self.idle_deadline.is_some_and(|deadline| deadline <= now) {
            self.idle_deadline = None;
            if self.turn == TurnState::Idle && self.queue.is_empty() {
                // The memory includes notes that the agent wrote after its last turn.
                self.save_memory().await;
                self.sleep_reason = Some("idle_timeout");
                self.end_agent().await?;
            }
        }
        Ok(Flow::Continue(()))
    }

    /// Keeps the start of a message for lists.
    pub(super) fn note_prompt(&self, text: &str) {
        self.handle.set_last_prompt(text.chars().take(PROMPT_CHARACTERS).collect());
    }

    /// Returns what the index does not know yet of the counts and the last message.
    pub(super) fn counted(&self) -> SessionPatch {
        let tally = self.handle.journal.get().map(|journal| journal.take_tally()).unwrap_or_default();
        SessionPatch { tally, last_prompt: self.handle.last_prompt(), ..SessionPatch::default() }
    }

    /// Changes title, labels or metadata.
    pub(super) async fn update(&mut self, update: SessionUpdated) -> Result<(), SessionError> {
        let SessionUpdated { title, labels, metadata } = update.clone();
        self.recorder.daemon(EventBody::SessionUpdated(update))?;
        self.plan.title = title.clone().or(self.plan.title.take());
        self.plan.labels = labels.clone().unwrap_or_else(|| std::mem::take(&mut self.plan.labels));
        self.plan.metadata = metadata.clone().or(self.plan.metadata.take());
        let patch = SessionPatch { title, labels, metadata, ..SessionPatch::default() };
        self.host.store.update(&self.plan.id, patch).await
    }
}
