//! The record of a turn on its way to the disk, beside the turn that follows.
//!
//! Everything is in the kernel's hands before anybody is told of it, so that a killed host loses nothing. What a
//! power failure could still take is one turn.

use std::sync::Arc;

use protocol::SessionId;
use store::{JournalError, SessionPatch};
use tokio::task::JoinHandle;

use crate::SessionError;
use crate::recorder::Recorder;
use crate::shelf::Shelf;

/// The record of the last turn, until the disk has it.
#[derive(Default)]
pub(super) struct Settling(Option<JoinHandle<Result<(), JournalError>>>);

impl Settling {
    /// Has the disk take what is on record, and the list of sessions know of it.
    pub(super) fn begin(&mut self, keeper: &Arc<Shelf>, id: &SessionId, recorder: &Recorder) {
        let (keeper, id, journal) = (keeper.clone(), id.clone(), recorder.journal().clone());
        let change = SessionPatch { event_count: Some(recorder.last()), ..SessionPatch::default() };
        self.0 = Some(tokio::task::spawn_blocking(move || {
            journal.sync()?;
            keeper.note_now(&id, &change);
            Ok(())
        }));
    }

    pub(super) fn is_running(&self) -> bool {
        self.0.is_some()
    }

    /// Returns when the disk has it, at once when there is nothing on its way. May be dropped at any moment.
    pub(super) async fn settled(&mut self) -> Result<(), SessionError> {
        let Some(task) = &mut self.0 else { return Ok(()) };
        let outcome = task.await;
        self.0 = None;
        // A runtime that goes away took the thread with it.
        Ok(outcome.unwrap_or(Ok(()))?)
    }
}
