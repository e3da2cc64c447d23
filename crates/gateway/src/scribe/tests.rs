//! What a scribe does with calls that begin and end.

use protocol::{CallId, Event, EventBody, SessionId};
use serde_json::Value;
use store::{
    CallHold, CallSource, DataDir, Durability, LimitAmount, LimitScope, LimitWindow, MemoryJournal, SqliteLedger,
    StoredRange, SystemClock, UsageLimit,
};
use tokio::sync::watch;

use super::*;

/// A journal that counts how often it is written to.
struct Counted {
    journal: MemoryJournal,
    writes: AtomicUsize,
}

impl Journal for Counted {
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
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

/// A hold of one pico-dollar for a call whose session may use so much in all.
fn hold(call: &str, most: LimitAmount) -> LedgerOperation {
    LedgerOperation::Hold(Box::new(CallHold {
        call: CallId::new(call).unwrap(),
        source: CallSource { system: "viv".into(), run: "s1".into(), attempt: 1 },
        session: SessionId::new("s1").unwrap(),
        account: "a1".into(),
        user: None,
        key: None,
        agent: None,
        model: "m1".to_owned(),
        price_hash: "p1".into(),
        picos: 1,
        limits: vec![UsageLimit { name: "most", scope: LimitScope::Session, window: LimitWindow::Ever, max: most }],
        sent: true,
        fresh: true,
    }))
}

fn draft(kind: &str) -> EventDraft {
    EventDraft::daemon(EventBody::Other { kind: kind.to_owned(), data: Value::Null })
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
    journal.append(EventDraft::daemon(ended)).unwrap();
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
        served(&scribe, scribe.open(hold("c1", LimitAmount::Requests(1)), record("a"))).await.unwrap();
        let refused = served(&scribe, scribe.open(hold("c2", LimitAmount::Requests(1)), record("b"))).await;
        assert!(matches!(refused, Err(NotOpened::Refused(LedgerError::Refused(_)))), "{refused:?}");
        assert_eq!(*journal.last().borrow(), 1);
    }
}

#[tokio::test]
async fn a_record_that_is_refused_takes_no_other_with_it() {
    let ((_place, scribe), journal) = (scribe(), journal());
    let _seats = [scribe.seat(), scribe.seat()];
    let deep = (0..200).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    let deep = EventDraft::daemon(EventBody::Other { kind: "deep".to_owned(), data: deep });
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
    served(&scribe, scribe.open(hold("c1", LimitAmount::Requests(1)), None)).await.unwrap();
    scribe.end(Box::new(|| panic!("it cannot be worked out")));
    let (told, closed) = oneshot::channel();
    let (recorded, record) = (journal.last(), Record { journal, drafts: vec![draft("a")] });
    scribe.end(Box::new(move || {
        let step = LedgerOperation::Fail(CallId::new("c1").unwrap(), "no".to_owned());
        let then = move |written: Written, reply: LedgerReply| {
            let _ = told.send((written.is_ok(), *recorded.borrow(), reply.at_once().ok()));
        };
        Some(Closing { record, step, then: Box::new(then) })
    }));
    let (written, records, settled) = served(&scribe, closed).await.unwrap();
    assert_eq!((written, records), (true, 1));
    assert!(matches!(settled, Some(Ok(()))), "{settled:?}");
}

#[tokio::test]
async fn what_a_call_did_not_need_is_there_for_one_that_begins_in_the_same_moment() {
    let (_place, scribe) = scribe();
    let hold = |call| hold(call, LimitAmount::Picos(1));
    served(&scribe, scribe.open(hold("c1"), None)).await.unwrap();
    let step = LedgerOperation::Fail(CallId::new("c1").unwrap(), "no".to_owned());
    let settling = vec![Settling { step, written: Ok(()), then: Box::new(|_, _| {}) }];
    let (waiting, opened) = oneshot::channel();
    Desk { opening: vec![(hold("c2"), None, waiting)], settling, ..Desk::default() }.write(&*scribe.ledger);
    assert!(matches!(opened.await, Ok(Opened::Done(Ok(())))));
    let refused = served(&scribe, scribe.open(hold("c3"), None)).await;
    assert!(matches!(refused, Err(NotOpened::Refused(LedgerError::Refused(_)))), "{refused:?}");
}
