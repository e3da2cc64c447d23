//! Passes arbitrary bytes to `gateway::probe::chat_to_messages`.
#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| gateway::probe::chat_to_messages(data));
