//! Passes arbitrary bytes to `gateway::probe::gemini_to_others`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::probe::gemini_to_others(data));
