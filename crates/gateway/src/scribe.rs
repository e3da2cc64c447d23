//! Writes down what the calls of one lane do: all that they have to say in one moment together, in one write for the
//! ledger and one for each journal.
//!
//! A moment is one round of the lane: whoever is ready goes on until it has something to be written, and then all of it
//! is. A call that begins is held first and then recorded; one that is over is recorded first and then settled, in the
//! round after. One that begins alone on its lane waits for no round.

use std::{
    future::poll_fn,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    task::Poll,
};

use protocol::Draft;
use store::{Journal, JournalError, Ledger, LedgerError, Reply, Step};
use tokio::sync::{Notify, oneshot};

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
    pub(crate) drafts: Vec<Draft>,
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
    pub(crate) step: Step,
    /// Told what became of both.
    pub(crate) then: Box<dyn FnOnce(Written, Reply) + Send>,
}

/// Works out what is to be written of a call that is over: not before its answer is on its way.
pub(crate) type Ended = Box<dyn FnOnce() -> Option<Closing> + Send>;

/// What became of records.
pub(crate) type Written = Result<(), Arc<JournalError>>;

/// What is to be written.
#[derive(Default)]
struct Desk {
    opening: Vec<(Step, Option<Record>, oneshot::Sender<Opened>)>,
    records: Vec<(Record, oneshot::Sender<Written>)>,
    ended: Vec<Ended>,
    settling: Vec<Settling>,
}

/// How far a call came that begins.
enum Opened {
    /// As far as it could.
    Done(Result<(), NotOpened>),
    /// It is held once the ledger says so; its record is still to be written.
    Held(Reply, Option<Record>),
}

/// A call that is over and recorded.
struct Settling {
    step: Step,
    written: Written,
    then: Box<dyn FnOnce(Written, Reply) + Send>,
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
    pub(crate) async fn open(&self, step: Step, record: Option<Record>) -> Result<(), NotOpened> {
        let opened = if self.serves_one() {
            let reply = self.ledger.take(vec![step]).pop().ok_or(NotOpened::Refused(LedgerError::Stopped))?;
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
        put(&mut self.desk.lock().unwrap_or_else(PoisonError::into_inner));
        self.called.notify_one();
    }

    /// Writes whatever comes, until it is dropped with its lane.
    pub(crate) async fn work(self: Arc<Self>) {
        loop {
            self.called.notified().await;
            let desk = std::mem::take(&mut *self.desk.lock().unwrap_or_else(PoisonError::into_inner));
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
        let opening: Vec<_> = take_steps(&mut steps, self.opening, |(step, record, waiting)| (step, (record, waiting)));
        let settled: Vec<_> =
            take_steps(&mut steps, self.settling, |settling| (settling.step, (settling.written, settling.then)));
        let mut replies = if steps.is_empty() { Vec::new() } else { ledger.take(steps) }.into_iter();
        for ((record, waiting), reply) in opening.into_iter().zip(replies.by_ref()) {
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
        settled.into_iter().zip(replies).for_each(|((written, then), reply)| then(written, reply));
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
fn take_steps<T, R>(steps: &mut Vec<Step>, items: Vec<T>, split: impl Fn(T) -> (Step, R)) -> Vec<R> {
    let rest = items.into_iter().map(|item| {
        let (step, rest) = split(item);
        steps.push(step);
        rest
    });
    rest.collect()
}

/// What is to be written into journals, one sheet for each.
#[derive(Default)]
struct Sheets(Vec<Sheet>);

struct Sheet {
    journal: Arc<dyn Journal>,
    drafts: Vec<Draft>,
    /// Whose they are, and how many.
    writers: Vec<(usize, Writer)>,
}

/// Whoever has something recorded.
enum Writer {
    Opening(oneshot::Sender<Opened>),
    Appending(oneshot::Sender<Written>),
    Closing(Step, Box<dyn FnOnce(Written, Reply) + Send>),
}

impl Sheets {
    fn add(&mut self, record: Record, writer: Writer) {
        let Record { journal, drafts } = record;
        let count = drafts.len();
        // Few lanes serve more than a few sessions in one moment.
        match self.0.iter_mut().find(|sheet| Arc::ptr_eq(&sheet.journal, &journal)) {
            Some(sheet) => {
                sheet.drafts.extend(drafts);
                sheet.writers.push((count, writer));
            }
            None => self.0.push(Sheet { journal, drafts, writers: vec![(count, writer)] }),
        }
    }

    fn write(self) -> Vec<Settling> {
        let mut settling = Vec::new();
        for sheet in self.0 {
            sheet.write(&mut settling);
        }
        settling
    }
}

impl Sheet {
    /// Writes it whole; or, where that fails, what each has to say on its own.
    fn write(self, settling: &mut Vec<Settling>) {
        let Self { journal, drafts, writers } = self;
        let store = |drafts: &[Draft]| match drafts {
            [] => Ok(()),
            drafts => journal.store(drafts).map(drop).map_err(Arc::new),
        };
        let whole = store(&drafts);
        let (mut rest, alone) = (&drafts[..], writers.len() == 1);
        for (count, writer) in writers {
            let (own, others) = rest.split_at(count);
            rest = others;
            let written = if whole.is_ok() || alone { whole.clone() } else { store(own) };
            match writer {
                Writer::Opening(waiting) => drop(waiting.send(Opened::Done(written.map_err(NotOpened::Unrecorded)))),
                Writer::Appending(waiting) => drop(waiting.send(written)),
                Writer::Closing(step, then) => settling.push(Settling { step, written, then }),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::{CallId, Event, EventBody, SessionId};
    use serde_json::Value;
    use store::{
        DataDir, Durability, Hold, Limit, MemoryJournal, Most, Scope, Source, SqliteLedger, Stored, SystemClock, Window,
    };
    use tokio::sync::watch;

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

    /// A scribe with a ledger of its own.
    fn scribe() -> (tempfile::TempDir, Arc<Scribe>) {
        let place = tempfile::tempdir().unwrap();
        let directory = DataDir::open(place.path()).unwrap();
        let ledger = SqliteLedger::claim(&directory, Durability::Normal, Arc::new(SystemClock)).unwrap().ledger;
        (place, Arc::new(Scribe::new(Arc::new(ledger))))
    }

    fn journal() -> Arc<dyn Journal> {
        Arc::new(MemoryJournal::new(SessionId::new("s1").unwrap(), Arc::new(SystemClock)))
    }

    /// What `asked` comes to, while the scribe works.
    async fn served<T>(scribe: &Arc<Scribe>, asked: impl Future<Output = T>) -> T {
        tokio::select! {
            answer = asked => answer,
            () = scribe.clone().work() => unreachable!("a scribe works until it is dropped"),
        }
    }

    /// A hold of a call whose session may make so many in all.
    fn hold(call: &str, most: u64) -> Step {
        Step::Hold(Box::new(Hold {
            call: CallId::new(call).unwrap(),
            source: Source { system: "viv".into(), run: "s1".into(), attempt: 1 },
            session: SessionId::new("s1").unwrap(),
            account: "a1".into(),
            user: None,
            key: None,
            agent: None,
            model: "m1".to_owned(),
            price_hash: "p1".into(),
            picos: 1,
            limits: vec![Limit {
                name: "max_requests",
                scope: Scope::Session,
                window: Window::Ever,
                most: Most::Requests(most),
            }],
            sent: true,
            fresh: true,
        }))
    }

    fn draft(kind: &str) -> Draft {
        Draft::daemon(EventBody::Other { kind: kind.to_owned(), data: Value::Null })
    }

    /// How often a journal was written to, and how many records it holds, after `calls` calls had two each to record.
    async fn write(calls: usize) -> (usize, u64) {
        let (_place, scribe) = scribe();
        let journal = MemoryJournal::new(SessionId::new("s1").unwrap(), Arc::new(SystemClock));
        let counted = Arc::new(Counted { journal, writes: AtomicUsize::new(0) });
        let journal: Arc<dyn Journal> = counted.clone();
        let seats: Vec<Seat> = (0..calls).map(|_| scribe.seat()).collect();
        let record = || Record { journal: journal.clone(), drafts: vec![draft("a"), draft("b")] };
        let asked = seats.iter().map(|_| scribe.append(record()));
        let asked = futures_util::future::join_all(asked);
        let written = served(&scribe, asked).await;
        assert_eq!(written.iter().filter(|written| written.is_ok()).count(), calls);
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
        let (_place, scribe) = scribe();
        let journal = MemoryJournal::new(SessionId::new("s1").unwrap(), Arc::new(SystemClock));
        let ended: EventBody =
            serde_json::from_str(r#"{"type":"session.ended","data":{"reason":"terminated","terminated_by":"daemon"}}"#)
                .unwrap();
        journal.append(Draft::daemon(ended)).unwrap();
        let journal: Arc<dyn Journal> = Arc::new(journal);
        let _seats = [scribe.seat(), scribe.seat()];
        let both = async {
            let one = scribe.append(Record { journal: journal.clone(), drafts: vec![draft("a")] });
            let other = scribe.append(Record { journal: journal.clone(), drafts: vec![draft("b")] });
            tokio::join!(one, other)
        };
        let (one, other) = served(&scribe, both).await;
        for written in [one, other] {
            assert!(matches!(written.as_ref().map_err(|error| &**error), Err(JournalError::Ended)), "{written:?}");
        }
    }

    #[tokio::test]
    async fn what_is_not_held_is_not_recorded() {
        for others in 0..2 {
            let ((_place, scribe), journal) = (scribe(), journal());
            let _seats: Vec<Seat> = (0..=others).map(|_| scribe.seat()).collect();
            let record = |kind| Some(Record { journal: journal.clone(), drafts: vec![draft(kind)] });
            served(&scribe, scribe.open(hold("c1", 1), record("a"))).await.unwrap();
            let refused = served(&scribe, scribe.open(hold("c2", 1), record("b"))).await;
            assert!(matches!(refused, Err(NotOpened::Refused(LedgerError::Refused(_)))), "{refused:?}");
            assert_eq!(*journal.last().borrow(), 1);
        }
    }

    #[tokio::test]
    async fn a_record_that_is_refused_takes_no_other_with_it() {
        let ((_place, scribe), journal) = (scribe(), journal());
        let _seats = [scribe.seat(), scribe.seat()];
        let deep = (0..200).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
        let deep = Draft::daemon(EventBody::Other { kind: "deep".to_owned(), data: deep });
        let append = |drafts| scribe.append(Record { journal: journal.clone(), drafts });
        let asked = async { tokio::join!(append(vec![draft("a")]), append(vec![deep]), append(vec![draft("b")])) };
        let (one, deep, other) = served(&scribe, asked).await;
        assert!(one.is_ok() && other.is_ok());
        assert!(matches!(deep.as_ref().map_err(|error| &**error), Err(JournalError::TooDeep { .. })), "{deep:?}");
        assert_eq!(*journal.last().borrow(), 2);
    }

    #[tokio::test]
    async fn a_call_is_settled_once_it_is_recorded_whatever_becomes_of_others() {
        let ((_place, scribe), journal) = (scribe(), journal());
        let _seats = [scribe.seat(), scribe.seat()];
        served(&scribe, scribe.open(hold("c1", 1), None)).await.unwrap();
        scribe.end(Box::new(|| panic!("it cannot be worked out")));
        let (told, closed) = oneshot::channel();
        let (recorded, record) = (journal.last(), Record { journal, drafts: vec![draft("a")] });
        scribe.end(Box::new(move || {
            let step = Step::Fail(CallId::new("c1").unwrap(), "no".to_owned());
            let then = move |written: Written, reply: Reply| {
                let _ = told.send((written.is_ok(), *recorded.borrow(), reply.at_once().ok()));
            };
            Some(Closing { record, step, then: Box::new(then) })
        }));
        let (written, records, settled) = served(&scribe, closed).await.unwrap();
        assert_eq!((written, records), (true, 1));
        assert!(matches!(settled, Some(Ok(()))), "{settled:?}");
    }
}
