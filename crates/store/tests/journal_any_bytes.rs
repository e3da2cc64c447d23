//! Any bytes at all where a journal should be: the corpus of the fuzz target `journal`, and what is like it.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

#[path = "../../../fuzz/rules/journal.rs"]
mod journal;
#[path = "../../../tests/mutation.rs"]
mod mutation;

#[test]
fn whatever_stands_where_a_journal_should_be_is_read_or_told() {
    mutation::check("journal", journal::journal);
}
