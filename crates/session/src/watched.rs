//! The journal of a session that another process runs: looked at, never written.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use protocol::{Event, EventDraft};
use store::{Journal, JournalError, JournalReader, StoredRange};
use tokio::sync::watch;

/// How often the file is looked at. Nobody tells us when another process writes.
const PAUSE: Duration = Duration::from_millis(50);

/// A journal that another process writes.
pub(crate) struct Watched {
    reader: JournalReader,
    last: watch::Sender<u64>,
}

impl Watched {
    pub(crate) fn new(reader: JournalReader) -> Result<Self, JournalError> {
        let last = watch::Sender::new(reader.last()?);
        Ok(Self { reader, last })
    }

    /// Looks at the file again and again, until nobody holds the journal any more or `closing` says so.
    pub(crate) async fn keep_looking(journal: Weak<Self>, closing: impl Fn() -> bool) {
        let mut length = 0;
        while !closing() {
            tokio::time::sleep(PAUSE).await;
            let Some(journal) = journal.upgrade() else { return };
            journal.look(&mut length);
        }
    }

    fn look(&self, length: &mut u64) {
        let Ok(metadata) = self.reader.path().metadata() else { return };
        if metadata.len() == *length {
            return;
        }
        match self.reader.last() {
            Ok(last) => {
                *length = metadata.len();
                self.last.send_if_modified(|known| std::mem::replace(known, last) != last);
            }
            Err(error) => tracing::warn!(%error, "cannot look at the journal of another process"),
        }
    }
}

impl Journal for Watched {
    fn store(&self, _drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        Err(JournalError::InUse(PathBuf::from(self.reader.path())))
    }

    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        self.reader.after(sequence, limit)
    }

    fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn sync(&self) -> Result<(), JournalError> {
        Ok(())
    }
}

/// Opens a journal for looking and keeps looking at it.
pub(crate) fn watch(
    reader: JournalReader,
    tasks: &tokio_util::task::TaskTracker,
    closing: impl Fn() -> bool + Send + 'static,
) -> Result<Arc<dyn Journal>, JournalError> {
    let journal = Arc::new(Watched::new(reader)?);
    tasks.spawn(Watched::keep_looking(Arc::downgrade(&journal), closing));
    Ok(journal)
}
