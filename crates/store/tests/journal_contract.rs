//! The contract of the journal port, checked for every implementation.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use jiff::Timestamp;
use protocol::{Event, EventBody, EventDraft};
use serde_json::{Value, json};
use store::{FileJournal, Journal, JournalError, JournalTail, MemoryJournal};
use support::{ManualClock, delta, ended, session};

fn seconds(event: &Event) -> i64 {
    event.time.parse::<Timestamp>().unwrap().as_second()
}

#[track_caller]
fn check_contract(journal: Arc<dyn Journal>, clock: &ManualClock) {
    check_numbers_and_pages(&*journal);
    check_time_never_goes_back(&*journal, clock);
    check_refused_records_leave_no_trace(&*journal);
    check_all_or_none(&*journal);
    check_many_writers(&*journal);
    check_nothing_follows_the_end(&journal);
}

fn check_numbers_and_pages(journal: &dyn Journal) {
    let last = journal.last();
    assert_eq!(*last.borrow(), 0);
    assert!(journal.after(0, 10).unwrap().is_empty());
    journal.sync().unwrap();

    let events: Vec<_> = (1..=200).map(|n| journal.append(delta(format!("{n}\n\"ü\""))).unwrap()).collect();
    assert_eq!(*last.borrow(), 200);
    assert_eq!(events.iter().map(|event| event.sequence).collect::<Vec<_>>(), (1..=200).collect::<Vec<_>>());
    assert_eq!((events[6].event_id.as_str(), &events[6].session_id), ("evt_7", &session()));

    assert_eq!(journal.after(0, usize::MAX).unwrap(), events);
    for (after, limit) in [(0, 1), (0, 64), (63, 2), (64, 1), (65, 200), (199, 5), (123, 10)] {
        let expected: Vec<_> = events.iter().filter(|event| event.sequence > after).take(limit).cloned().collect();
        assert_eq!(journal.after(after, limit).unwrap(), expected, "after {after}, at most {limit}");
    }
    assert!(journal.after(5, 0).unwrap().is_empty());
    assert!(journal.after(200, 10).unwrap().is_empty());
    assert!(journal.after(u64::MAX, 10).unwrap().is_empty());
    journal.sync().unwrap();
}

fn check_time_never_goes_back(journal: &dyn Journal, clock: &ManualClock) {
    clock.set(2_000);
    assert_eq!(seconds(&journal.append(delta("later")).unwrap()), 2_000);
    clock.set(500);
    assert_eq!(seconds(&journal.append(delta("the clock was set back")).unwrap()), 2_000);
    clock.set(2_001);
    assert_eq!(seconds(&journal.append(delta("and forward")).unwrap()), 2_001);
}

fn check_refused_records_leave_no_trace(journal: &dyn Journal) {
    let before = *journal.last().borrow();
    let deep = |levels: usize| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    let refused = journal.append(delta("x").with_raw(deep(200))).unwrap_err();
    assert!(matches!(refused, JournalError::TooDeep { .. }), "{refused:?}");
    let kept = journal.append(delta("[{".repeat(500)).with_raw(deep(100))).unwrap();
    assert_eq!(kept.sequence, before + 1);
    assert_eq!(journal.after(before, 2).unwrap(), [kept]);
}

fn check_all_or_none(journal: &dyn Journal) {
    let before = *journal.last().borrow();
    let deep = (0..200).fold(json!(1), |inner, _| json!([inner]));
    let refused = journal.append_all(vec![delta("1"), delta("2").with_raw(deep), delta("3")]);
    assert!(matches!(refused, Err(JournalError::TooDeep { .. })), "{refused:?}");
    assert!(journal.append_all(Vec::new()).unwrap().is_empty());
    assert_eq!(*journal.last().borrow(), before);
    let together = journal.append_all(vec![delta("1"), delta("2"), delta("3")]).unwrap();
    let sequences: Vec<_> = together.iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, [before + 1, before + 2, before + 3]);
    assert_eq!(journal.after(before, 10).unwrap(), together);
    assert_eq!(journal.after(before + 1, 1).unwrap(), together[1..2]);
}

fn check_many_writers(journal: &dyn Journal) {
    let before = *journal.last().borrow();
    std::thread::scope(|threads| {
        for writer in 0..8 {
            threads.spawn(move || {
                for n in 0..25 {
                    let event = journal.append(delta(format!("{writer}/{n}"))).unwrap();
                    assert_eq!(journal.after(event.sequence - 1, 1).unwrap(), [event]);
                    journal.sync().unwrap();
                }
            });
        }
    });
    let sequences: Vec<_> = journal.after(before, 1_000).unwrap().iter().map(|event| event.sequence).collect();
    assert_eq!(sequences, (before + 1..=before + 200).collect::<Vec<_>>());
}

fn check_nothing_follows_the_end(journal: &Arc<dyn Journal>) {
    let last = journal.append(ended()).unwrap();
    assert!(matches!(journal.append(delta("too late")), Err(JournalError::Ended)));
    assert!(matches!(journal.append(ended()), Err(JournalError::Ended)));
    assert_eq!(*journal.last().borrow(), last.sequence);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let mut tail = JournalTail::new(Arc::clone(journal), last.sequence - 1);
        assert_eq!(tail.next(10).await.unwrap(), std::slice::from_ref(&last));
        assert!(tail.next(10).await.unwrap().is_empty());
        assert!(JournalTail::new(Arc::clone(journal), last.sequence).next(10).await.unwrap().is_empty());
        assert!(JournalTail::new(Arc::clone(journal), last.sequence + 9).next(10).await.unwrap().is_empty());
    });
}

#[test]
fn memory_journal_keeps_the_contract() {
    let clock = ManualClock::at(1_000);
    check_contract(Arc::new(MemoryJournal::new(session(), clock.clone())), &clock);
}

#[test]
fn file_journal_keeps_the_contract() {
    let (clock, directory) = (ManualClock::at(1_000), tempfile::tempdir().unwrap());
    let path = directory.path().join("trajectory/s1.jsonl");
    let opened = FileJournal::open(&path, session(), clock.clone()).unwrap();
    check_contract(Arc::new(opened.journal), &clock);
    assert!(store::verify_journal(&path).unwrap().ended);
}

#[test]
fn line_format_matches_the_snapshot() {
    let (clock, directory) = (ManualClock::at(1_794_823_200), tempfile::tempdir().unwrap());
    let path = directory.path().join("s1.jsonl");
    let journal = FileJournal::open(&path, session(), clock).unwrap().journal;
    let registered = EventBody::Other { kind: "planet.moved".into(), data: json!({"far": 1.5}) };
    journal.append(EventDraft::daemon(registered)).unwrap();
    let turn = Some("trn_1".parse().unwrap());
    let mut full = delta("hi").synthetic().in_turn(turn).with_raw(json!("hi?"));
    full.native_session_id = Some("n-1".into());
    journal.append(full).unwrap();
    insta::assert_snapshot!(std::fs::read_to_string(&path).unwrap());
}

#[test]
fn file_returns_the_events_that_clients_got() {
    let (clock, directory) = (ManualClock::at(1_000), tempfile::tempdir().unwrap());
    let path = directory.path().join("s1.jsonl");
    let returned: Vec<Value> = {
        let journal = FileJournal::open(&path, session(), clock.clone()).unwrap().journal;
        (0..3).map(|n| serde_json::to_value(journal.append(delta(format!("{n}"))).unwrap()).unwrap()).collect()
    };
    let again = FileJournal::open(&path, session(), clock).unwrap().journal;
    let read = again.after(0, 10).unwrap();
    assert_eq!(read.iter().map(|event| serde_json::to_value(event).unwrap()).collect::<Vec<_>>(), returned);
}
