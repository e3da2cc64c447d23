//! Tests of the batch writer with a real ledger and journals in memory.

use protocol::{CallId, Event, EventBody, SessionId};
use serde_json::Value;
use store::{
    CallHold, CallSource, DataDir, Durability, LimitAmount, LimitScope, LimitWindow, MemoryJournal, SqliteLedger,
    StoredRange, SystemClock, UnknownCall, UsageGrouping, UsageLimit, UsageRow,
};
use tokio::sync::watch;

use super::*;

/// A journal that counts its writes.
struct CountingJournal {
    journal: MemoryJournal,
    writes: AtomicUsize,
}

impl Journal for CountingJournal {
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

/// A ledger that counts its writes.
struct CountingLedger {
    ledger: SqliteLedger,
    writes: Arc<AtomicUsize>,
}

impl Ledger for CountingLedger {
    fn submit(&self, operations: Vec<LedgerOperation>) -> Vec<LedgerReply> {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.ledger.submit(operations)
    }

    fn unknowns(&self) -> Result<Vec<UnknownCall>, LedgerError> {
        self.ledger.unknowns()
    }

    fn usage(&self, by: UsageGrouping, since_ms: i64) -> Result<Vec<UsageRow>, LedgerError> {
        self.ledger.usage(by, since_ms)
    }
}

/// A writer with its ledger and one journal.
struct Fixture {
    _directory: tempfile::TempDir,
    writer: Arc<BatchWriter>,
    ledger_writes: Arc<AtomicUsize>,
    journal: Arc<CountingJournal>,
}

impl Fixture {
    fn new() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(directory.path()).unwrap();
        let ledger = SqliteLedger::claim(&data, Durability::Normal, Arc::new(SystemClock)).unwrap().ledger;
        let ledger_writes = Arc::new(AtomicUsize::new(0));
        let writer = BatchWriter::new(Arc::new(CountingLedger { ledger, writes: ledger_writes.clone() }));
        let journal = MemoryJournal::new(SessionId::new("s1").unwrap(), Arc::new(SystemClock));
        let journal = Arc::new(CountingJournal { journal, writes: AtomicUsize::new(0) });
        Self { _directory: directory, writer: Arc::new(writer), ledger_writes, journal }
    }

    /// Returns the results of `operations`, all submitted in one tick.
    async fn submit(&self, operations: Vec<WriteOperation>) -> Vec<Result<(), WriteError>> {
        let results = futures_util::future::join_all(operations.into_iter().map(|one| self.writer.submit(one)));
        tokio::select! {
            results = results => results,
            () = self.writer.clone().run() => unreachable!("the writer runs until it is dropped"),
        }
    }

    async fn submit_one(&self, operation: WriteOperation) -> Result<(), WriteError> {
        self.submit(vec![operation]).await.pop().unwrap()
    }

    /// Counts so many calls as in flight.
    fn begin_calls(&self, count: usize) -> Vec<InFlightGuard> {
        (0..count).map(|_| self.writer.begin_call()).collect()
    }

    fn entry(&self, drafts: Vec<EventDraft>) -> JournalEntry {
        JournalEntry { journal: self.journal.clone(), drafts }
    }

    fn record(&self, drafts: Vec<EventDraft>) -> WriteOperation {
        WriteOperation::Record(self.entry(drafts))
    }

    /// Returns the number of journal writes and of journal records.
    fn journal_counts(&self) -> (usize, u64) {
        (self.journal.writes.load(Ordering::Relaxed), *self.journal.last().borrow())
    }

    fn ledger_writes(&self) -> usize {
        self.ledger_writes.load(Ordering::Relaxed)
    }
}

/// A hold of one pico-dollar in a session that may use `most` in all.
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
        tokens: 0,
        limits: vec![UsageLimit { name: "most", scope: LimitScope::Session, window: LimitWindow::Ever, max: most }],
        sent: true,
        fresh: true,
    }))
}

fn fail(call: &str) -> WriteOperation {
    WriteOperation::Settle(LedgerOperation::Fail(CallId::new(call).unwrap(), "no".to_owned()))
}

fn draft(kind: &str) -> EventDraft {
    EventDraft::daemon(EventBody::Other { kind: kind.to_owned(), data: Value::Null })
}

fn is_exceeded_limit(result: &Result<(), WriteError>) -> bool {
    matches!(result, Err(WriteError::Ledger(LedgerError::Refused(_))))
}

#[tokio::test]
async fn records_of_one_tick_are_written_together() {
    let fixture = Fixture::new();
    let _calls = fixture.begin_calls(5);
    let records = (0..5).map(|_| fixture.record(vec![draft("a"), draft("b")])).collect();
    assert!(fixture.submit(records).await.iter().all(Result::is_ok));
    assert_eq!(fixture.journal_counts(), (1, 10));
}

#[tokio::test]
async fn holds_and_settlements_of_one_tick_are_one_ledger_write() {
    let fixture = Fixture::new();
    let _calls = fixture.begin_calls(3);
    let hold = |call| WriteOperation::Hold { hold: hold(call, LimitAmount::Requests(9)), entry: None };
    fixture.submit_one(hold("c1")).await.unwrap();
    assert!(fixture.submit(vec![hold("c2"), fail("c1"), hold("c3")]).await.iter().all(Result::is_ok));
    assert_eq!(fixture.ledger_writes(), 2);
}

#[tokio::test]
async fn the_only_call_is_written_without_a_batch() {
    let fixture = Fixture::new();
    let _call = fixture.begin_calls(1);
    let entry = Some(fixture.entry(vec![draft("a"), draft("b")]));
    // The writer's task does not run here.
    let hold = WriteOperation::Hold { hold: hold("c1", LimitAmount::Requests(1)), entry };
    fixture.writer.submit(hold).await.unwrap();
    fixture.writer.submit(fail("c1")).await.unwrap();
    assert_eq!((fixture.journal_counts(), fixture.ledger_writes()), ((1, 2), 2));
}

#[tokio::test]
async fn every_submitter_learns_that_the_session_has_ended() {
    let fixture = Fixture::new();
    let ended: EventBody =
        serde_json::from_str(r#"{"type":"session.ended","data":{"reason":"terminated","terminated_by":"daemon"}}"#)
            .unwrap();
    fixture.journal.append(EventDraft::daemon(ended)).unwrap();
    let _calls = fixture.begin_calls(2);
    let records = vec![fixture.record(vec![draft("a")]), fixture.record(vec![draft("b")])];
    for result in fixture.submit(records).await {
        let Err(WriteError::Journal(error)) = result else { panic!("the record was written") };
        assert!(matches!(*error, JournalError::Ended), "{error:?}");
    }
}

#[tokio::test]
async fn call_that_is_not_held_is_not_recorded() {
    for calls in 1..=2 {
        let fixture = Fixture::new();
        let _calls = fixture.begin_calls(calls);
        let begin = |call, kind| WriteOperation::Hold {
            hold: hold(call, LimitAmount::Requests(1)),
            entry: Some(fixture.entry(vec![draft(kind)])),
        };
        fixture.submit_one(begin("c1", "a")).await.unwrap();
        let refused = fixture.submit_one(begin("c2", "b")).await;
        assert!(is_exceeded_limit(&refused), "{refused:?}");
        assert_eq!(fixture.journal_counts().1, 1);
    }
}

#[tokio::test]
async fn rejected_record_does_not_affect_other_records() {
    let fixture = Fixture::new();
    let _calls = fixture.begin_calls(2);
    let deep = (0..200).fold(Value::Null, |inner, _| Value::Array(vec![inner]));
    let deep = EventDraft::daemon(EventBody::Other { kind: "deep".to_owned(), data: deep });
    let drafts = [draft("a"), deep, draft("b")];
    let results = fixture.submit(drafts.into_iter().map(|draft| fixture.record(vec![draft])).collect()).await;
    assert!(results[0].is_ok() && results[2].is_ok());
    let Err(WriteError::Journal(error)) = &results[1] else { panic!("the record was written") };
    assert!(matches!(**error, JournalError::TooDeep { .. }), "{error:?}");
    assert_eq!(fixture.journal_counts().1, 2);
}

#[tokio::test]
async fn settlement_releases_its_amount_for_a_hold_in_the_same_batch() {
    let fixture = Fixture::new();
    let _calls = fixture.begin_calls(2);
    let hold = |call| WriteOperation::Hold { hold: hold(call, LimitAmount::Picos(1)), entry: None };
    fixture.submit_one(hold("c1")).await.unwrap();
    let results = fixture.submit(vec![hold("c2"), fail("c1")]).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let refused = fixture.submit_one(hold("c3")).await;
    assert!(is_exceeded_limit(&refused), "{refused:?}");
}
