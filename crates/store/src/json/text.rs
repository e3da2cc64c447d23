//! Text between quotes.

/// One in each byte of a word.
const ONES: u64 = u64::from_le_bytes([1; 8]);
/// The highest bit of each byte.
const HIGHEST: u64 = ONES << 7;
const DIGITS: &[u8; 16] = b"0123456789abcdef";
/// A word whose last byte needs the longest escape, and room behind it.
const LONGEST: usize = 7 + 8;

/// Adds `text` in quotes to `out`.
pub(super) fn quote(text: &str, out: &mut Vec<u8>) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    if is_plain(bytes) {
        out.extend_from_slice(bytes);
    } else {
        escape(bytes, out);
    }
    out.push(b'"');
}

/// Whether nothing in it needs an escape, as in most names and numbers.
fn is_plain(bytes: &[u8]) -> bool {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().fold(0, |found, word| found | marks(*word)) | marks(padded(rest)) == 0
}

/// Adds `bytes` to `out`, with what needs an escape escaped.
fn escape(bytes: &[u8], out: &mut Vec<u8>) {
    let (mut rest, mut end) = (bytes, out.len());
    while !rest.is_empty() {
        // Eight bytes become at most so many.
        if out.len() < end + LONGEST {
            out.resize(end + LONGEST + rest.len() + rest.len() / 4, 0);
        }
        let (word, count) = match rest.first_chunk::<8>() {
            Some(word) => (*word, word.len()),
            None => (padded(rest), rest.len()),
        };
        out[end..end + 8].copy_from_slice(&word);
        let plain = marks(word).trailing_zeros() as usize / 8;
        if plain >= count {
            end += count;
            rest = &rest[count..];
            continue;
        }
        end += plain;
        let escaped = Escaped::of(word[plain]);
        out[end..end + 8].copy_from_slice(&escaped.bytes);
        end += escaped.length;
        rest = &rest[plain + 1..];
    }
    out.truncate(end);
}

/// A word that begins with `rest`, and has nothing else that needs an escape.
fn padded(rest: &[u8]) -> [u8; 8] {
    let mut word = [b'0'; 8];
    word[..rest.len()].copy_from_slice(rest);
    word
}

/// The highest bit of each byte that needs an escape. The first is exact; behind it there may be too many.
fn marks(word: [u8; 8]) -> u64 {
    let word = u64::from_le_bytes(word);
    let less = |word: u64, than: u8| word.wrapping_sub(ONES * u64::from(than)) & !word & HIGHEST;
    let is = |byte: u8| less(word ^ (ONES * u64::from(byte)), 1);
    less(word, b' ') | is(b'"') | is(b'\\')
}

/// How a byte is written that cannot stand for itself.
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
                quote(&text, &mut out);
                assert_eq!(String::from_utf8(out).unwrap(), serde_json::to_string(&text).unwrap());
            }
        }
    }
}
