//! Opens arbitrary bytes as the journal of a session.
#![no_main]

#[path = "../rules/journal.rs"]
mod rule;

libfuzzer_sys::fuzz_target!(|data: &[u8]| rule::journal(data));
