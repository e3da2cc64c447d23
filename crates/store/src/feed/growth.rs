//! Which sessions of this process have grown since somebody last asked.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use protocol::SessionId;
use tokio::sync::Notify;

use crate::guard::lock;

/// Which sessions of this process have grown.
///
/// A journal pays for one look at a flag of its own with each record, and for the shared list only with the first one
/// after somebody asked: nobody who writes waits for others who write.
#[derive(Debug, Default)]
pub struct Growth {
    grown: Mutex<HashMap<SessionId, Mark>>,
    notify: Notify,
}

/// Whether a journal is in the list already.
#[derive(Debug, Clone, Default)]
pub(crate) struct Mark(Arc<AtomicBool>);

impl Growth {
    /// Waits until a session has grown. For one who waits.
    pub async fn changed(&self) {
        self.notify.notified().await;
    }

    /// Those that have grown since the last call.
    pub fn take(&self) -> Vec<SessionId> {
        let grown = std::mem::take(&mut *lock(&self.grown));
        // Before anybody looks at them: what is written from now on puts them in the list again.
        for mark in grown.values() {
            mark.0.store(false, Ordering::SeqCst);
        }
        grown.into_keys().collect()
    }

    pub(crate) fn note(&self, session: &SessionId, mark: &Mark) {
        if !mark.0.swap(true, Ordering::SeqCst) {
            lock(&self.grown).insert(session.clone(), mark.clone());
            self.notify.notify_one();
        }
    }
}
