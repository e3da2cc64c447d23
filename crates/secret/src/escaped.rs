//! A search for a secret whose characters are escaped: `\u0073` of JSON, also within JSON text in a string, `\/`, and
//! `%73` of URLs, in any mix and across any split of the stream.

use std::collections::VecDeque;

/// The most backslashes before an escape. JSON text in a string doubles them at each level.
const MAX_BACKSLASHES: usize = 15;
/// The most bytes of one escape.
const MAX_ESCAPE: usize = MAX_BACKSLASHES + 5;

/// Finds a secret in a stream of bytes, byte by byte, by the algorithm of Knuth, Morris and Pratt.
#[derive(Debug, Clone)]
pub(crate) struct EscapedSearch {
    secret: Vec<u8>,
    /// Whether the secret has a character that JSON may escape with a backslash alone.
    has_quotable: bool,
    /// For each prefix of the secret, the length of its longest proper suffix that is also a prefix.
    fallback: Vec<usize>,
    /// The lengths of the decoded characters that match the start of the secret.
    matched: VecDeque<usize>,
    /// An escape whose end has not arrived.
    escape: Vec<u8>,
    /// Bytes that belong to `matched` and `escape`.
    held: Vec<u8>,
}

/// One decoded character, or the wish for more bytes.
enum Decoded {
    /// The character and the number of bytes that encode it.
    Byte(u8, usize),
    Incomplete,
}

impl EscapedSearch {
    pub(crate) fn new(secret: &[u8]) -> Self {
        let mut fallback = vec![0; secret.len()];
        let mut length = 0;
        for at in 1..secret.len() {
            while length > 0 && secret[at] != secret[length] {
                length = fallback[length - 1];
            }
            if secret[at] == secret[length] {
                length += 1;
            }
            fallback[at] = length;
        }
        Self {
            secret: secret.to_vec(),
            has_quotable: secret.iter().any(|byte| matches!(byte, b'/' | b'"' | b'\\')),
            fallback,
            matched: VecDeque::new(),
            escape: Vec::new(),
            held: Vec::new(),
        }
    }

    /// Returns whether `bytes` can be passed on without a search: nothing is held back, and no character of the secret
    /// is escaped. Streams of JSON are full of other escapes.
    pub(crate) fn can_skip(&self, bytes: &[u8]) -> bool {
        let has_escape = || {
            memchr::memchr(b'%', bytes).is_some()
                || memchr::memmem::find(bytes, b"\\u").is_some()
                || bytes.last() == Some(&b'\\')
                || self.has_quotable && memchr::memchr(b'\\', bytes).is_some()
        };
        self.held.is_empty() && !has_escape()
    }

    /// Adds the bytes that may leave to `out`, with the secret replaced by `*`.
    pub(crate) fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        for byte in bytes {
            self.held.push(*byte);
            self.escape.push(*byte);
            self.decode(false, out);
        }
    }

    /// Adds all bytes that were held back to `out`.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        self.decode(true, out);
        out.append(&mut self.held);
        self.matched.clear();
        self.escape.clear();
    }

    /// Decodes the characters of `escape` that are complete. At the end of the stream, all are.
    fn decode(&mut self, at_end: bool, out: &mut Vec<u8>) {
        while !self.escape.is_empty() {
            let (byte, length) = match decode(&self.escape) {
                Decoded::Byte(byte, length) => (byte, length),
                Decoded::Incomplete if at_end => (self.escape[0], 1),
                Decoded::Incomplete => return,
            };
            self.escape.drain(..length);
            self.take(byte, length, out);
        }
    }

    /// Takes one decoded character.
    fn take(&mut self, byte: u8, length: usize, out: &mut Vec<u8>) {
        let mut count = self.matched.len();
        while count > 0 && self.secret[count] != byte {
            let shorter = self.fallback[count - 1];
            self.release(count - shorter, out);
            count = shorter;
        }
        self.matched.push_back(length);
        if self.secret[count] != byte {
            self.release(1, out);
        } else if count + 1 == self.secret.len() {
            let bytes: usize = self.matched.drain(..).sum();
            self.held.drain(..bytes);
            out.resize(out.len() + bytes, b'*');
        }
    }

    /// Lets the first `count` matched characters leave.
    fn release(&mut self, count: usize, out: &mut Vec<u8>) {
        let bytes: usize = self.matched.drain(..count).sum();
        out.extend(self.held.drain(..bytes));
    }
}

/// Decodes the first character of `text`, which is not empty.
fn decode(text: &[u8]) -> Decoded {
    match text[0] {
        b'\\' => decode_backslash(text),
        b'%' => match hex(&text[1..], 2) {
            Some(Ok(code)) => Decoded::Byte(u8::try_from(code).unwrap_or(b'%'), 3),
            Some(Err(())) => Decoded::Byte(b'%', 1),
            None => Decoded::Incomplete,
        },
        byte => Decoded::Byte(byte, 1),
    }
}

fn decode_backslash(text: &[u8]) -> Decoded {
    let backslashes = text.iter().take(MAX_BACKSLASHES).take_while(|byte| **byte == b'\\').count();
    let literal = Decoded::Byte(b'\\', 1);
    match text.get(backslashes) {
        None if text.len() < MAX_ESCAPE => Decoded::Incomplete,
        Some(b'u') => match hex(&text[backslashes + 1..], 4) {
            Some(Ok(code)) => u8::try_from(code).map_or(literal, |byte| Decoded::Byte(byte, backslashes + 5)),
            Some(Err(())) => literal,
            None => Decoded::Incomplete,
        },
        Some(byte @ (b'/' | b'"')) => Decoded::Byte(*byte, backslashes + 1),
        _ => literal,
    }
}

/// Returns the number of the first `digits` hexadecimal digits; an error if one is invalid, `None` if they are incomplete.
fn hex(text: &[u8], digits: usize) -> Option<Result<u32, ()>> {
    let mut number = 0;
    for at in 0..digits {
        match text.get(at).map(|byte| (*byte as char).to_digit(16)) {
            None => return None,
            Some(None) => return Some(Err(())),
            Some(Some(digit)) => number = number * 16 + digit,
        }
    }
    Some(Ok(number))
}
