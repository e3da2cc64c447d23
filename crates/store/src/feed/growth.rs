//! Which sessions of this process have grown since somebody last asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use base::lock;
use protocol::SessionId;
use tokio::sync::Notify;

/// So many sessions are remembered while nobody asks; then all are forgotten, and whoever asks looks at all there are.
const MOST: usize = 1_024;

/// Which sessions of this process have grown.
///
/// A journal pays for one look at a flag of its own with each record, and for the shared list only with the first one
/// after somebody asked: nobody who writes waits for others who write.
#[derive(Debug, Default)]
pub struct GrowthTracker {
    noted: Mutex<Noted>,
    notify: Notify,
}

#[derive(Debug, Default)]
struct Noted {
    sessions: HashMap<SessionId, Mark>,
    forgot: bool,
}

/// What has grown since somebody last asked.
#[derive(Debug, PartialEq, Eq)]
pub enum GrownSessions {
    /// These sessions.
    Listed(Vec<SessionId>),
    /// More than were remembered.
    Unlisted,
}

/// Whether a journal is in the list already.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mark(Arc<AtomicBool>);

impl GrowthTracker {
    /// Waits until a session has grown. For one who waits.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }

    /// Those that have grown since the last call.
    pub fn take(&self) -> GrownSessions {
        let Noted { sessions, forgot } = std::mem::take(&mut *lock(&self.noted));
        // Before anybody looks at them: what is written from now on puts them in the list again.
        let sessions = clear(sessions);
        if forgot { GrownSessions::Unlisted } else { GrownSessions::Listed(sessions) }
    }

    pub(crate) fn note(&self, session: &SessionId, mark: &Mark) {
        if !mark.0.swap(true, Ordering::SeqCst) {
            let mut noted = lock(&self.noted);
            if noted.sessions.len() == MOST {
                noted.forgot = true;
                clear(std::mem::take(&mut noted.sessions));
            }
            noted.sessions.insert(session.clone(), mark.clone());
            drop(noted);
            self.notify.notify_one();
        }
    }
}

/// Takes sessions off the list.
fn clear(sessions: HashMap<SessionId, Mark>) -> Vec<SessionId> {
    let unmarked = sessions.into_iter().map(|(session, mark)| {
        mark.0.store(false, Ordering::SeqCst);
        session
    });
    unmarked.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn session(number: usize) -> SessionId {
        SessionId::new(format!("s{number}")).expect("id")
    }

    #[test]
    fn each_is_told_once_until_it_grows_again() {
        let (growth, mark) = (GrowthTracker::default(), Mark::default());
        growth.note(&session(1), &mark);
        growth.note(&session(1), &mark);
        assert_eq!(growth.take(), GrownSessions::Listed(vec![session(1)]));
        assert_eq!(growth.take(), GrownSessions::Listed(vec![]));
        growth.note(&session(1), &mark);
        assert_eq!(growth.take(), GrownSessions::Listed(vec![session(1)]));
    }

    #[test]
    fn more_than_are_remembered_are_told_as_any() {
        let growth = GrowthTracker::default();
        let marks: Vec<Mark> = (0..=MOST).map(|_| Mark::default()).collect();
        for (number, mark) in marks.iter().enumerate() {
            growth.note(&session(number), mark);
        }
        assert_eq!(lock(&growth.noted).sessions.len(), 1);
        assert_eq!(growth.take(), GrownSessions::Unlisted);
        // Those that were forgotten are told of again when they grow.
        growth.note(&session(0), &marks[0]);
        assert_eq!(growth.take(), GrownSessions::Listed(vec![session(0)]));
    }
}
