//! Gateway keys: stored by digest, valid until they expire or are revoked.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::sync::Arc;

use store::{DataDir, KeyStore, NewKey};
use support::ManualClock;

fn key(id: &str, digest: u8, ttl_ms: Option<i64>) -> NewKey {
    NewKey {
        id: id.to_owned(),
        digest: [digest; 32],
        account: "acme".to_owned(),
        user: None,
        models: vec!["claude-*".to_owned(), "gpt-5".to_owned()],
        budget_picos: Some(5),
        requests_a_minute: None,
        ttl_ms,
    }
}

/// Returns the ids of the valid keys with the digests 1 and 2.
fn valid_keys(keys: &KeyStore) -> Vec<String> {
    [1, 2].into_iter().filter_map(|digest| keys.find(&[digest; 32]).unwrap()).map(|key| key.id.clone()).collect()
}

#[test]
fn key_is_valid_until_it_expires_or_is_revoked() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ManualClock::at(1_000);
    let keys = KeyStore::open(&DataDir::open(directory.path()).unwrap(), clock.clone()).unwrap();
    keys.create(&key("key_short", 1, Some(60_000))).unwrap();
    keys.create(&key("key_long", 2, None)).unwrap();
    assert_eq!(valid_keys(&keys), ["key_short", "key_long"]);
    clock.set(1_060);
    assert_eq!(valid_keys(&keys), ["key_long"]);
    assert!(keys.revoke("key_long").unwrap() && !keys.revoke("key_none").unwrap());
    assert!(valid_keys(&keys).is_empty());
    let listed = keys.list().unwrap();
    assert_eq!((listed.len(), listed[0].models.len(), listed[0].revoked_ms), (2, 2, Some(1_060_000)));
}

#[test]
fn cached_key_is_rejected_after_another_process_revoked_it() {
    let directory = tempfile::tempdir().unwrap();
    let directory = DataDir::open(directory.path()).unwrap();
    let open = || KeyStore::open(&directory, Arc::new(store::SystemClock)).unwrap();
    let (gateway, console) = (open(), open());
    console.create(&key("key_a", 1, None)).unwrap();
    console.create(&key("key_b", 2, None)).unwrap();
    assert_eq!(valid_keys(&gateway), ["key_a", "key_b"]);
    assert!(console.revoke("key_a").unwrap());
    assert_eq!(valid_keys(&gateway), ["key_b"]);
}

#[test]
fn key_is_stored_once() {
    let directory = tempfile::tempdir().unwrap();
    let directory = DataDir::open(directory.path()).unwrap();
    let keys = KeyStore::open(&directory, Arc::new(store::SystemClock)).unwrap();
    keys.create(&key("key_a", 1, None)).unwrap();
    assert!(keys.create(&key("key_b", 1, None)).is_err());
    assert!(keys.create(&key("key_a", 2, None)).is_err());
    assert_eq!(KeyStore::open(&directory, Arc::new(store::SystemClock)).unwrap().list().unwrap().len(), 1);
}
