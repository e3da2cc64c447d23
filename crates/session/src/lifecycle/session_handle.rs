//! The handle of a running session: the channel to its actor, and a snapshot of the actor's state for readers.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, Weak};

use base::lock;
use protocol::{Grant, SessionId, SessionInfo, SessionStatus};
use sandbox::Sandbox;
use store::{FileJournal, Journal as _};
use tokio::sync::{Semaphore, mpsc};

use crate::SessionError;
use crate::lifecycle::{ActorCommand, PendingRequest, QueuedMessage};
use crate::storage::damaged_error;
use crate::terminal::SessionTerminal;

/// Commands that may wait for one actor. Further callers wait until the channel has room.
const COMMAND_CAPACITY: usize = 64;

/// The most open connections to ports inside one sandbox. Each one buffers at most a few kilobytes.
const MAX_PORT_CONNECTIONS: usize = 64;

/// The handle of a running session.
pub(crate) struct SessionHandle {
    pub(crate) id: SessionId,
    /// The name of the access token that created the session.
    pub(crate) token: Option<String>,
    /// Boxed, because a channel allocates room for 32 values at once.
    pub(crate) commands: mpsc::Sender<Box<ActorCommand>>,
    /// The journal; set when the session is registered.
    pub(crate) journal: OnceLock<Arc<FileJournal>>,
    snapshot: Mutex<SessionSnapshot>,
    /// The sandbox of the running agent. Only the actor keeps the sandbox alive.
    sandbox: Mutex<Option<Weak<dyn Sandbox>>>,
    /// The terminal of an interactive session, while its agent runs.
    terminal: Mutex<Option<Weak<SessionTerminal>>>,
    /// Limits the open connections to ports inside the sandbox.
    pub(crate) port_connections: Arc<Semaphore>,
    /// Why the actor stopped receiving commands.
    exit: OnceLock<ActorExit>,
}

/// Why the actor of a session stopped receiving commands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ActorExit {
    /// The session could not be created.
    NotCreated,
    /// The session has ended.
    Ended,
    /// Another process of this data directory runs the session.
    RunByAnotherProcess,
    /// The journal cannot be read.
    Unreadable,
    /// The journal is damaged and was moved to the quarantine folder.
    Damaged,
    /// The host is shutting down.
    HostCloses,
}

/// A copy of the actor's pending requests, grants and queue.
///
/// It exists so that lists of these are served at once, without a scan of the journal and without waiting for an
/// actor that may be starting a sandbox. The journal stays the truth: sessions without an actor are read from it.
#[derive(Default)]
pub(crate) struct SessionSnapshot {
    native_session_id: Option<String>,
    pub(crate) pending: Vec<PendingRequest>,
    grants: Vec<Grant>,
    queue: Vec<Arc<QueuedMessage>>,
    /// The status and its start, once it has changed.
    status: Option<(SessionStatus, i64)>,
    last_prompt: Option<String>,
    /// Whether the actor has published its state; until then readers use the journal.
    is_published: bool,
}

impl SessionHandle {
    pub(crate) fn new(id: SessionId, token: Option<String>) -> (Arc<Self>, mpsc::Receiver<Box<ActorCommand>>) {
        let (commands, receiver) = mpsc::channel(COMMAND_CAPACITY);
        let (journal, exit) = (OnceLock::new(), OnceLock::new());
        let (snapshot, sandbox, terminal) = (Mutex::default(), Mutex::default(), Mutex::default());
        let port_connections = Arc::new(Semaphore::new(MAX_PORT_CONNECTIONS));
        let handle = Self { id, token, commands, journal, snapshot, sandbox, terminal, port_connections, exit };
        (Arc::new(handle), receiver)
    }

    /// Notes why the actor is about to stop. Called before the receiver is dropped, so that a caller who finds the
    /// channel closed also finds the reason.
    pub(crate) fn set_exit(&self, exit: ActorExit) {
        // The first reason is the one that counts.
        let _ = self.exit.set(exit);
    }

    /// Returns the error for a caller whose command was not received.
    pub(crate) fn exit_error(&self) -> SessionError {
        match self.exit.get() {
            Some(ActorExit::NotCreated) => SessionError::NotFound(self.id.clone()),
            Some(ActorExit::Ended) => SessionError::Ended(self.id.clone()),
            Some(ActorExit::Damaged) => damaged_error(&self.id),
            Some(ActorExit::RunByAnotherProcess) => SessionError::RunByAnotherProcess(self.id.clone()),
            Some(ActorExit::Unreadable) => SessionError::Unreadable(self.id.clone()),
            // Without a reason, the task ended together with its runtime.
            Some(ActorExit::HostCloses) | None => SessionError::ShuttingDown,
        }
    }

    /// Sets the sandbox in which the agent runs.
    pub(crate) fn set_sandbox(&self, sandbox: &Arc<dyn Sandbox>) {
        *lock(&self.sandbox) = Some(Arc::downgrade(sandbox));
    }

    /// Returns the sandbox of the agent; `None` when no agent runs.
    pub(crate) fn sandbox(&self) -> Option<Arc<dyn Sandbox>> {
        lock(&self.sandbox).as_ref().and_then(Weak::upgrade)
    }

    /// Sets the terminal of the running agent.
    pub(crate) fn set_terminal(&self, terminal: &Arc<SessionTerminal>) {
        *lock(&self.terminal) = Some(Arc::downgrade(terminal));
    }

    /// Returns the terminal of the agent; `None` when no terminal UI runs.
    pub(crate) fn terminal(&self) -> Option<Arc<SessionTerminal>> {
        lock(&self.terminal).as_ref().and_then(Weak::upgrade)
    }

    /// Replaces the snapshot with the actor's current state.
    pub(crate) fn publish(
        &self,
        native_session_id: Option<&str>,
        pending: Vec<PendingRequest>,
        grants: &[Grant],
        queue: &VecDeque<Arc<QueuedMessage>>,
    ) {
        let mut snapshot = self.lock_snapshot();
        if snapshot.native_session_id.as_deref() != native_session_id {
            snapshot.native_session_id = native_session_id.map(str::to_owned);
        }
        snapshot.pending = pending;
        if snapshot.grants != grants {
            snapshot.grants = grants.to_vec();
        }
        if !snapshot.queue.iter().map(Arc::as_ptr).eq(queue.iter().map(Arc::as_ptr)) {
            snapshot.queue = queue.iter().cloned().collect();
        }
        snapshot.is_published = true;
    }

    /// Sets what the session does since `since_ms`.
    pub(crate) fn set_status(&self, status: SessionStatus, since_ms: i64) {
        self.lock_snapshot().status = Some((status, since_ms));
    }

    /// Returns the status, once it has changed.
    pub(crate) fn status(&self) -> Option<SessionStatus> {
        self.lock_snapshot().status.map(|(status, _)| status)
    }

    /// Sets the start of the last message.
    pub(crate) fn set_last_prompt(&self, text: String) {
        self.lock_snapshot().last_prompt = Some(text);
    }

    /// Returns the start of the last message since the session was opened.
    pub(crate) fn last_prompt(&self) -> Option<String> {
        self.lock_snapshot().last_prompt.clone()
    }

    /// Locks the snapshot. The actor holds the lock while it records a request, so that a reader who has seen the
    /// event also finds the request in the list.
    pub(crate) fn lock_snapshot(&self) -> MutexGuard<'_, SessionSnapshot> {
        lock(&self.snapshot)
    }

    /// Closes the files that only a running turn needs.
    pub(crate) fn release_files(&self) {
        if let Some(journal) = self.journal.get() {
            journal.rest();
        }
    }

    pub(crate) fn pending(&self) -> Vec<PendingRequest> {
        self.lock_snapshot().pending.clone()
    }

    /// Returns the grants of the session; `None` until the actor has published its state.
    pub(crate) fn grants(&self) -> Option<Vec<Grant>> {
        let snapshot = self.lock_snapshot();
        snapshot.is_published.then(|| snapshot.grants.clone())
    }

    /// Returns the queued messages; `None` until the actor has published its state.
    pub(crate) fn queue(&self) -> Option<Vec<Arc<QueuedMessage>>> {
        let snapshot = self.lock_snapshot();
        snapshot.is_published.then(|| snapshot.queue.clone())
    }

    /// Updates fields of `info` that the index learns later than the actor.
    pub(crate) fn refresh(&self, info: &mut SessionInfo) {
        if let Some(journal) = self.journal.get() {
            info.event_count = *journal.last().borrow();
            // The index is updated a moment after readers of the journal see the end.
            info.ended |= journal.is_ended();
        }
        let snapshot = self.lock_snapshot();
        if snapshot.native_session_id.is_some() {
            info.native_session_id.clone_from(&snapshot.native_session_id);
        }
        if snapshot.last_prompt.is_some() {
            info.last_prompt.clone_from(&snapshot.last_prompt);
        }
        match snapshot.status {
            _ if info.ended => info.status = SessionStatus::Ended,
            Some((status, since)) => (info.status, info.status_since) = (status, since),
            None => {}
        }
    }
}
