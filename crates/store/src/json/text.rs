//! Text between quotes.

/// One in each byte of a word.
const ONES: u64 = u64::from_le_bytes([1; 8]);
/// The highest bit of each byte.
const HIGHEST: u64 = ONES << 7;
const DIGITS: &[u8; 16] = b"0123456789abcdef";

/// Adds `text` in quotes to `out`.
pub(super) fn quote(text: &str, out: &mut Vec<u8>) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text.as_bytes();
    while let Some((word, after)) = rest.split_first_chunk::<8>() {
        let marks = marks(u64::from_le_bytes(*word));
        out.extend_from_slice(word);
        if marks == 0 {
            rest = after;
            continue;
        }
        let plain = marks.trailing_zeros() as usize / 8;
        out.truncate(out.len() + plain - word.len());
        escape(word[plain], out);
        rest = &rest[plain + 1..];
    }
    for byte in rest {
        if needs_escape(*byte) { escape(*byte, out) } else { out.push(*byte) }
    }
    out.push(b'"');
}

fn needs_escape(byte: u8) -> bool {
    byte < b' ' || byte == b'"' || byte == b'\\'
}

/// The highest bit of each byte that needs an escape. The first is exact; behind it there may be too many.
fn marks(word: u64) -> u64 {
    let less = |word: u64, than: u8| word.wrapping_sub(ONES * u64::from(than)) & !word & HIGHEST;
    let is = |byte: u8| less(word ^ (ONES * u64::from(byte)), 1);
    less(word, b' ') | is(b'"') | is(b'\\')
}

fn escape(byte: u8, out: &mut Vec<u8>) {
    let short = match byte {
        b'"' | b'\\' => byte,
        b'\n' => b'n',
        b'\t' => b't',
        b'\r' => b'r',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            let (high, low) = (DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]);
            return out.extend_from_slice(&[b'\\', b'u', b'0', b'0', high, low]);
        }
    };
    out.extend_from_slice(&[b'\\', short]);
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
