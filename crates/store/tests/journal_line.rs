//! Every event survives its line in the journal, whatever it says.

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
    fn any_draft_survives_the_journal(drafts in vec(arbitrary::draft(), 1..12)) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("s1.jsonl");
        let clock = Arc::new(SystemClock);
        let file = FileJournal::open(&path, session(), clock.clone()).unwrap().journal;
        let told = check(&file, &drafts)?;
        check(&MemoryJournal::new(session(), clock.clone()), &drafts)?;
        drop(file);
        let again = FileJournal::open(&path, session(), clock).unwrap();
        prop_assert_eq!(again.torn_bytes, 0);
        prop_assert_eq!(again.journal.after(0, 100).unwrap().len(), told);
        prop_assert_eq!(store::verify_journal(&path).unwrap().records, told as u64);
    }
}

/// Appends until the session ends and reads everything back. Returns how many were kept.
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
