//! Writes down what the calls of one lane do: all that they have to say in one moment together, in one write for the
//! ledger and one for each journal.
//!
//! A moment is one round of the lane: whoever is ready goes on until it has something to be written, and then all of it
//! is. A call that begins is held first and then recorded; one that is over is recorded first and then settled, in the
//! round after. One that begins alone on its lane waits for no round.

mod sheets;

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use base::lock;
use protocol::EventDraft;
use store::{Journal, JournalError, Ledger, LedgerError, LedgerOperation, LedgerReply};
use tokio::sync::{Notify, oneshot};

use sheets::{Sheets, Writer};

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

/// Something to be recorded.
pub(crate) struct Record {
    pub(crate) journal: Arc<dyn Journal>,
    pub(crate) drafts: Vec<EventDraft>,
}

/// Why a call did not begin.
#[derive(Debug)]
pub(crate) enum NotOpened {
    /// It was not held.
    Refused(LedgerError),
    /// It is held, and was not recorded.
    Unrecorded(Arc<JournalError>),
}

/// A call that is over.
pub(crate) struct Closing {
    pub(crate) record: Record,
    /// Ends it in the ledger.
    pub(crate) step: LedgerOperation,
    /// Told what became of both.
    pub(crate) then: Box<dyn FnOnce(Written, LedgerReply) + Send>,
}

/// Works out what is to be written of a call that is over: not before its answer is on its way.
pub(crate) type Ended = Box<dyn FnOnce() -> Option<Closing> + Send>;

/// What became of records.
pub(crate) type Written = Result<(), Arc<JournalError>>;

/// What is to be written.
#[derive(Default)]
struct Desk {
    opening: Vec<(LedgerOperation, Option<Record>, oneshot::Sender<Opened>)>,
    records: Vec<(Record, oneshot::Sender<Written>)>,
    ended: Vec<Ended>,
    settling: Vec<Settling>,
}

/// How far a call came that begins.
enum Opened {
    /// As far as it could.
    Done(Result<(), NotOpened>),
    /// It is held once the ledger says so; its record is still to be written.
    Held(LedgerReply, Option<Record>),
}

/// A call that is over and recorded.
struct Settling {
    step: LedgerOperation,
    written: Written,
    then: Box<dyn FnOnce(Written, LedgerReply) + Send>,
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

    /// Takes the first step of a call in the ledger, and then records it. Answers when the one is as durable as the
    /// ledger was asked to be, and the other written.
    pub(crate) async fn open(&self, step: LedgerOperation, record: Option<Record>) -> Result<(), NotOpened> {
        let opened = if self.serves_one() {
            let reply = self.ledger.submit(vec![step]).pop().ok_or(NotOpened::Refused(LedgerError::Stopped))?;
            Opened::Held(reply, record)
        } else {
            let (waiting, opened) = oneshot::channel();
            self.put(|desk| desk.opening.push((step, record, waiting)));
            opened.await.map_err(|_| NotOpened::Refused(LedgerError::Stopped))?
        };
        match opened {
            Opened::Done(opened) => opened,
            Opened::Held(reply, record) => {
                reply.await.map_err(NotOpened::Refused)?;
                match record {
                    Some(record) => self.append(record).await.map_err(NotOpened::Unrecorded),
                    None => Ok(()),
                }
            }
        }
    }

    /// Appends to a journal. Answers when it is written; an error means that nothing was.
    pub(crate) async fn append(&self, record: Record) -> Written {
        if self.serves_one() {
            return record.journal.store(&record.drafts).map(drop).map_err(Arc::new);
        }
        let (waiting, written) = oneshot::channel();
        self.put(|desk| desk.records.push((record, waiting)));
        written.await.unwrap_or_else(|_| Err(Arc::new(JournalError::Ended)))
    }

    /// Records a call that is over, and then ends it in the ledger.
    pub(crate) fn end(&self, ended: Ended) {
        self.put(|desk| desk.ended.push(ended));
    }

    fn put(&self, put: impl FnOnce(&mut Desk)) {
        put(&mut lock(&self.desk));
        self.called.notify_one();
    }

    /// Writes whatever comes, until it is dropped with its lane.
    pub(crate) async fn work(self: Arc<Self>) {
        loop {
            self.called.notified().await;
            let desk = std::mem::take(&mut *lock(&self.desk));
            let settling = desk.write(&*self.ledger);
            if !settling.is_empty() {
                self.put(|desk| desk.settling.extend(settling));
                whoever_is_ready().await;
            }
        }
    }
}

/// Lets everybody go on who can.
async fn whoever_is_ready() {
    let mut went = false;
    poll_fn(|context| {
        if std::mem::replace(&mut went, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

impl Desk {
    /// Writes all of it, but for the steps of calls that were recorded just now.
    fn write(self, ledger: &dyn Ledger) -> Vec<Settling> {
        let mut sheets = Sheets::default();
        let mut steps = Vec::with_capacity(self.opening.len() + self.settling.len());
        // These first: a call that begins may hold what one that is over did not need.
        let settled: Vec<_> =
            take_steps(&mut steps, self.settling, |settling| (settling.step, (settling.written, settling.then)));
        let opening: Vec<_> = take_steps(&mut steps, self.opening, |(step, record, waiting)| (step, (record, waiting)));
        let mut replies = if steps.is_empty() { Vec::new() } else { ledger.submit(steps) }.into_iter();
        for ((written, then), reply) in settled.into_iter().zip(replies.by_ref()) {
            then(written, reply);
        }
        for ((record, waiting), reply) in opening.into_iter().zip(replies) {
            let opened = match (record, reply.at_once()) {
                (Some(record), Ok(Ok(()))) => {
                    sheets.add(record, Writer::Opening(waiting));
                    continue;
                }
                (_, Ok(held)) => Opened::Done(held.map_err(NotOpened::Refused)),
                (record, Err(later)) => Opened::Held(later, record),
            };
            // Who no longer waits has left; the step stands all the same.
            let _ = waiting.send(opened);
        }
        for (record, waiting) in self.records {
            sheets.add(record, Writer::Appending(waiting));
        }
        for ended in self.ended {
            // One that cannot be worked out takes no other with it; dropped, it says itself how far it came.
            if let Ok(Some(Closing { record, step, then })) = catch_unwind(AssertUnwindSafe(ended)) {
                sheets.add(record, Writer::Closing(step, then));
            }
        }
        sheets.write()
    }
}

/// Moves the step out of each of `items`.
fn take_steps<T, R>(
    steps: &mut Vec<LedgerOperation>,
    items: Vec<T>,
    split: impl Fn(T) -> (LedgerOperation, R),
) -> Vec<R> {
    let rest = items.into_iter().map(|item| {
        let (step, rest) = split(item);
        steps.push(step);
        rest
    });
    rest.collect()
}

#[cfg(test)]
mod tests;
