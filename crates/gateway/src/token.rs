//! The session token, which the agent uses in place of a vendor key.
//!
//! Only the SHA-256 of a token is kept. Its text is returned once, when the token is issued.

use std::fmt;

use base::{Digest, encode_hex};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// The prefix of every session token, by which scanners recognise a leaked one.
pub const TOKEN_PREFIX: &str = "viv_ses_";

/// The digest of a session's token, which recognises the token.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionToken {
    digest: [u8; 32],
}

impl SessionToken {
    /// Makes a new random token and returns it with its text. The text is for the agent and is not kept.
    pub fn issue() -> (Self, String) {
        Self::issue_with_prefix(TOKEN_PREFIX)
    }

    /// Makes a new random token whose text starts with `prefix`.
    pub fn issue_with_prefix(prefix: &str) -> (Self, String) {
        // A version 4 UUID has 122 random bits, so three of them are enough for 256 bits.
        let mut seed = Sha256::new();
        for _ in 0..3 {
            seed.update(Uuid::new_v4().as_bytes());
        }
        let text = format!("{prefix}{}", encode_hex(&seed.finalize()));
        (Self::from_text(&text), text)
    }

    /// Returns the token with this text.
    pub fn from_text(text: &str) -> Self {
        Self { digest: Digest::of(text.as_bytes()).to_bytes() }
    }

    /// Returns the token whose text has this SHA-256.
    pub fn from_digest(digest: [u8; 32]) -> Self {
        Self { digest }
    }

    /// Returns the SHA-256 of the text.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Returns whether `presented` is the text of the token. The comparison takes constant time.
    pub fn matches(&self, presented: &str) -> bool {
        self.digest.ct_eq(&Self::from_text(presented).digest).into()
    }
}

impl fmt::Debug for SessionToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionToken(…)")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn token_matches_only_its_own_text() {
        let (token, text) = SessionToken::issue();
        assert!(token.matches(&text));
        assert!(!token.matches(&text[..text.len() - 1]));
        assert!(!token.matches(""));
        assert!(!token.matches(&SessionToken::issue().1));
    }

    #[test]
    fn token_has_32_random_bytes_and_is_never_printed() {
        let (token, text) = SessionToken::issue();
        assert_eq!(text.strip_prefix(TOKEN_PREFIX).unwrap().len(), 64);
        assert!(!format!("{token:?}").contains(&text[8..16]));
    }
}
