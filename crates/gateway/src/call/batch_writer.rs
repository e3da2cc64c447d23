//! The writer of one worker: it writes the ledger operations and journal events of the worker's calls in batches.
//!
//! All operations that are submitted in one tick of the worker go out together: one write to the ledger, and one to
//! each journal. A worker's only call shares no batch, so its operations are written at once.
//!
//! Not here: the order of a call's own operations (`call.rs`).

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicUsize, Ordering},
};

use base::lock;
use protocol::EventDraft;
use store::{Journal, JournalError, Ledger, LedgerError, LedgerOperation, LedgerReply};
use tokio::sync::{Notify, oneshot};

/// Writes the operations of all calls that one worker serves.
pub(crate) struct BatchWriter {
    ledger: Arc<dyn Ledger>,
    queue: Mutex<Vec<QueuedOperation>>,
    /// Signalled when the queue is not empty.
    queued: Notify,
    calls_in_flight: AtomicUsize,
}

/// Counts a call as in flight on its worker until dropped.
pub(super) struct InFlightGuard(Arc<BatchWriter>);

impl Drop for InFlightGuard {
    fn drop(&mut self) {
        self.0.calls_in_flight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Events to append to a journal.
pub(super) struct JournalEntry {
    pub(super) journal: Arc<dyn Journal>,
    pub(super) drafts: Vec<EventDraft>,
}

/// One thing to write.
pub(super) enum WriteOperation {
    /// Holds a call in the ledger, then appends `entry`. A call that the ledger does not hold is not recorded.
    Hold { hold: LedgerOperation, entry: Option<JournalEntry> },
    /// Appends to a journal.
    Record(JournalEntry),
    /// Closes a call in the ledger.
    Settle(LedgerOperation),
}

/// The error of an operation. Nothing of the part that failed was written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum WriteError {
    /// The ledger refused the operation, or cannot be written.
    #[error("cannot write to the ledger")]
    Ledger(#[source] LedgerError),
    /// The journal cannot be written. A hold that was submitted with the entry stands.
    #[error("cannot write to the journal")]
    Journal(#[source] Arc<JournalError>),
}

struct QueuedOperation {
    operation: WriteOperation,
    reply: oneshot::Sender<WriteProgress>,
}

/// How far an operation came in its batch.
enum WriteProgress {
    Finished(Result<(), WriteError>),
    /// The ledger confirms later. Only after that may `entry` be appended.
    AwaitingLedger {
        confirmation: LedgerReply,
        entry: Option<JournalEntry>,
    },
}

impl BatchWriter {
    pub(crate) fn new(ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger, queue: Mutex::default(), queued: Notify::new(), calls_in_flight: AtomicUsize::new(0) }
    }

    /// Counts a call as in flight until the guard is dropped.
    pub(super) fn begin_call(self: &Arc<Self>) -> InFlightGuard {
        self.calls_in_flight.fetch_add(1, Ordering::Relaxed);
        InFlightGuard(self.clone())
    }

    /// Writes `operation`, together with those that other calls submit in the same tick, and returns its result.
    ///
    /// A ledger operation is as durable as the ledger is configured to be when this returns.
    pub(super) async fn submit(&self, mut operation: WriteOperation) -> Result<(), WriteError> {
        loop {
            match self.write(operation).await {
                WriteProgress::Finished(result) => return result,
                WriteProgress::AwaitingLedger { confirmation, entry } => {
                    confirmation.await.map_err(WriteError::Ledger)?;
                    let Some(entry) = entry else { return Ok(()) };
                    operation = WriteOperation::Record(entry);
                }
            }
        }
    }

    /// Writes the submitted operations, batch by batch. Never returns.
    pub(crate) async fn run(self: Arc<Self>) {
        loop {
            self.queued.notified().await;
            let batch = std::mem::take(&mut *lock(&self.queue));
            write_batch(&*self.ledger, batch);
        }
    }

    /// Writes `operation`: at once for the only call in flight, else with the next batch.
    async fn write(&self, operation: WriteOperation) -> WriteProgress {
        if self.calls_in_flight.load(Ordering::Relaxed) <= 1 {
            return self.write_now(operation);
        }
        let is_record = matches!(operation, WriteOperation::Record(_));
        let (reply, progress) = oneshot::channel();
        lock(&self.queue).push(QueuedOperation { operation, reply });
        self.queued.notify_one();
        progress.await.unwrap_or_else(|_| WriteProgress::Finished(Err(stopped_error(is_record))))
    }

    /// Writes the operation of the only call in flight.
    fn write_now(&self, operation: WriteOperation) -> WriteProgress {
        let (operation, entry) = match operation {
            WriteOperation::Record(entry) => return WriteProgress::Finished(entry.append()),
            WriteOperation::Hold { hold, entry } => (hold, entry),
            WriteOperation::Settle(settlement) => (settlement, None),
        };
        match self.ledger.submit(vec![operation]).pop() {
            Some(confirmation) => WriteProgress::AwaitingLedger { confirmation, entry },
            None => WriteProgress::Finished(Err(WriteError::Ledger(LedgerError::Stopped))),
        }
    }
}

/// Returns the error of an operation whose writer stopped before the operation was written.
fn stopped_error(is_record: bool) -> WriteError {
    if is_record {
        WriteError::Journal(Arc::new(JournalError::Ended))
    } else {
        WriteError::Ledger(LedgerError::Stopped)
    }
}

/// Writes the ledger operations of `batch`, then its journal entries, and replies to each submitter.
fn write_batch(ledger: &dyn Ledger, batch: Vec<QueuedOperation>) {
    let mut journals = JournalBatches::default();
    let (mut operations, mut submitters, mut holds) = (Vec::new(), Vec::new(), Vec::new());
    for QueuedOperation { operation, reply } in batch {
        match operation {
            WriteOperation::Settle(settlement) => {
                operations.push(settlement);
                submitters.push((None, reply));
            }
            WriteOperation::Hold { hold, entry } => holds.push((hold, entry, reply)),
            WriteOperation::Record(entry) => journals.add(entry, reply),
        }
    }
    // Holds come after settlements, because they can use the amounts that those release.
    for (hold, entry, reply) in holds {
        operations.push(hold);
        submitters.push((entry, reply));
    }
    let confirmations = if operations.is_empty() { Vec::new() } else { ledger.submit(operations) };
    for ((entry, reply), confirmation) in submitters.into_iter().zip(confirmations) {
        match (confirmation.at_once(), entry) {
            (Ok(Ok(())), Some(entry)) => journals.add(entry, reply),
            (Ok(result), _) => finish(reply, result.map_err(WriteError::Ledger)),
            // A submitter that is gone does not undo the operation.
            (Err(confirmation), entry) => drop(reply.send(WriteProgress::AwaitingLedger { confirmation, entry })),
        }
    }
    journals.write();
}

fn finish(reply: oneshot::Sender<WriteProgress>, result: Result<(), WriteError>) {
    // A submitter that is gone does not need the result.
    let _ = reply.send(WriteProgress::Finished(result));
}

/// The journal entries of one batch, grouped by journal.
#[derive(Default)]
struct JournalBatches(Vec<JournalBatch>);

/// The entries of one batch for one journal.
struct JournalBatch {
    journal: Arc<dyn Journal>,
    drafts: Vec<EventDraft>,
    /// The number of drafts and the submitter of each entry.
    submitters: Vec<(usize, oneshot::Sender<WriteProgress>)>,
}

impl JournalBatches {
    fn add(&mut self, entry: JournalEntry, reply: oneshot::Sender<WriteProgress>) {
        let JournalEntry { journal, drafts } = entry;
        let count = drafts.len();
        // A linear search does: few batches hold entries of more than a few sessions.
        match self.0.iter_mut().find(|batch| Arc::ptr_eq(&batch.journal, &journal)) {
            Some(batch) => {
                batch.drafts.extend(drafts);
                batch.submitters.push((count, reply));
            }
            None => self.0.push(JournalBatch { journal, drafts, submitters: vec![(count, reply)] }),
        }
    }

    fn write(self) {
        for batch in self.0 {
            batch.write();
        }
    }
}

impl JournalBatch {
    /// Appends all entries at once. If that fails, appends each entry alone, so that one bad entry affects no other.
    fn write(self) {
        let Self { journal, drafts, submitters } = self;
        let whole = append(&*journal, &drafts);
        let (mut rest, alone) = (&drafts[..], submitters.len() == 1);
        for (count, reply) in submitters {
            let (own, others) = rest.split_at(count);
            rest = others;
            let result = if whole.is_ok() || alone { whole.clone() } else { append(&*journal, own) };
            finish(reply, result.map_err(WriteError::Journal));
        }
    }
}

impl JournalEntry {
    fn append(&self) -> Result<(), WriteError> {
        append(&*self.journal, &self.drafts).map_err(WriteError::Journal)
    }
}

fn append(journal: &dyn Journal, drafts: &[EventDraft]) -> Result<(), Arc<JournalError>> {
    if drafts.is_empty() {
        return Ok(());
    }
    journal.store(drafts).map(drop).map_err(Arc::new)
}

#[cfg(test)]
mod tests;
