//! Who waits for the disk after a call: one wait for all calls of a journal that end within a moment.

use std::{
    collections::HashSet,
    sync::{Arc, Mutex},
};

use base::lock;
use protocol::SessionId;
use store::Journal;

/// The journals that are about to be written out.
#[derive(Debug, Clone, Default)]
pub(crate) struct Syncs(Arc<Mutex<HashSet<SessionId>>>);

impl Syncs {
    /// Asks that `session`'s journal be written out; true: the caller is the one to do it, with
    /// [`Syncs::write_out`].
    pub(crate) fn ask(&self, session: &SessionId) -> bool {
        let mut asked = lock(&self.0);
        !asked.contains(session) && asked.insert(session.clone())
    }

    /// Writes the journal out. Waits for the disk.
    pub(crate) fn write_out(&self, session: &SessionId, journal: &dyn Journal) {
        // Whoever asks from now on may have written what this one does not cover.
        lock(&self.0).remove(session);
        if let Err(error) = journal.sync() {
            tracing::error!(%error, %session, "the record of calls may be lost in a power failure");
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
