//! Ends of sessions that the list could not be told of, because the disk was full.
//!
//! The journal has them, and that is what counts. Until the list can be written they are told from here.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use base::lock;
use protocol::SessionId;
use store::{SessionIndex, SessionIndexError, SessionPatch, SessionRecord};

/// So many are remembered. The list learns of any others when their sessions are opened, or at the next start.
const MOST: usize = 4_096;

/// What the list does not know yet.
#[derive(Default)]
pub(crate) struct Late(Mutex<HashMap<SessionId, SessionPatch>>);

impl Late {
    /// Remembers that `id` has ended.
    pub(crate) fn remember(&self, id: &SessionId, change: SessionPatch) {
        let mut all = self.all();
        if all.len() < MOST {
            all.insert(id.clone(), change);
        }
    }

    /// Tells the list what it can take by now.
    pub(crate) fn catch_up(&self, index: &SessionIndex) {
        let mut all = self.all();
        if all.is_empty() {
            return;
        }
        all.retain(|id, change| match index.update(id, change) {
            Ok(_) | Err(SessionIndexError::NotFound(_)) => false,
            Err(error) => {
                tracing::debug!(session = %id, %error, "the list of sessions still cannot be written");
                true
            }
        });
    }

    /// `record` as it is, whatever the list says.
    pub(crate) fn correct(&self, record: &mut SessionRecord) {
        if let Some(change) = self.all().get(&record.info.session_id) {
            record.info.event_count = change.event_count.unwrap_or(record.info.event_count);
            record.info.ended |= change.outcome.is_some();
            record.outcome = record.outcome.or(change.outcome);
        }
    }

    fn all(&self) -> MutexGuard<'_, HashMap<SessionId, SessionPatch>> {
        lock(&self.0)
    }
}
