//! A session's place among those that run: how to reach its actor, and what others may see of it.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use base::lock;
use protocol::{Grant, SessionId, SessionInfo};
use sandbox::Sandbox;
use store::{FileJournal, Journal as _};
use tokio::sync::mpsc;

use crate::SessionError;
use crate::command::Command;
use crate::pending::PendingRequest;
use crate::queue::QueuedMessage;
use crate::recovery;

/// Commands that may wait for one actor; whoever comes then waits to be heard.
const COMMANDS: usize = 64;

/// A session's place among those that run.
pub(crate) struct Seat {
    pub(crate) id: SessionId,
    /// Boxed, because a channel keeps room for thirty-two of them however few come.
    pub(crate) commands: mpsc::Sender<Box<Command>>,
    /// Set when the session is on record.
    pub(crate) journal: OnceLock<Arc<FileJournal>>,
    shown: Mutex<Shown>,
    /// Where its agent lives, while it does; the actor alone keeps it alive.
    sandbox: Mutex<Option<Weak<dyn Sandbox>>>,
    /// Why its actor hears no more commands.
    departure: OnceLock<Departure>,
}

/// Why the actor of a session hears no more commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Departure {
    /// The session was never made.
    NotMade,
    /// The session has ended.
    Ended,
    /// Another process of this data directory runs it.
    RunElsewhere,
    /// What it left cannot be read.
    Unreadable,
    /// What it left is not what was written, and was put aside.
    Damaged,
    /// The host goes away.
    HostCloses,
}

/// What others may see of a session.
#[derive(Default)]
pub(crate) struct Shown {
    native_session_id: Option<String>,
    pub(crate) pending: Vec<PendingRequest>,
    grants: Vec<Grant>,
    queue: Vec<Arc<QueuedMessage>>,
    /// The actor has told how it stands; before that, what the record says counts.
    told: bool,
}

impl Seat {
    pub(crate) fn new(id: SessionId) -> (Arc<Self>, mpsc::Receiver<Box<Command>>) {
        let (commands, heard) = mpsc::channel(COMMANDS);
        let (journal, shown, sandbox) = (OnceLock::new(), Mutex::default(), Mutex::default());
        (Arc::new(Self { id, commands, journal, shown, sandbox, departure: OnceLock::new() }), heard)
    }

    /// The actor is about to hear no more commands. Said before its end of the channel goes, so that whoever finds
    /// the channel closed also finds the reason.
    pub(crate) fn depart(&self, departure: Departure) {
        // The first reason is the one that counts.
        let _ = self.departure.set(departure);
    }

    /// What to tell somebody whose command was not heard.
    pub(crate) fn unheard(&self) -> SessionError {
        match self.departure.get() {
            Some(Departure::NotMade) => SessionError::NotFound(self.id.clone()),
            Some(Departure::Ended) => SessionError::Ended(self.id.clone()),
            Some(Departure::Damaged) => recovery::damaged(&self.id),
            Some(Departure::RunElsewhere) => SessionError::RunByAnotherProcess(self.id.clone()),
            Some(Departure::Unreadable) => SessionError::Unreadable(self.id.clone()),
            // A task goes without a word only with the runtime it ran on.
            Some(Departure::HostCloses) | None => SessionError::ShuttingDown,
        }
    }

    /// The agent has moved in.
    pub(crate) fn house(&self, sandbox: &Arc<dyn Sandbox>) {
        *lock(&self.sandbox) = Some(Arc::downgrade(sandbox));
    }

    /// Where the agent lives, if it does.
    pub(crate) fn sandbox(&self) -> Option<Arc<dyn Sandbox>> {
        lock(&self.sandbox).as_ref().and_then(Weak::upgrade)
    }

    /// The actor tells how it stands.
    pub(crate) fn show(
        &self,
        native_session_id: Option<&str>,
        pending: Vec<PendingRequest>,
        grants: &[Grant],
        queue: &VecDeque<Arc<QueuedMessage>>,
    ) {
        let mut shown = self.hold();
        if shown.native_session_id.as_deref() != native_session_id {
            shown.native_session_id = native_session_id.map(str::to_owned);
        }
        shown.pending = pending;
        if shown.grants != grants {
            shown.grants = grants.to_vec();
        }
        if !shown.queue.iter().map(Arc::as_ptr).eq(queue.iter().map(Arc::as_ptr)) {
            shown.queue = queue.iter().cloned().collect();
        }
        shown.told = true;
    }

    /// Keeps others from looking while it is held: who has read on record that something is asked finds it listed.
    pub(crate) fn hold(&self) -> MutexGuard<'_, Shown> {
        lock(&self.shown)
    }

    /// Lets go of what only a turn needs.
    pub(crate) fn rest(&self) {
        if let Some(journal) = self.journal.get() {
            journal.rest();
        }
    }

    pub(crate) fn pending(&self) -> Vec<PendingRequest> {
        self.hold().pending.clone()
    }

    /// What was allowed for the rest of the session; none while its actor is only beginning.
    pub(crate) fn grants(&self) -> Option<Vec<Grant>> {
        let shown = self.hold();
        shown.told.then(|| shown.grants.clone())
    }

    /// The messages that wait; none while its actor is only beginning.
    pub(crate) fn queue(&self) -> Option<Vec<Arc<QueuedMessage>>> {
        let shown = self.hold();
        shown.told.then(|| shown.queue.clone())
    }

    /// Brings what the index knows up to date.
    pub(crate) fn refresh(&self, info: &mut SessionInfo) {
        if let Some(journal) = self.journal.get() {
            info.event_count = *journal.last().borrow();
            // The index hears of the end a moment after the readers of the journal do.
            info.ended |= journal.is_ended();
        }
        let shown = self.hold();
        if shown.native_session_id.is_some() {
            info.native_session_id.clone_from(&shown.native_session_id);
        }
    }
}
