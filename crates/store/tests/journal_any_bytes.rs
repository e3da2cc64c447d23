//! Arbitrary bytes in directory of a journal: the corpus of the fuzz target `journal` and mutations of it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../fuzz/rules/journal.rs"]
mod journal;
#[test]
fn arbitrary_bytes_are_read_or_rejected() {
    testkit::try_mutations("journal", journal::journal);
}
