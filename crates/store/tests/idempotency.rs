//! Idempotency keys: a request is stored before it is executed, and repeated requests get the same response.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use store::{DataDir, IdempotencyStore, RecordedResponse, RequestLookup};
use support::ManualClock;

fn open(directory: &tempfile::TempDir, clock: &Arc<ManualClock>) -> IdempotencyStore {
    IdempotencyStore::open(&DataDir::open(directory.path().join("data")).unwrap(), clock.clone()).unwrap()
}

#[test]
fn request_is_identified_by_caller_key_and_digest() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(1_000_000));
    let requests = open(&directory, &clock);
    assert_eq!(requests.begin("me", "k", &[1; 32]).unwrap(), RequestLookup::New);
    assert!(matches!(requests.begin("me", "k", &[1; 32]).unwrap(), RequestLookup::Unanswered(_)));
    assert_eq!(requests.begin("me", "k", &[2; 32]).unwrap(), RequestLookup::KeyReused);
    assert_eq!(requests.begin("you", "k", &[2; 32]).unwrap(), RequestLookup::New);
    let response = RecordedResponse { status: 200, headers: vec![("a".into(), "b".into())], body: b"{}".to_vec() };
    requests.answer("me", "k", &response).unwrap();
    drop(requests);
    let requests = open(&directory, &clock);
    assert_eq!(requests.begin("me", "k", &[1; 32]).unwrap(), RequestLookup::Answered(response));
    assert!(matches!(requests.begin("you", "k", &[2; 32]).unwrap(), RequestLookup::Unanswered(_)));
}

#[test]
fn key_expires_after_a_day() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), ManualClock::at(1_000_000));
    let requests = open(&directory, &clock);
    requests.begin("me", "k", &[1; 32]).unwrap();
    clock.set(1_000_000 + 24 * 3600 + 1);
    assert_eq!(requests.begin("me", "k", &[2; 32]).unwrap(), RequestLookup::New);
}
