//! The token of one session: all that the agent holds in place of a key.
//!
//! Only the SHA-256 of a token is kept. The text leaves this file once, when it is issued.

use std::fmt;

use base::{Digest, encode_hex};
use sha2::{Digest as _, Sha256};
use subtle::ConstantTimeEq;
use uuid::Uuid;

/// What every session token starts with, so that a leaked one can be recognised.
pub const TOKEN_PREFIX: &str = "viv_ses_";

/// Recognises the token of one session, without knowing it.
#[derive(Clone, PartialEq, Eq)]
pub struct SessionToken {
    digest: [u8; 32],
}

impl SessionToken {
    /// Makes a new token from 32 random bytes; the text is for the agent and is not kept.
    pub fn issue() -> (Self, String) {
        Self::issue_with_prefix(TOKEN_PREFIX)
    }

    /// The same for a token that starts with `prefix`.
    pub fn issue_with_prefix(prefix: &str) -> (Self, String) {
        // A version 4 UUID carries 122 random bits, so three of them fill a digest with room to spare.
        let mut seed = Sha256::new();
        for _ in 0..3 {
            seed.update(Uuid::new_v4().as_bytes());
        }
        let text = format!("{prefix}{}", encode_hex(&seed.finalize()));
        (Self::from_text(&text), text)
    }

    /// Recognises `text`, a token issued before.
    pub fn from_text(text: &str) -> Self {
        Self { digest: Digest::of(text.as_bytes()).to_bytes() }
    }

    /// Recognises the token with this SHA-256.
    pub fn from_digest(digest: [u8; 32]) -> Self {
        Self { digest }
    }

    /// Its SHA-256, to be kept.
    pub fn digest(&self) -> [u8; 32] {
        self.digest
    }

    /// Whether `presented` is the token; takes the same time whichever byte differs.
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
    fn a_token_admits_itself_and_nothing_else() {
        let (token, text) = SessionToken::issue();
        assert!(token.matches(&text));
        assert!(!token.matches(&text[..text.len() - 1]));
        assert!(!token.matches(""));
        assert!(!token.matches(&SessionToken::issue().1));
    }

    #[test]
    fn a_token_is_32_bytes_behind_its_prefix_and_never_printed() {
        let (token, text) = SessionToken::issue();
        assert_eq!(text.strip_prefix(TOKEN_PREFIX).unwrap().len(), 64);
        assert!(!format!("{token:?}").contains(&text[8..16]));
    }
}
