//! A reader that reconnects gets the same events as one that stays connected.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;
use std::thread;

use proptest::prelude::*;
use protocol::Event;
use store::{FileJournal, Journal, JournalTail, MemoryJournal, SystemClock};
use support::{delta, ended, session};

/// Reads to the end of the session, `limit` events at a time.
async fn read_steadily(journal: Arc<dyn Journal>, after: u64, limit: usize) -> Vec<Event> {
    let mut tail = JournalTail::new(journal, after);
    let mut events = Vec::new();
    loop {
        let page = tail.next(limit).await.unwrap();
        if page.is_empty() {
            return events;
        }
        assert!(page.len() <= limit);
        events.extend(page);
    }
}

/// Reads to the end, and reconnects after each number of pages in `pages`.
async fn read_with_breaks(journal: Arc<dyn Journal>, after: u64, pages: &[usize], limit: usize) -> Vec<Event> {
    let (mut events, mut seen) = (Vec::new(), after);
    for count in pages.iter().chain([&usize::MAX]) {
        let mut tail = JournalTail::new(Arc::clone(&journal), seen);
        for _ in 0..*count {
            let page = tail.next(limit).await.unwrap();
            let Some(last) = page.last() else { break };
            seen = last.sequence;
            events.extend(page);
        }
    }
    events
}

#[track_caller]
fn check(journal: Arc<dyn Journal>, count: u64, at: u64, pages: &[usize], limit: usize) {
    let writer = Arc::clone(&journal);
    let writing = thread::spawn(move || {
        for n in 1..count {
            writer.append(delta(format!("{n}"))).unwrap();
        }
        writer.append(ended()).unwrap();
    });
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let (steady, broken) = runtime.block_on(async {
        let steady = tokio::spawn(read_steadily(Arc::clone(&journal), 0, 7));
        let broken = read_with_breaks(Arc::clone(&journal), at, pages, limit).await;
        (steady.await.unwrap(), broken)
    });
    writing.join().unwrap();
    assert_eq!(steady.len() as u64, count);
    assert_eq!(broken, steady.get(usize::try_from(at).unwrap()..).unwrap_or_default());
    assert_eq!(journal.after(0, usize::MAX).unwrap(), steady);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn reconnecting_reader_gets_the_same_events(
        count in 1..200_u64,
        at in 0..220_u64,
        pages in prop::collection::vec(0..5_usize, 0..6),
        limit in 1..40_usize,
    ) {
        let directory = tempfile::tempdir().unwrap();
        let opened = FileJournal::open(directory.path().join("s1.jsonl"), session(), Arc::new(SystemClock)).unwrap();
        check(Arc::new(opened.journal), count, at, &pages, limit);
        check(Arc::new(MemoryJournal::new(session(), Arc::new(SystemClock))), count, at, &pages, limit);
    }
}
