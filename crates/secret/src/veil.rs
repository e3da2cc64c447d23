//! A veil over what a server says: the key is not in it any more.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use memchr::{memchr_iter, memmem};

use crate::Secret;

/// Covers a key wherever a server repeats it, with as many stars as it has bytes. One veil is for one answer; a clone
/// of a fresh one is another.
#[derive(Debug, Clone)]
pub struct Redactor {
    finder: Arc<memmem::Finder<'static>>,
    /// The end of the last bytes, where it could be the beginning of the key.
    held: BytesMut,
}

impl Redactor {
    /// A veil over `secret`; none: there is nothing to cover.
    pub fn new(secret: &Secret) -> Option<Self> {
        let finder = memmem::Finder::new(secret.expose().as_bytes()).into_owned();
        (!secret.expose().is_empty()).then(|| Self { finder: Arc::new(finder), held: BytesMut::new() })
    }

    /// The next bytes, covered. Bytes are held back only while they could be the beginning of the key.
    pub fn redact(&mut self, bytes: Bytes) -> Bytes {
        let held = self.could_begin(&bytes);
        if self.held.is_empty() && held == 0 && self.finder.find(&bytes).is_none() {
            return bytes;
        }
        let mut text = std::mem::take(&mut self.held);
        text.extend_from_slice(&bytes);
        self.cover(&mut text);
        let held = self.could_begin(&text);
        self.held = text.split_off(text.len() - held);
        text.freeze()
    }

    /// Whether there is something to cover in `text`.
    pub fn finds_secret(&self, text: &[u8]) -> bool {
        self.finder.find(text).is_some()
    }

    /// What was held back, once nothing more comes.
    pub fn finish(&mut self) -> Bytes {
        self.held.split().freeze()
    }

    fn cover(&self, text: &mut [u8]) {
        while let Some(at) = self.finder.find(text) {
            text[at..at + self.finder.needle().len()].fill(b'*');
        }
    }

    /// How many of the last bytes are the beginning of the key.
    fn could_begin(&self, text: &[u8]) -> usize {
        let needle = self.finder.needle();
        let longest = (needle.len() - 1).min(text.len());
        let end = &text[text.len() - longest..];
        // Nothing but its first byte can begin it.
        let mut starts = memchr_iter(needle[0], end);
        starts.find(|start| needle.starts_with(&end[*start..])).map_or(0, |start| longest - start)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn cover(key: &str, pieces: &[&[u8]]) -> Vec<u8> {
        let mut veil = Redactor::new(&Secret::new(key)).unwrap();
        let mut out: Vec<u8> = pieces.iter().flat_map(|piece| veil.redact(Bytes::copy_from_slice(piece))).collect();
        out.extend_from_slice(&veil.finish());
        out
    }

    #[test]
    fn a_key_is_covered_however_it_is_cut() {
        let text = b"bad key sk-abc, sk-abc and sk-ab";
        for at in 0..text.len() {
            assert_eq!(cover("sk-abc", &[&text[..at], &text[at..]]), b"bad key ******, ****** and sk-ab");
        }
    }

    #[test]
    fn bytes_that_cannot_begin_the_key_are_not_held_back() {
        let mut veil = Redactor::new(&Secret::new("sk-abc")).unwrap();
        assert_eq!(veil.redact(Bytes::from("data: {\"a\":1}\n\n")), "data: {\"a\":1}\n\n");
    }

    proptest! {
        #[test]
        fn nothing_is_lost_and_no_key_is_left(text in "[ab]{0,60}", size in 1usize..9) {
            let out = cover("aab", &text.as_bytes().chunks(size).collect::<Vec<_>>());
            prop_assert_eq!(out.len(), text.len());
            prop_assert!(memmem::find(&out, b"aab").is_none());
        }
    }
}
