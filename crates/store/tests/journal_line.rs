//! Every event survives a round trip through a journal line.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

#[path = "../../protocol/tests/arbitrary/mod.rs"]
mod arbitrary;

use std::sync::Arc;

use proptest::collection::vec;
use proptest::prelude::*;
use protocol::{EventBody, EventDraft};
use store::{FileJournal, Journal, MemoryJournal, SystemClock};
use support::session;

proptest! {
    #![proptest_config(ProptestConfig { cases: 100, ..ProptestConfig::default() })]

    #[test]
    fn any_draft_round_trips_through_the_journal(drafts in vec(arbitrary::draft(), 1..12)) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("s1.jsonl");
        let clock = Arc::new(SystemClock);
        let file = FileJournal::open(&path, session(), clock.clone()).unwrap().journal;
        let count = check(&file, &drafts)?;
        check(&MemoryJournal::new(session(), clock.clone()), &drafts)?;
        drop(file);
        let again = FileJournal::open(&path, session(), clock).unwrap();
        prop_assert_eq!(again.torn_bytes, 0);
        prop_assert_eq!(again.journal.after(0, 100).unwrap().len(), count);
        prop_assert_eq!(store::verify_journal(&path).unwrap().records, count as u64);
    }
}

/// Appends until the session ends and reads everything back. Returns the number of records.
fn check(journal: &dyn Journal, drafts: &[EventDraft]) -> Result<usize, TestCaseError> {
    let end = drafts.iter().position(|draft| matches!(draft.body, EventBody::SessionEnded(_)));
    let kept = end.map_or(drafts, |end| &drafts[..=end]);
    for draft in kept {
        prop_assert_eq!(&journal.append(draft.clone()).unwrap().draft, draft);
    }
    let read: Vec<EventDraft> = journal.after(0, 100).unwrap().into_iter().map(|event| event.draft).collect();
    prop_assert_eq!(read.as_slice(), kept);
    Ok(kept.len())
}
