//! A journal that another process writes, followed by polling its file.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::Duration;

use protocol::{Event, EventDraft};
use store::{Journal, JournalError, JournalReader, StoredRange};
use tokio::sync::watch;

/// Poll interval. Other processes do not notify us.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A journal that another process writes.
pub(crate) struct ForeignJournal {
    reader: JournalReader,
    last: watch::Sender<u64>,
}

impl ForeignJournal {
    pub(crate) fn new(reader: JournalReader) -> Result<Self, JournalError> {
        let last = watch::Sender::new(reader.last()?);
        Ok(Self { reader, last })
    }

    /// Polls the file until the journal is dropped or `closing` returns true.
    pub(crate) async fn poll_until(journal: Weak<Self>, closing: impl Fn() -> bool) {
        let mut length = 0;
        while !closing() {
            tokio::time::sleep(POLL_INTERVAL).await;
            let Some(journal) = journal.upgrade() else { return };
            journal.poll(&mut length);
        }
    }

    fn poll(&self, length: &mut u64) {
        let Ok(metadata) = self.reader.path().metadata() else { return };
        if metadata.len() == *length {
            return;
        }
        match self.reader.last() {
            Ok(last) => {
                *length = metadata.len();
                self.last.send_if_modified(|known| std::mem::replace(known, last) != last);
            }
            Err(error) => tracing::warn!(%error, "cannot read the journal of another process"),
        }
    }
}

impl Journal for ForeignJournal {
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

/// Returns a read-only journal, and spawns the task that polls its file.
pub(crate) fn follow_journal(
    reader: JournalReader,
    tasks: &tokio_util::task::TaskTracker,
    closing: impl Fn() -> bool + Send + 'static,
) -> Result<Arc<dyn Journal>, JournalError> {
    let journal = Arc::new(ForeignJournal::new(reader)?);
    tasks.spawn(ForeignJournal::poll_until(Arc::downgrade(&journal), closing));
    Ok(journal)
}
