//! Passes arbitrary lines to the dialogue of any agent.
#![no_main]

#[path = "../rules/agent_lines.rs"]
mod rule;

libfuzzer_sys::fuzz_target!(|data: &[u8]| rule::agent_lines(data));
