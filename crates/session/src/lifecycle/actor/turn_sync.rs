//! The fsync of a finished turn, which runs while the next turn proceeds.
//!
//! Events are in the page cache before a client sees them, so a killed host loses nothing. A power failure can lose
//! at most one turn.

use std::sync::Arc;

use protocol::SessionId;
use store::{JournalError, SessionPatch};
use tokio::task::JoinHandle;

use crate::SessionError;
use crate::lifecycle::Recorder;
use crate::storage::SessionStore;

/// The running fsync of the last turn, if any.
#[derive(Default)]
pub(super) struct TurnSync(Option<JoinHandle<Result<(), JournalError>>>);

impl TurnSync {
    /// Starts to sync the journal, and afterwards writes `patch` and the event count to the index.
    pub(super) fn start(
        &mut self,
        store: &Arc<SessionStore>,
        id: &SessionId,
        recorder: &Recorder,
        patch: SessionPatch,
    ) {
        let (store, id, journal) = (store.clone(), id.clone(), recorder.journal().clone());
        let patch = SessionPatch { event_count: Some(recorder.last()), ..patch };
        self.0 = Some(tokio::task::spawn_blocking(move || {
            journal.sync()?;
            store.update_index(&id, &patch);
            Ok(())
        }));
    }

    pub(super) fn is_running(&self) -> bool {
        self.0.is_some()
    }

    /// Waits for the running fsync; returns at once when none runs. Cancel-safe.
    pub(super) async fn wait(&mut self) -> Result<(), SessionError> {
        let Some(task) = &mut self.0 else { return Ok(()) };
        let outcome = task.await;
        self.0 = None;
        // The runtime is shutting down, and its threads with it.
        Ok(outcome.unwrap_or(Ok(()))?)
    }
}
