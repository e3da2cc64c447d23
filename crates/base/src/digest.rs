//! SHA-256 digests, as they are written in file names and in the hash chain of a journal.

use std::fmt;
use std::io::{self, Read};
use std::str::FromStr;

use serde::{Deserialize, Serialize, Serializer};
use sha2::{Digest as _, Sha256};

use crate::hex::digits_of;

/// A SHA-256, written as 64 lower-case hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Deserialize)]
#[serde(try_from = "String")]
pub struct Digest([u8; 32]);

/// The text is not a SHA-256 digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not a SHA-256 digest: expected 64 lower-case hexadecimal digits")]
pub struct DigestError;

impl Digest {
    /// All zeros: the previous digest of the first record of a chain.
    pub const ZERO: Self = Self([0; 32]);

    /// Returns the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Self(Sha256::digest(bytes).into())
    }

    /// Returns the digest that consists of `bytes`.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }

    /// Returns the 32 bytes of the digest.
    pub fn to_bytes(self) -> [u8; 32] {
        self.0
    }

    /// Writes the 64 digits into `room` and returns them, without an allocation.
    pub fn digits<'a>(&self, room: &'a mut [u8; 64]) -> &'a str {
        for (pair, byte) in room.chunks_exact_mut(2).zip(self.0) {
            pair.copy_from_slice(&digits_of(byte));
        }
        // They are all ASCII.
        std::str::from_utf8(room).unwrap_or_default()
    }

    /// Returns the digest of all bytes that were fed to `hasher`.
    pub fn finish(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

/// A reader that computes the digest of every byte read through it.
#[derive(Debug)]
pub struct DigestReader<R> {
    source: R,
    hasher: Sha256,
}

impl<R: Read> DigestReader<R> {
    /// Returns a reader over `source` that has read nothing yet.
    pub fn new(source: R) -> Self {
        Self { source, hasher: Sha256::new() }
    }

    /// Returns the digest of the bytes read so far.
    pub fn finish(self) -> Digest {
        Digest::finish(self.hasher)
    }
}

impl<R: Read> Read for DigestReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(buffer)?;
        self.hasher.update(&buffer[..count]);
        Ok(count)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.digits(&mut [0; 64]))
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

impl FromStr for Digest {
    type Err = DigestError;

    fn from_str(text: &str) -> Result<Self, DigestError> {
        let digits = text.as_bytes();
        if digits.len() != 64 {
            return Err(DigestError);
        }
        let mut bytes = [0; 32];
        for (byte, pair) in bytes.iter_mut().zip(digits.chunks_exact(2)) {
            *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
        }
        Ok(Self(bytes))
    }
}

impl TryFrom<String> for Digest {
    type Error = DigestError;
    fn try_from(text: String) -> Result<Self, DigestError> {
        text.parse()
    }
}

/// Every journal line contains a digest, so serializing one does not allocate.
impl Serialize for Digest {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.digits(&mut [0; 64]))
    }
}

/// Accepts lower case only: a digest has exactly one spelling, so an edited line never compares as equal.
fn nibble(digit: u8) -> Result<u8, DigestError> {
    match digit {
        b'0'..=b'9' => Ok(digit - b'0'),
        b'a'..=b'f' => Ok(digit - b'a' + 10),
        _ => Err(DigestError),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ABC: &str = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";

    #[test]
    fn digest_matches_a_known_value_and_parses_back() {
        assert_eq!(Digest::of(b"abc").to_string(), ABC);
        assert_eq!(ABC.parse::<Digest>(), Ok(Digest::of(b"abc")));
    }

    #[test]
    fn any_other_spelling_is_rejected() {
        for bad in ["", "ab", &ABC.to_uppercase(), &ABC.replace('b', "g"), &format!("{ABC}0")] {
            assert_eq!(bad.parse::<Digest>(), Err(DigestError), "`{bad}`");
        }
    }
}
