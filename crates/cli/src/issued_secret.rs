//! Gateway keys and access tokens: the parts that `viv keys` and `viv tokens` share.

use std::time::Duration;

use gateway::SessionToken;
use jiff::Timestamp;
use serde_json::json;
use uuid::Uuid;

use crate::failure::Failure;
use crate::output::message;
use crate::table::{print, print_json};

/// A new key or token. Only its digest is stored, so its text is shown once.
pub(crate) struct IssuedSecret {
    pub(crate) id: String,
    pub(crate) token: SessionToken,
    text: String,
}

impl IssuedSecret {
    /// Returns a new secret that starts with `prefix`, by which a leaked one is recognised, and an id with `id_prefix`.
    pub(crate) fn issue(prefix: &str, id_prefix: &str) -> Self {
        let (token, text) = SessionToken::issue_with_prefix(prefix);
        let id = format!("{id_prefix}_{}", &Uuid::new_v4().simple().to_string()[..12]);
        Self { id, token, text }
    }

    /// Returns the text of the secret, for a caller that uses it itself.
    pub(crate) fn reveal(&self) -> &str {
        &self.text
    }

    /// Prints the secret; `noun` is `key` or `token`.
    pub(crate) fn print(&self, noun: &str, json: bool) -> Result<(), Failure> {
        let Self { id, text, .. } = self;
        if json {
            return print_json(&json!({"id": id, noun: text}));
        }
        message!("{id} · save the {noun} now: it is not shown again");
        print(&format!("{text}\n"))
    }
}

/// Converts a lifetime to milliseconds.
pub(crate) fn lifetime_ms(ttl: Option<Duration>) -> Option<i64> {
    ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX))
}

/// Returns the state for listings.
pub(crate) fn state(revoked_ms: Option<i64>, is_good: bool) -> &'static str {
    match revoked_ms {
        Some(_) => "revoked",
        None if is_good => "good",
        None => "expired",
    }
}

/// Formats the time of expiry; empty if there is none.
pub(crate) fn expiry(expires_ms: Option<i64>) -> String {
    let time = expires_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
    time.map_or_else(String::new, |time| time.to_string())
}
