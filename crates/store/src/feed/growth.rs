//! The sessions of this process whose journals have grown since the last check.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base::lock;
use protocol::SessionId;
use tokio::sync::Notify;

/// The most sessions in the list. When it is reached, the list is dropped and the next check must look at all sessions.
const MAX_SESSIONS: usize = 1_024;

/// The list of sessions of this process whose journals have grown.
///
/// An append checks a flag of its journal. Only the first append after a check locks the shared list, so writers do not
/// wait for each other.
#[derive(Debug, Default)]
pub struct GrowthTracker {
    grown: Mutex<GrownList>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct GrownList {
    sessions: HashMap<SessionId, GrowthFlag>,
    overflowed: bool,
}

/// The sessions that have grown since the last check.
#[derive(Debug, PartialEq, Eq)]
pub enum GrownSessions {
    /// Exactly these sessions.
    Listed(Vec<SessionId>),
    /// More sessions than the list can hold.
    Unlisted,
}

/// Whether a journal is in the list.
#[derive(Debug, Clone, Default)]
pub(crate) struct GrowthFlag(Arc<AtomicBool>);

impl GrowthTracker {
    /// Waits until a session has grown. Supports one waiting task.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }

    /// Returns the sessions that have grown since the last call.
    pub fn take(&self) -> GrownSessions {
        let GrownList { sessions, overflowed } = std::mem::take(&mut *lock(&self.grown));
        // The flags are cleared before the caller reads the journals, so that a later append adds the session again.
        let sessions = clear(sessions);
        if overflowed { GrownSessions::Unlisted } else { GrownSessions::Listed(sessions) }
    }

    /// Adds `session` to the list, unless `flag` says that it is there.
    pub(crate) fn note(&self, session: &SessionId, flag: &GrowthFlag) {
        if !flag.0.swap(true, Ordering::SeqCst) {
            let mut grown = lock(&self.grown);
            if grown.sessions.len() == MAX_SESSIONS {
                grown.overflowed = true;
                clear(std::mem::take(&mut grown.sessions));
            }
            grown.sessions.insert(session.clone(), flag.clone());
            drop(grown);
            self.notify.notify_one();
        }
    }
}

/// Clears the flags of `sessions` and returns their ids.
fn clear(sessions: HashMap<SessionId, GrowthFlag>) -> Vec<SessionId> {
    let cleared = sessions.into_iter().map(|(session, flag)| {
        flag.0.store(false, Ordering::SeqCst);
        session
    });
    cleared.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: usize) -> SessionId {
        SessionId::new(format!("s{number}")).expect("id")
    }

    #[test]
    fn session_is_listed_once_until_it_grows_again() {
        let (growth, flag) = (GrowthTracker::default(), GrowthFlag::default());
        growth.note(&session(1), &flag);
        growth.note(&session(1), &flag);
        assert_eq!(growth.take(), GrownSessions::Listed(vec![session(1)]));
        assert_eq!(growth.take(), GrownSessions::Listed(vec![]));
        growth.note(&session(1), &flag);
        assert_eq!(growth.take(), GrownSessions::Listed(vec![session(1)]));
    }

    #[test]
    fn too_many_sessions_are_reported_as_unlisted() {
        let growth = GrowthTracker::default();
        let flags: Vec<GrowthFlag> = (0..=MAX_SESSIONS).map(|_| GrowthFlag::default()).collect();
        for (number, flag) in flags.iter().enumerate() {
            growth.note(&session(number), flag);
        }
        assert_eq!(lock(&growth.grown).sessions.len(), 1);
        assert_eq!(growth.take(), GrownSessions::Unlisted);
        // A session that was dropped from the list is listed again when it grows.
        growth.note(&session(0), &flags[0]);
        assert_eq!(growth.take(), GrownSessions::Listed(vec![session(0)]));
    }
}
