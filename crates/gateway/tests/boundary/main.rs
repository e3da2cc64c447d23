//! Tests of the gateway from the client's side, over real connections.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that panics has failed, which is its purpose")]

mod billing;
mod compression;
mod dialects;
mod holds;
mod host_budget;
mod invalid_responses;
mod messages_api;
mod replay;
mod request_checks;
mod scripted_model;
#[path = "../support/mod.rs"]
mod support;
mod translation;
mod translation_pairs;
mod upstream_failures;
mod vendor_upstreams;
