//! What is being written: bytes one after another, and text between quotes.
//!
//! Text is taken eight bytes at a time: all of them are put where they belong, and what must be escaped of them is written
//! over.

/// One in each byte of a word.
const ONES: u64 = u64::from_le_bytes([1; 8]);
/// The highest bit of each byte.
const HIGHEST: u64 = ONES << 7;
const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// What stands behind the backslash of each byte, where that is one letter.
const SHORT: [u8; 256] = {
    let mut letters = [0; 256];
    let pairs = b"\"\"\\\\\nn\rr\tt\x08b\x0cf";
    let mut at = 0;
    while at < pairs.len() {
        letters[pairs[at] as usize] = pairs[at + 1];
        at += 2;
    }
    letters
};
/// Eight bytes with the longest escapes, and room for a word behind the last.
const ESCAPED_WORD: usize = 8 * 6 + 8;

/// Text of more bytes is not looked through before it is taken: something in it needs an escape as a rule.
const MOST_LOOKED_THROUGH: usize = 64;

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
        if count <= MOST_LOOKED_THROUGH && is_plain(bytes) {
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
    while let (Some(word), Some(place)) = (bytes[taken..].first_chunk::<8>(), room[put..].first_chunk_mut()) {
        let marks = marks(*word);
        put += if marks == 0 { plain_word(*word, place) } else { escape_word(*word, marks, place) };
        taken += word.len();
    }
    let last = Some(&bytes[taken..]).filter(|last| last.len() < 8).unwrap_or_default();
    for byte in last {
        let Some(place) = room[put..].first_chunk_mut() else { break };
        put += if needs_escape(*byte) { escape(*byte, place, 0) } else { plain_byte(*byte, place) };
        taken += 1;
    }
    (taken, put)
}

fn plain_byte(byte: u8, place: &mut [u8; ESCAPED_WORD]) -> usize {
    place[0] = byte;
    1
}

fn plain_word(word: [u8; 8], place: &mut [u8; ESCAPED_WORD]) -> usize {
    place[..8].copy_from_slice(&word);
    word.len()
}

/// Puts `word` into `place`, with the bytes that are marked escaped; says how many they became.
fn escape_word(word: [u8; 8], mut marks: u64, place: &mut [u8; ESCAPED_WORD]) -> usize {
    let (mut word, mut left, mut put) = (u64::from_le_bytes(word), 8, 0);
    while left > 0 {
        // All that is left goes there, and what must be escaped of it is written over.
        place[put..put + 8].copy_from_slice(&word.to_le_bytes());
        if marks == 0 {
            return put + left;
        }
        let plain = marks.trailing_zeros() as usize / 8;
        put += plain;
        put += escape(place[put], place, put);
        left -= plain + 1;
        (marks, word) = (marks >> (8 * plain) >> 8, word >> (8 * plain) >> 8);
    }
    put
}

/// Puts `byte` into `place` at `put`, escaped; says how many bytes that are.
fn escape(byte: u8, place: &mut [u8; ESCAPED_WORD], put: usize) -> usize {
    let letter = SHORT[usize::from(byte)];
    if letter != 0 {
        place[put..put + 2].copy_from_slice(&[b'\\', letter]);
        return 2;
    }
    let (high, low) = (DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]);
    place[put..put + 6].copy_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
    6
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

/// The highest bit of each byte that needs an escape.
fn marks(word: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(word);
    let is_zero = |word: u64| !(((word & !HIGHEST) + !HIGHEST) | word) & HIGHEST;
    let is = |byte: u8| is_zero(word ^ (ONES * u64::from(byte)));
    // What is less than a space has none of the upper three bits.
    is_zero(word & (ONES * 0xe0)) | is(b'"') | is(b'\\')
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
