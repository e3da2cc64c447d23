//! Writes down what the calls of one lane do: all that they have to say in one moment together, in one write for the
//! ledger and one for each journal.
//!
//! A moment is one round of the lane: whoever is ready goes on until it has something to be written, and then all of it
//! is. A call that is alone on its lane waits for no round.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicUsize, Ordering},
};

use protocol::Draft;
use store::{Journal, JournalError, Ledger, LedgerError, Reply, Step};
use tokio::sync::{Notify, oneshot};
use tokio_util::task::task_tracker::TaskTrackerToken;

/// The scribe of one lane.
pub(crate) struct Scribe {
    ledger: Arc<dyn Ledger>,
    desk: Mutex<Desk>,
    /// Something lies on the desk.
    called: Notify,
    /// Calls under way on this lane.
    calls: AtomicUsize,
}

/// A call that is under way on a lane.
pub(crate) struct Seat(Arc<Scribe>);

impl Drop for Seat {
    fn drop(&mut self) {
        self.0.calls.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What is to be written.
#[derive(Default)]
struct Desk {
    steps: Vec<(Step, Asked<Reply>)>,
    records: Vec<Records>,
}

/// What is to be written into one journal.
struct Records {
    journal: Arc<dyn Journal>,
    drafts: Vec<Draft>,
    asked: Vec<Asked<Written>>,
}

/// What became of records; the same for all that were written together.
type Written = Result<(), Arc<JournalError>>;

/// Whoever waits for it, and the attachment that does not end before it is written.
struct Asked<T> {
    waiting: oneshot::Sender<T>,
    owner: TaskTrackerToken,
}

impl<T> Asked<T> {
    fn answer(self, answer: T) {
        // Who no longer waits has left; what it said is written all the same.
        let _ = self.waiting.send(answer);
        drop(self.owner);
    }
}

impl Scribe {
    pub(crate) fn new(ledger: Arc<dyn Ledger>) -> Self {
        Self { ledger, desk: Mutex::default(), called: Notify::new(), calls: AtomicUsize::new(0) }
    }

    /// Counts a call in, until its seat is dropped.
    pub(crate) fn seat(self: &Arc<Self>) -> Seat {
        self.calls.fetch_add(1, Ordering::Relaxed);
        Seat(self.clone())
    }

    /// Whether nobody else could have something to be written in this moment.
    fn serves_one(&self) -> bool {
        self.calls.load(Ordering::Relaxed) <= 1
    }

    /// Takes a step in the ledger. Answers when it is as durable as the ledger was asked to be.
    pub(crate) async fn step(&self, step: Step, owner: TaskTrackerToken) -> Result<(), LedgerError> {
        if self.serves_one() {
            return self.ledger.take(vec![step]).pop().ok_or(LedgerError::Stopped)?.await;
        }
        let (waiting, reply) = oneshot::channel();
        self.put(|desk| desk.steps.push((step, Asked { waiting, owner })));
        reply.await.map_err(|_| LedgerError::Stopped)?.await
    }

    /// Appends to a journal. Answers when it is written; an error means that nothing was.
    pub(crate) async fn append(
        &self,
        journal: &Arc<dyn Journal>,
        drafts: Vec<Draft>,
        owner: TaskTrackerToken,
    ) -> Written {
        if self.serves_one() {
            return journal.store(&drafts).map(drop).map_err(Arc::new);
        }
        let (waiting, written) = oneshot::channel();
        self.put(|desk| desk.records_of(journal).add(drafts, Asked { waiting, owner }));
        written.await.unwrap_or_else(|_| Err(Arc::new(JournalError::Ended)))
    }

    fn put(&self, put: impl FnOnce(&mut Desk)) {
        put(&mut self.desk.lock().unwrap_or_else(PoisonError::into_inner));
        self.called.notify_one();
    }

    /// Writes whatever comes, until it is dropped with its lane.
    pub(crate) async fn work(self: Arc<Self>) {
        loop {
            self.called.notified().await;
            let desk = std::mem::take(&mut *self.desk.lock().unwrap_or_else(PoisonError::into_inner));
            desk.write(&*self.ledger);
        }
    }
}

impl Desk {
    fn records_of(&mut self, journal: &Arc<dyn Journal>) -> &mut Records {
        // Few lanes serve more than a few sessions in one moment.
        let place = self.records.iter().position(|records| Arc::ptr_eq(&records.journal, journal));
        let place = place.unwrap_or(self.records.len());
        if place == self.records.len() {
            self.records.push(Records { journal: journal.clone(), drafts: Vec::new(), asked: Vec::new() });
        }
        &mut self.records[place]
    }

    fn write(self, ledger: &dyn Ledger) {
        if !self.steps.is_empty() {
            let (steps, asked): (Vec<_>, Vec<_>) = self.steps.into_iter().unzip();
            asked.into_iter().zip(ledger.take(steps)).for_each(|(asked, reply)| asked.answer(reply));
        }
        self.records.into_iter().for_each(Records::write);
    }
}

impl Records {
    fn add(&mut self, drafts: Vec<Draft>, asked: Asked<Written>) {
        self.drafts.extend(drafts);
        self.asked.push(asked);
    }

    /// All of it or nothing: what refuses one record of a call, a full disk or the end of the session, refuses all.
    fn write(self) {
        let written: Written = self.journal.store(&self.drafts).map(drop).map_err(Arc::new);
        self.asked.into_iter().for_each(|asked| asked.answer(written.clone()));
    }
}

#[cfg(test)]
mod tests {
    use protocol::{Event, EventBody, SessionId};
    use serde_json::Value;
    use store::{DataDir, Durability, MemoryJournal, SqliteLedger, Stored, SystemClock};
    use tokio::sync::watch;
    use tokio_util::task::TaskTracker;

    use super::*;

    /// A journal that counts how often it is written to.
    struct Counted {
        journal: MemoryJournal,
        writes: AtomicUsize,
    }

    impl Journal for Counted {
        fn store(&self, drafts: &[Draft]) -> Result<Stored, JournalError> {
            self.writes.fetch_add(1, Ordering::Relaxed);
            self.journal.store(drafts)
        }

        fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
            self.journal.after(sequence, limit)
        }

        fn last(&self) -> watch::Receiver<u64> {
            self.journal.last()
        }

        fn sync(&self) -> Result<(), JournalError> {
            self.journal.sync()
        }
    }

    fn draft(kind: &str) -> Draft {
        Draft::daemon(EventBody::Other { kind: kind.to_owned(), data: Value::Null })
    }

    /// How often a journal was written to, and how many records it holds, after `calls` calls had two each to record.
    async fn write(calls: usize) -> (usize, u64) {
        let directory = tempfile::tempdir().unwrap();
        let directory = DataDir::open(directory.path()).unwrap();
        let ledger = SqliteLedger::claim(&directory, Durability::Normal, Arc::new(SystemClock)).unwrap().ledger;
        let (scribe, tracker) = (Arc::new(Scribe::new(Arc::new(ledger))), TaskTracker::new());
        let journal = MemoryJournal::new(SessionId::new("s1").unwrap(), Arc::new(SystemClock));
        let counted = Arc::new(Counted { journal, writes: AtomicUsize::new(0) });
        let journal: Arc<dyn Journal> = counted.clone();
        let seats: Vec<Seat> = (0..calls).map(|_| scribe.seat()).collect();
        let asked = seats.iter().map(|_| scribe.append(&journal, vec![draft("a"), draft("b")], tracker.token()));
        let asked = futures_util::future::join_all(asked);
        let written = tokio::select! {
            written = asked => written,
            () = scribe.clone().work() => Vec::new(),
        };
        assert_eq!(written.iter().filter(|written| written.is_ok()).count(), calls);
        assert_eq!(tracker.len(), 0, "what is written still keeps its attachment");
        (counted.writes.load(Ordering::Relaxed), *counted.last().borrow())
    }

    #[tokio::test]
    async fn what_calls_say_in_one_moment_is_written_in_one_go() {
        assert_eq!(write(5).await, (1, 10));
    }

    #[tokio::test]
    async fn a_call_that_is_alone_is_written_at_once() {
        assert_eq!(write(1).await, (1, 2));
    }

    #[tokio::test]
    async fn the_end_of_a_session_is_told_to_all_who_wanted_to_write() {
        let directory = tempfile::tempdir().unwrap();
        let directory = DataDir::open(directory.path()).unwrap();
        let ledger = SqliteLedger::claim(&directory, Durability::Normal, Arc::new(SystemClock)).unwrap().ledger;
        let (scribe, tracker) = (Arc::new(Scribe::new(Arc::new(ledger))), TaskTracker::new());
        let journal = MemoryJournal::new(SessionId::new("s1").unwrap(), Arc::new(SystemClock));
        let ended: EventBody =
            serde_json::from_str(r#"{"type":"session.ended","data":{"reason":"terminated","terminated_by":"daemon"}}"#)
                .unwrap();
        journal.append(Draft::daemon(ended)).unwrap();
        let journal: Arc<dyn Journal> = Arc::new(journal);
        let _seats = [scribe.seat(), scribe.seat()];
        let both = async {
            let one = scribe.append(&journal, vec![draft("a")], tracker.token());
            let other = scribe.append(&journal, vec![draft("b")], tracker.token());
            tokio::join!(one, other)
        };
        let (one, other) = tokio::select! {
            both = both => both,
            () = scribe.clone().work() => (Ok(()), Ok(())),
        };
        for written in [one, other] {
            assert!(matches!(written.as_ref().map_err(|error| &**error), Err(JournalError::Ended)), "{written:?}");
        }
    }
}
