//! Redaction of a secret in a response.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::{memchr_iter, memmem};

use crate::{Secret, base64, escaped::EscapedSearch};

/// Replaces a secret in a stream of bytes by as many `*` as the secret has bytes. Escapes of JSON and of URLs, and
/// Base64, hide nothing: each byte of an encoded secret is replaced by `*`.
///
/// A redactor is for one response. Clone an unused redactor for the next response.
#[derive(Debug, Clone)]
pub struct Redactor {
    /// The search for the secret itself, then those for its texts in Base64. A stream passes one after the other.
    searches: Vec<PlainSearch>,
    escaped: EscapedSearch,
}

impl Redactor {
    /// Returns a redactor of `secret`; `None` if the secret is empty.
    pub fn new(secret: &Secret) -> Option<Self> {
        let secret = secret.expose().as_bytes();
        let searches = [secret.to_vec()].into_iter().chain(base64::texts(secret)).map(|text| PlainSearch::new(&text));
        let escaped = EscapedSearch::new(secret);
        (!secret.is_empty()).then(|| Self { searches: searches.collect(), escaped })
    }

    /// Returns the next bytes without the secret. Holds back only bytes that may be the start of the secret.
    pub fn redact(&mut self, bytes: Bytes) -> Bytes {
        let bytes = self.searches.iter_mut().fold(bytes, |bytes, search| search.push(bytes));
        if self.escaped.can_skip(&bytes) {
            return bytes;
        }
        let mut out = Vec::with_capacity(bytes.len());
        self.escaped.push(&bytes, &mut out);
        out.into()
    }

    /// Returns whether `text` contains the secret.
    pub fn finds_secret(&self, text: &[u8]) -> bool {
        if self.searches.iter().any(|search| search.finder.find(text).is_some()) {
            return true;
        }
        let (mut search, mut out) = (self.escaped.clone(), Vec::new());
        search.push(text, &mut out);
        search.finish(&mut out);
        out != text
    }

    /// Returns the bytes that were held back, at the end of the stream.
    pub fn finish(&mut self) -> Bytes {
        let rest = self.searches.iter_mut().fold(Bytes::new(), |rest, search| {
            let rest = search.push(rest);
            [rest, search.finish()].concat().into()
        });
        let mut out = Vec::new();
        self.escaped.push(&rest, &mut out);
        self.escaped.finish(&mut out);
        out.into()
    }
}

/// Replaces one text in a stream.
#[derive(Debug, Clone)]
struct PlainSearch {
    finder: Arc<memmem::Finder<'static>>,
    /// The last bytes of the stream if they may be the start of the text.
    held: BytesMut,
}

impl PlainSearch {
    fn new(text: &[u8]) -> Self {
        Self { finder: Arc::new(memmem::Finder::new(text).into_owned()), held: BytesMut::new() }
    }

    fn push(&mut self, bytes: Bytes) -> Bytes {
        let held = self.partial_match(&bytes);
        if self.held.is_empty() && held == 0 && self.finder.find(&bytes).is_none() {
            return bytes;
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(&bytes);
        self.overwrite(&mut text);
        let held = self.partial_match(&text);
        self.held = text.split_off(text.len() - held);
        text.freeze()
    }

    /// Returns the bytes that were held back, at the end of the stream.
    fn finish(&mut self) -> Bytes {
        self.held.split().freeze()
    }

    fn overwrite(&self, text: &mut [u8]) {
        while let Some(at) = self.finder.find(text) {
            text[at..at + self.finder.needle().len()].fill(b'*');
        }
    }

    /// Returns how many of the last bytes are the start of the text.
    fn partial_match(&self, text: &[u8]) -> usize {
        let needle = self.finder.needle();
        let longest = (needle.len() - 1).min(text.len());
        let end = &text[text.len() - longest..];
        let mut starts = memchr_iter(needle[0], end);
        starts.find(|start| needle.starts_with(&end[*start..])).map_or(0, |start| longest - start)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn redact(key: &str, pieces: &[&[u8]]) -> Vec<u8> {
        let mut redactor = Redactor::new(&Secret::new(key)).unwrap();
        let mut out: Vec<u8> = pieces.iter().flat_map(|piece| redactor.redact(Bytes::copy_from_slice(piece))).collect();
        out.extend_from_slice(&redactor.finish());
        out
    }

    #[test]
    fn secret_is_redacted_across_any_split() {
        let text = b"bad key sk-abc, sk-abc and sk-ab";
        for at in 0..text.len() {
            assert_eq!(redact("sk-abc", &[&text[..at], &text[at..]]), b"bad key ******, ****** and sk-ab");
        }
    }

    #[test]
    fn bytes_that_cannot_start_the_secret_are_not_held_back() {
        let mut redactor = Redactor::new(&Secret::new("sk-abc")).unwrap();
        assert_eq!(redactor.redact(Bytes::from("data: {\"a\":1}\n\n")), "data: {\"a\":1}\n\n");
    }

    #[test]
    fn escaped_secret_is_redacted() {
        for text in [
            r"sk-\u0061bc",
            r"\u0073\u006b\u002d\u0061\u0062\u0063",
            r"\\u0073k-abc",
            r"\\\u0073k-ab\u0063",
            "%73k%2Dabc",
            r"%73\u006B-%61bc",
        ] {
            for at in 0..text.len() {
                let out = redact("sk-abc", &[&text.as_bytes()[..at], &text.as_bytes()[at..]]);
                assert_eq!(out, vec![b'*'; text.len()], "{text} at {at}");
            }
        }
        let other = r#"{"text":"sk-\u0061b\n\u0063 100% \\ \"quoted\" sk-ab\\"}"#;
        assert_eq!(redact("sk-abc", &[other.as_bytes()]), other.as_bytes());
        assert_eq!(redact("a/b\"c", &[br#"a\/b\"c"#]), b"*******");
        let redactor = Redactor::new(&Secret::new("sk-abc")).unwrap();
        assert!(redactor.finds_secret(br"x sk-ab\u0063") && !redactor.finds_secret(br"x sk-ab\u0064"));
    }

    #[test]
    fn secret_in_base64_is_redacted_across_any_split() {
        // `sk-canary?>` after zero, one and two bytes, and before `!`, as `base64` writes it.
        for (text, expected) in [
            ("key c2stY2FuYXJ5Pz4h", "key **************4h"),
            ("eHNrLWNhbmFyeT8+IQ==", "eH**************IQ=="),
            ("eHNrLWNhbmFyeT8-IQ", "eH**************IQ"),
            ("eHhzay1jYW5hcnk/PiE=", "eHh**************iE="),
            ("eHhzay1jYW5hcnk_PiE", "eHh**************iE"),
            (r#"{"k":"eHhzay1jYW5hcnk\/PiE="}"#, r#"{"k":"eHh***************iE="}"#),
            ("?k=eHNrLWNhbmFyeT8%2BIQ%3D", "?k=eH****************IQ%3D"),
            ("?k=eHNrLWNhbmFyeT8%2bIQ", "?k=eH****************IQ"),
            ("c2stY2FuYXJ5", "c2stY2FuYXJ5"),
        ] {
            for at in 0..text.len() {
                let out = redact("sk-canary?>", &[&text.as_bytes()[..at], &text.as_bytes()[at..]]);
                assert_eq!(String::from_utf8(out).unwrap(), expected, "{text} at {at}");
            }
            let redactor = Redactor::new(&Secret::new("sk-canary?>")).unwrap();
            assert_eq!(redactor.finds_secret(text.as_bytes()), text != expected, "{text}");
        }
    }

    /// Writes each letter plain or escaped, as `how` says.
    fn escape(text: &str, how: &[u8]) -> String {
        let letters = text.bytes().zip(how.iter().cycle());
        letters
            .map(|(byte, how)| match how % 5 {
                0 => format!("\\u{byte:04x}"),
                1 => format!("\\u{byte:04X}"),
                2 => format!("%{byte:02x}"),
                3 => format!("\\\\u{byte:04x}"),
                _ => char::from(byte).to_string(),
            })
            .collect()
    }

    proptest! {
        #[test]
        fn no_mix_of_escapes_and_splits_hides_the_secret(
            before in "[a-z%u0-9]{0,9}", after in "[a-z%u0-9]{0,9}", how in prop::collection::vec(0u8..5, 1..9), size in 1usize..20,
        ) {
            let secret = escape("sk-aab", &how);
            let text = format!("{before} {secret} {after}");
            let out = redact("sk-aab", &text.as_bytes().chunks(size).collect::<Vec<_>>());
            let expected = format!("{before} {} {after}", "*".repeat(secret.len()));
            prop_assert_eq!(String::from_utf8(out).unwrap(), expected);
        }

        #[test]
        fn text_without_the_secret_is_unchanged(text in r"[su%k\\0-9]{0,40}", size in 1usize..9) {
            let out = redact("sk-aab", &text.as_bytes().chunks(size).collect::<Vec<_>>());
            prop_assert_eq!(out, text.as_bytes());
        }

        #[test]
        fn length_is_kept_and_no_secret_remains(text in "[ab]{0,60}", size in 1usize..9) {
            let out = redact("aab", &text.as_bytes().chunks(size).collect::<Vec<_>>());
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(memmem::find(&out, b"aab").is_none());
        }
    }
}
