//! Named requests: noted before they are done, answered the same as long as the name is remembered.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use store::{DataDir, IdempotencyStore, RecordedResponse, RequestLookup};
use support::HandClock;

fn open(directory: &tempfile::TempDir, clock: &Arc<HandClock>) -> IdempotencyStore {
    IdempotencyStore::open(&DataDir::open(directory.path().join("data")).unwrap(), clock.clone()).unwrap()
}

#[test]
fn a_request_is_known_by_its_caller_its_name_and_what_it_is() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), HandClock::at(1_000_000));
    let requests = open(&directory, &clock);
    assert_eq!(requests.begin("me", "k", &[1; 32]).unwrap(), RequestLookup::New);
    assert!(matches!(requests.begin("me", "k", &[1; 32]).unwrap(), RequestLookup::Unanswered(_)));
    assert_eq!(requests.begin("me", "k", &[2; 32]).unwrap(), RequestLookup::KeyReused);
    assert_eq!(requests.begin("you", "k", &[2; 32]).unwrap(), RequestLookup::New);
    let answered = RecordedResponse { status: 200, headers: vec![("a".into(), "b".into())], body: b"{}".to_vec() };
    requests.answer("me", "k", &answered).unwrap();
    drop(requests);
    let requests = open(&directory, &clock);
    assert_eq!(requests.begin("me", "k", &[1; 32]).unwrap(), RequestLookup::Answered(answered));
    assert!(matches!(requests.begin("you", "k", &[2; 32]).unwrap(), RequestLookup::Unanswered(_)));
}

#[test]
fn a_name_is_forgotten_after_a_day() {
    let (directory, clock) = (tempfile::tempdir().unwrap(), HandClock::at(1_000_000));
    let requests = open(&directory, &clock);
    requests.begin("me", "k", &[1; 32]).unwrap();
    clock.set(1_000_000 + 24 * 3600 + 1);
    assert_eq!(requests.begin("me", "k", &[2; 32]).unwrap(), RequestLookup::New);
}
