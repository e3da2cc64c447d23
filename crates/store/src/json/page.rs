//! What is being written: bytes one after another, and text between quotes.
//!
//! There is always room behind the last byte, so that eight can be put there at once, however many of them count.

/// One in each byte of a word.
const ONES: u64 = u64::from_le_bytes([1; 8]);
/// The highest bit of each byte.
const HIGHEST: u64 = ONES << 7;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Bytes that are made room for at once.
const ROOM: usize = 1 << 10;

/// The end of a list of bytes, where more are put. Dropped, it leaves what was put there.
pub(super) struct Page<'a> {
    bytes: &'a mut Vec<u8>,
    end: usize,
}

impl<'a> Page<'a> {
    /// What comes after `bytes`.
    pub(super) fn after(bytes: &'a mut Vec<u8>) -> Self {
        Self { end: bytes.len(), bytes }
    }

    /// Where the next byte will stand.
    pub(super) fn end(&self) -> usize {
        self.end
    }

    /// What was put since it ended at `start`.
    pub(super) fn since(&self, start: usize) -> &[u8] {
        &self.bytes[start..self.end]
    }

    /// Takes back what was put since it ended at `start`.
    pub(super) fn turn_back(&mut self, start: usize) {
        self.end = start;
    }

    /// Room for `count` bytes.
    fn room(&mut self, count: usize) -> &mut [u8] {
        let end = self.end + count;
        if self.bytes.len() < end {
            self.bytes.resize(end + ROOM, 0);
        }
        &mut self.bytes[self.end..end]
    }

    /// Adds `bytes`.
    pub(super) fn put(&mut self, bytes: &[u8]) {
        self.room(bytes.len()).copy_from_slice(bytes);
        self.end += bytes.len();
    }

    /// Adds the name of a field, which is ours and needs no escape, after a comma where something stands before it.
    pub(super) fn name(&mut self, follows: bool, name: &'static str) {
        debug_assert!(is_plain(name.as_bytes()), "`{name}` would have to be escaped");
        let (count, first) = (name.len(), usize::from(follows));
        let room = self.room(count + 4);
        room[0] = b',';
        room[first] = b'"';
        room[first + 1..=first + count].copy_from_slice(name.as_bytes());
        room[first + count + 1] = b'"';
        room[first + count + 2] = b':';
        self.end += first + count + 3;
    }

    /// Adds `text` in quotes.
    pub(super) fn quote(&mut self, text: &str) {
        let bytes = text.as_bytes();
        let count = bytes.len();
        if is_plain(bytes) {
            let room = self.room(count + 2);
            room[0] = b'"';
            room[1..=count].copy_from_slice(bytes);
            room[count + 1] = b'"';
            self.end += count + 2;
        } else {
            self.put(b"\"");
            self.escape(bytes);
            self.put(b"\"");
        }
    }

    /// Adds `bytes`, with what needs an escape escaped.
    fn escape(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let room = self.room(bytes.len() + bytes.len() / 4 + ROOM);
            let (taken, put) = fill(room, bytes);
            self.end += put;
            bytes = &bytes[taken..];
        }
    }
}

/// Puts `bytes` into `room`, escaped, as far as they fit; says how many were taken, and how many they became.
fn fill(room: &mut [u8], bytes: &[u8]) -> (usize, usize) {
    let (mut taken, mut put) = (0, 0);
    while let Some(place) = room[put..].first_chunk_mut::<16>() {
        let Some(word) = bytes[taken..].first_chunk::<8>() else {
            let Some(byte) = bytes.get(taken) else { break };
            let Escaped { bytes, length } = Escaped::of(*byte);
            place[..8].copy_from_slice(&bytes);
            (taken, put) = (taken + 1, put + length);
            continue;
        };
        place[..8].copy_from_slice(word);
        let marks = marks(*word);
        if marks == 0 {
            (taken, put) = (taken + 8, put + 8);
            continue;
        }
        let plain = marks.trailing_zeros() as usize / 8;
        let Escaped { bytes, length } = Escaped::of(word[plain]);
        place[plain..plain + 8].copy_from_slice(&bytes);
        (taken, put) = (taken + plain + 1, put + plain + length);
    }
    (taken, put)
}

impl Drop for Page<'_> {
    fn drop(&mut self) {
        self.bytes.truncate(self.end);
    }
}

/// Whether nothing in it needs an escape, as in most names and numbers.
fn is_plain(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    let found = words.iter().fold(0, |found, word| found | marks(*word));
    match bytes.last_chunk::<8>() {
        // Some of it is looked at twice, which is less than to look at each byte.
        Some(last) => found | marks(*last) == 0,
        None => !rest.iter().any(|byte| needs_escape(*byte)),
    }
}

fn needs_escape(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

/// The highest bit of each byte that needs an escape. The first is exact; behind it there may be too many.
fn marks(word: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(word);
    let less = |word: u64, than: u8| word.wrapping_sub(ONES * u64::from(than)) & !word & HIGHEST;
    let is = |byte: u8| less(word ^ (ONES * u64::from(byte)), 1);
    less(word, b' ') | is(b'"') | is(b'\\')
}

/// How a byte is written.
struct Escaped {
    bytes: [u8; 8],
    length: usize,
}

impl Escaped {
    fn of(byte: u8) -> Self {
        let short = match byte {
            b'"' | b'\\' => byte,
            b'\n' => b'n',
            b'\t' => b't',
            b'\r' => b'r',
            0x08 => b'b',
            0x0c => b'f',
            b' '.. => return Self { bytes: [byte, 0, 0, 0, 0, 0, 0, 0], length: 1 },
            _ => {
                let (high, low) = (DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]);
                return Self { bytes: [b'\\', b'u', b'0', b'0', high, low, 0, 0], length: 6 };
            }
        };
        Self { bytes: [b'\\', short, 0, 0, 0, 0, 0, 0], length: 2 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_byte_is_escaped_wherever_it_stands() {
        for place in 0..20 {
            for byte in 0..=0x7f_u8 {
                let mut text = "é234567890123456789".to_owned();
                let place = (0..=place).rev().find(|place| text.is_char_boundary(*place)).unwrap_or(0);
                text.insert(place, char::from(byte));
                let mut out = Vec::new();
                Page::after(&mut out).quote(&text);
                assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&text).unwrap());
            }
        }
    }
}
