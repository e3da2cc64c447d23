//! Passes arbitrary bytes to `gateway::probe::usage`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::probe::usage(data));
