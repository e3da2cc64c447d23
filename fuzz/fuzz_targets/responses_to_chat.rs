//! Passes arbitrary bytes to `gateway::probe::responses_to_chat`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::probe::responses_to_chat(data));
