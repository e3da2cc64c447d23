//! Ends of sessions that could not be written to the index because the disk was full.
//!
//! The journals have them. Until the index can be written, readers get them from here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use base::lock;
use protocol::{SessionId, SessionStatus};
use store::{SessionIndex, SessionIndexError, SessionPatch, SessionRecord};

/// Updates kept in memory. The index gets any others when their sessions are opened, or at the next start.
const MAX_UPDATES: usize = 4_096;

/// Index updates that are not written yet, by session.
#[derive(Default)]
pub(crate) struct PendingIndexUpdates(Mutex<HashMap<SessionId, SessionPatch>>);

impl PendingIndexUpdates {
    /// Keeps an update for later. Drops it when there are too many.
    pub(crate) fn add(&self, id: &SessionId, patch: SessionPatch) {
        let mut all = self.all();
        if all.len() < MAX_UPDATES {
            all.insert(id.clone(), patch);
        }
    }

    /// Tries to write all updates to the index.
    pub(crate) fn write_to(&self, index: &SessionIndex) {
        let mut all = self.all();
        if all.is_empty() {
            return;
        }
        all.retain(|id, patch| match index.update(id, patch) {
            Ok(_) | Err(SessionIndexError::NotFound(_)) => false,
            Err(error) => {
                tracing::debug!(session = %id, %error, "cannot write the session index yet");
                true
            }
        });
    }

    /// Applies a pending update to `record`.
    pub(crate) fn apply_to(&self, record: &mut SessionRecord) {
        if let Some(patch) = self.all().get(&record.info.session_id) {
            record.info.event_count = patch.event_count.unwrap_or(record.info.event_count);
            if patch.outcome.is_some() {
                (record.info.ended, record.info.status) = (true, SessionStatus::Ended);
            }
            record.outcome = record.outcome.or(patch.outcome);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, SessionPatch>> {
        lock(&self.0)
    }
}
