//! Access tokens: stored by digest, found until they expire or are revoked.

use std::sync::Arc;

use store::{DataDir, NewToken, SystemClock, TokenStore};

fn token(id: &str, digest: u8, ttl_ms: Option<i64>) -> NewToken {
    let scopes = vec!["read".to_owned(), "answer".to_owned()];
    NewToken { id: id.to_owned(), digest: [digest; 32], name: Some("a phone".to_owned()), scopes, ttl_ms }
}

#[test]
fn token_is_found_until_it_is_revoked_or_expires() {
    let folder = tempfile::tempdir().unwrap();
    let directory = DataDir::open(folder.path().join("data")).unwrap();
    let tokens = TokenStore::open(&directory, Arc::new(SystemClock)).unwrap();
    tokens.create(&token("tok_1", 1, None)).unwrap();
    tokens.create(&token("tok_2", 2, Some(-1))).unwrap();
    assert!(tokens.create(&token("tok_3", 1, None)).is_err(), "two tokens have the same digest");

    let found = tokens.find(&[1; 32]).unwrap().unwrap();
    assert_eq!((found.id.as_str(), found.scopes.as_slice()), ("tok_1", &["read".to_owned(), "answer".to_owned()][..]));
    assert_eq!(tokens.find(&[2; 32]).unwrap(), None, "an expired token was found");
    assert_eq!(tokens.find(&[3; 32]).unwrap(), None);

    // Another process revokes the token, without a notification to this one.
    let other = TokenStore::open(&directory, Arc::new(SystemClock)).unwrap();
    assert!(other.revoke("tok_1").unwrap());
    assert!(!other.revoke("tok_9").unwrap());
    assert_eq!(tokens.find(&[1; 32]).unwrap(), None);
    assert_eq!(tokens.list().unwrap().iter().filter(|token| token.revoked_ms.is_some()).count(), 1);
}
