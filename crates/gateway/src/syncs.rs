//! Who waits for the disk after a call: one thread a journal, however many calls it settles.
//!
//! Each wait covers every record that was written before it began, so a call that ends meanwhile only asks for one
//! more.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
};

use protocol::SessionId;
use store::Journal;

/// The journals that are being written out, each with whether it must be once more.
#[derive(Debug, Clone, Default)]
pub(crate) struct Syncs(Arc<Mutex<HashMap<SessionId, bool>>>);

impl Syncs {
    /// Asks that `session`'s journal be written out; true: the caller is the one to do it, with
    /// [`Syncs::write_out`].
    pub(crate) fn ask(&self, session: &SessionId) -> bool {
        let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(again) = running.get_mut(session) {
            *again = true;
            return false;
        }
        running.insert(session.clone(), false);
        true
    }

    /// Writes the journal out until nobody has asked for it since. Waits for the disk.
    pub(crate) fn write_out(&self, session: &SessionId, journal: &dyn Journal) {
        loop {
            if let Err(error) = journal.sync() {
                tracing::error!(%error, %session, "the record of calls may be lost in a power failure");
            }
            let mut running = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            if !matches!(running.insert(session.clone(), false), Some(true)) {
                running.remove(session);
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_waits_for_all() {
        let (syncs, session) = (Syncs::default(), SessionId::new("s1").unwrap());
        assert!(syncs.ask(&session));
        assert!(!syncs.ask(&session) && !syncs.ask(&session));
        syncs.write_out(&session, &store::MemoryJournal::new(session.clone(), Arc::new(store::SystemClock)));
        assert!(syncs.ask(&session), "nobody waits any more");
    }
}
