//! Passes arbitrary bytes to `gateway::probe::request`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::probe::request(data));
