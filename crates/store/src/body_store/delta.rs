//! Deltas between two bodies.
//!
//! An agent sends its whole conversation at every turn, so most of a request is also in the one before it, at another
//! offset. A delta is a list of pieces. Each piece is either a range of the base or literal bytes.

use std::collections::HashMap;

/// Common parts of two bodies are found in blocks of this length.
const BLOCK_BYTES: usize = 32;
/// Bodies whose common start and end are less than one part in this many are not compared further.
const MIN_COMMON_PART: usize = 16;

/// Returns the delta from `base` to `new`; `None` if they have too little in common.
pub(super) fn encode(base: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let head = base.iter().zip(new).take_while(|(one, other)| one == other).count();
    let (base_rest, new_rest) = (&base[head..], &new[head..]);
    let tail = base_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    if (head + tail) * MIN_COMMON_PART < new.len() {
        return None;
    }
    let mut pieces = DeltaWriter::default();
    pieces.copy(0, head);
    encode_middle(base, &new_rest[..new_rest.len() - tail], &mut pieces);
    pieces.copy(base.len() - tail, tail);
    Some(pieces.bytes)
}

/// Applies `delta` to `base` and returns the body of `length` bytes; `None` if the delta is not valid for `base`.
pub(super) fn decode(base: &[u8], mut delta: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(length.min(base.len() + delta.len()));
    while !delta.is_empty() {
        let number = read_number(&mut delta)?;
        let count = usize::try_from(number >> 1).ok()?;
        let piece = if number & 1 == 0 {
            let (piece, rest) = delta.split_at_checked(count)?;
            delta = rest;
            piece
        } else {
            let start = usize::try_from(read_number(&mut delta)?).ok()?;
            base.get(start..start.checked_add(count)?)?
        };
        // A damaged delta must not fill the memory before the digest is checked.
        if body.len() + piece.len() > length {
            return None;
        }
        body.extend_from_slice(piece);
    }
    (body.len() == length).then_some(body)
}

/// Encodes the part between the common start and the common end.
fn encode_middle(base: &[u8], new: &[u8], pieces: &mut DeltaWriter) {
    let mut blocks: HashMap<&[u8], usize> = HashMap::new();
    if new.len() >= BLOCK_BYTES {
        blocks.extend(base.chunks_exact(BLOCK_BYTES).enumerate().map(|(index, block)| (block, index * BLOCK_BYTES)));
    }
    let (mut literal_start, mut at) = (0, 0);
    while let Some(block) = new.get(at..at + BLOCK_BYTES) {
        let Some(&start) = blocks.get(block) else {
            at += 1;
            continue;
        };
        let ahead = base[start..].iter().zip(&new[at..]).take_while(|(one, other)| one == other).count();
        let behind =
            base[..start].iter().rev().zip(new[literal_start..at].iter().rev()).take_while(|(a, b)| a == b).count();
        pieces.literal(&new[literal_start..at - behind]);
        pieces.copy(start - behind, behind + ahead);
        at += ahead;
        literal_start = at;
    }
    pieces.literal(&new[literal_start..]);
}

/// Writes a delta. Each piece is a length, whose lowest bit distinguishes a range from literal bytes, then the offset
/// of the range or the bytes.
#[derive(Default)]
struct DeltaWriter {
    bytes: Vec<u8>,
}

impl DeltaWriter {
    fn copy(&mut self, start: usize, count: usize) {
        if count > 0 {
            self.write_number((count as u64) << 1 | 1);
            self.write_number(start as u64);
        }
    }

    fn literal(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.write_number((bytes.len() as u64) << 1);
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Writes a number with seven bits per byte, lowest first.
    fn write_number(&mut self, mut number: u64) {
        loop {
            let [low, ..] = (number & 0x7f).to_le_bytes();
            number >>= 7;
            self.bytes.push(if number == 0 { low } else { low | 0x80 });
            if number == 0 {
                return;
            }
        }
    }
}

fn read_number(bytes: &mut &[u8]) -> Option<u64> {
    let mut number = 0_u64;
    for shift in (0..64).step_by(7) {
        let (first, rest) = bytes.split_first()?;
        *bytes = rest;
        number |= u64::from(first & 0x7f).checked_shl(shift)?;
        if first & 0x80 == 0 {
            return Some(number);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn moved_and_inserted_parts_are_found() {
        let part = |seed: u8| (0..2_000_u32).map(|n| (n * 7 + n / 13).to_le_bytes()[0] ^ seed).collect::<Vec<u8>>();
        let base = [part(1), part(2), part(3)].concat();
        let new = [part(1), b"something new".to_vec(), part(3), part(2), part(3)].concat();
        let delta = encode(&base, &new).unwrap();
        assert!(delta.len() < 200, "{} bytes", delta.len());
        assert_eq!(decode(&base, &delta, new.len()).unwrap(), new);
    }

    #[test]
    fn unrelated_bodies_are_not_compared() {
        assert_eq!(encode(&[1; 1_000], &[2; 1_000]), None);
    }

    proptest! {
        #[test]
        fn delta_restores_the_body(base in "[ab]{0,300}", new in "[ab]{0,300}") {
            if let Some(delta) = encode(base.as_bytes(), new.as_bytes()) {
                prop_assert_eq!(decode(base.as_bytes(), &delta, new.len()).unwrap(), new.as_bytes());
                prop_assert_eq!(decode(base.as_bytes(), &delta, new.len() + 1), None);
            }
        }

        #[test]
        fn damaged_delta_never_panics(base in prop::collection::vec(any::<u8>(), 0..64), delta in prop::collection::vec(any::<u8>(), 0..64), length in 0_usize..128) {
            let _ = decode(&base, &delta, length);
        }
    }
}
