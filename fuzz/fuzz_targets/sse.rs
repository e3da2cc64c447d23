//! Passes arbitrary bytes to `gateway::probe::sse`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::probe::sse(data));
