//! Retention of request and response bodies: everything, everything but secrets, or nothing.
//!
//! Redacted bytes are never stored. The digest of a body is that of the redacted bytes, or of the original bytes if
//! nothing is stored.

use std::{fmt, io, sync::Arc};

use base::Digest;
use bytes::Bytes;
use protocol::BodyRef;
use regex::bytes::Regex;
use store::BodyKind;

use crate::{body_store::BodyStore, replay::NormalizerError};

/// The replacement for a secret.
const REPLACEMENT: &[u8] = b"[redacted]";

/// Patterns of secrets. No pattern matches a quote, so that JSON stays valid.
const SECRET_PATTERNS: [&str; 9] = [
    r"\bsk-[A-Za-z0-9_-]{16,}",
    r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}\b",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}\b",
    r"\bxox[abeprs]-[A-Za-z0-9-]{10,}",
    r"\bAIza[0-9A-Za-z_-]{30,}",
    r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}",
    r#"(?s)-----BEGIN [A-Z ]*PRIVATE KEY-----[^"]*?-----END [A-Z ]*PRIVATE KEY-----"#,
    r#"(?i)\b(?:password|passwd|secret|api[_-]?key|access[_-]?token)\b *[=:] *[^\s"'\\,;]{6,}"#,
];

/// How much of the request and response bodies is stored.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum BodyRetention {
    /// Every byte.
    #[default]
    Full,
    /// Everything but the secrets that a rule matches.
    Redacted(RedactionRules),
    /// Only length and digest.
    Nothing,
}

impl BodyRetention {
    /// Stores the allowed part of `bytes` in `store` and returns its reference.
    pub(crate) fn store(&self, store: &dyn BodyStore, kind: BodyKind, bytes: Bytes) -> io::Result<BodyRef> {
        match self {
            Self::Full => store.put(kind, bytes),
            Self::Redacted(rules) => store.put(kind, rules.apply(&bytes).into()),
            Self::Nothing => Ok(BodyRef::Stored { sha256: Digest::of(&bytes).to_string(), bytes: bytes.len() as u64 }),
        }
    }
}

/// Patterns that find secrets in a body.
#[derive(Clone)]
pub struct RedactionRules {
    rules: Arc<[Regex]>,
}

impl RedactionRules {
    /// Makes the built-in rules with `more` added. Fails if a pattern is invalid.
    pub fn new(more: &[String]) -> Result<Self, NormalizerError> {
        let rules = SECRET_PATTERNS.into_iter().chain(more.iter().map(String::as_str)).map(|pattern| {
            Regex::new(pattern).map_err(|source| NormalizerError { pattern: pattern.to_owned(), source })
        });
        Ok(Self { rules: rules.collect::<Result<_, _>>()? })
    }

    /// Returns `bytes` with every secret replaced.
    pub fn apply(&self, bytes: &[u8]) -> Vec<u8> {
        let mut redacted = bytes.to_vec();
        for rule in &*self.rules {
            if rule.is_match(&redacted) {
                redacted = rule.replace_all(&redacted, regex::bytes::NoExpand(REPLACEMENT)).into_owned();
            }
        }
        redacted
    }
}

impl fmt::Debug for RedactionRules {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.rules.iter().map(Regex::as_str)).finish()
    }
}

impl PartialEq for RedactionRules {
    fn eq(&self, other: &Self) -> bool {
        self.rules.iter().map(Regex::as_str).eq(other.rules.iter().map(Regex::as_str))
    }
}

impl Eq for RedactionRules {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body_store::MemoryBodyStore;

    #[test]
    fn secrets_are_replaced_and_the_rest_is_unchanged() {
        let rules = RedactionRules::new(&["badge-[0-9]+".to_owned()]).unwrap();
        let redacted = |text: &str| String::from_utf8(rules.apply(text.as_bytes())).unwrap();
        for secret in [
            "sk-ant-api03-0123456789abcdef",
            "AKIAIOSFODNN7EXAMPLE",
            "ghp_0123456789abcdef0123456789abcdef0123",
            "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0xx.c2lnbmF0dXJl",
            "-----BEGIN RSA PRIVATE KEY-----\\nMIIE\\n-----END RSA PRIVATE KEY-----",
            "badge-77",
        ] {
            let body = format!(r#"{{"text":"before {secret}","n":1}}"#);
            assert_eq!(redacted(&body), r#"{"text":"before [redacted]","n":1}"#, "{secret}");
        }
        assert_eq!(redacted(r#"{"t":"export API_KEY=abcdefgh\nok"}"#), r#"{"t":"export [redacted]\nok"}"#);
        let harmless = r#"{"text":"the password is asked for; see task-4711 and sk-"}"#;
        assert_eq!(redacted(harmless), harmless);
    }

    #[test]
    fn body_that_is_not_stored_has_only_a_digest() {
        let bodies = MemoryBodyStore::default();
        let full = BodyRetention::Full.store(&bodies, BodyKind::Request, Bytes::from_static(b"abc")).unwrap();
        assert_eq!(bodies.get(&full).unwrap(), b"abc");
        let nothing = BodyRetention::Nothing.store(&bodies, BodyKind::Request, Bytes::from_static(b"abcd")).unwrap();
        assert!(matches!(nothing, BodyRef::Stored { bytes: 4, .. }), "{nothing:?}");
        assert_eq!(bodies.get(&nothing), None);
        let redacted = BodyRetention::Redacted(RedactionRules::new(&[]).unwrap())
            .store(&bodies, BodyKind::Request, Bytes::from_static(b"AKIAIOSFODNN7EXAMPLE"))
            .unwrap();
        assert_eq!(bodies.get(&redacted).unwrap(), REPLACEMENT);
    }
}
