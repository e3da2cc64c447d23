//! Redaction of a secret in a response.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::{memchr_iter, memmem};

use crate::Secret;

/// Replaces a secret in a stream of bytes by as many `*` as the secret has bytes.
///
/// A redactor is for one response. Clone an unused redactor for the next response.
#[derive(Debug, Clone)]
pub struct Redactor {
    finder: Arc<memmem::Finder<'static>>,
    /// The last bytes of the stream if they may be the start of the secret.
    held: BytesMut,
}

impl Redactor {
    /// Returns a redactor of `secret`; `None` if the secret is empty.
    pub fn new(secret: &Secret) -> Option<Self> {
        let finder = memmem::Finder::new(secret.expose().as_bytes()).into_owned();
        (!secret.expose().is_empty()).then(|| Self { finder: Arc::new(finder), held: BytesMut::new() })
    }

    /// Returns the next bytes without the secret. Holds back only bytes that may be the start of the secret.
    pub fn redact(&mut self, bytes: Bytes) -> Bytes {
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

    /// Returns whether `text` contains the secret.
    pub fn finds_secret(&self, text: &[u8]) -> bool {
        self.finder.find(text).is_some()
    }

    /// Returns the bytes that were held back, at the end of the stream.
    pub fn finish(&mut self) -> Bytes {
        self.held.split().freeze()
    }

    fn overwrite(&self, text: &mut [u8]) {
        while let Some(at) = self.finder.find(text) {
            text[at..at + self.finder.needle().len()].fill(b'*');
        }
    }

    /// Returns how many of the last bytes are the start of the secret.
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

    proptest! {
        #[test]
        fn length_is_kept_and_no_secret_remains(text in "[ab]{0,60}", size in 1usize..9) {
            let out = redact("aab", &text.as_bytes().chunks(size).collect::<Vec<_>>());
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(memmem::find(&out, b"aab").is_none());
        }
    }
}
