//! Sends arbitrary bodies to every call of the session API.
#![no_main]

#[path = "../rules/request_bodies.rs"]
mod rule;

thread_local! {
    static API: rule::Api = {
        let directory = tempfile::tempdir().unwrap();
        // The directory must exist as long as the fuzzer runs.
        rule::Api::new(&directory.keep())
    };
}

libfuzzer_sys::fuzz_target!(|data: &[u8]| API.with(|api| api.check(data)));
