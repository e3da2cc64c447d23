//! What is new in a body, against one that is kept already.
//!
//! A conversation is sent whole at every turn: most of a request stands in the one before it, at another place. A
//! delta is a list of pieces, each either copied from the base or given as it is.

use std::collections::HashMap;

/// What two bodies have in common is found in blocks of so many bytes.
const BLOCK: usize = 32;
/// Bodies that share less than this part of them at their ends are not compared any closer.
const SHARE: usize = 16;

/// `new` as pieces of `base` and bytes of its own; none: the two have too little in common.
pub(super) fn encode(base: &[u8], new: &[u8]) -> Option<Vec<u8>> {
    let head = base.iter().zip(new).take_while(|(one, other)| one == other).count();
    let (base_rest, new_rest) = (&base[head..], &new[head..]);
    let tail = base_rest.iter().rev().zip(new_rest.iter().rev()).take_while(|(one, other)| one == other).count();
    if (head + tail) * SHARE < new.len() {
        return None;
    }
    let mut pieces = Pieces::default();
    pieces.copy(0, head);
    middle(base, &new_rest[..new_rest.len() - tail], &mut pieces);
    pieces.copy(base.len() - tail, tail);
    Some(pieces.bytes)
}

/// The body that `delta` makes of `base`; none: it is no delta, or of another base.
pub(super) fn decode(base: &[u8], mut delta: &[u8], length: usize) -> Option<Vec<u8>> {
    let mut body = Vec::with_capacity(length.min(base.len() + delta.len()));
    while !delta.is_empty() {
        let word = read(&mut delta)?;
        let count = usize::try_from(word >> 1).ok()?;
        let piece = if word & 1 == 0 {
            let (piece, rest) = delta.split_at_checked(count)?;
            delta = rest;
            piece
        } else {
            let start = usize::try_from(read(&mut delta)?).ok()?;
            base.get(start..start.checked_add(count)?)?
        };
        // A damaged delta must not fill the memory before its digest is looked at.
        if body.len() + piece.len() > length {
            return None;
        }
        body.extend_from_slice(piece);
    }
    (body.len() == length).then_some(body)
}

/// What lies between the ends that both have in common.
fn middle(base: &[u8], new: &[u8], pieces: &mut Pieces) {
    let mut blocks: HashMap<&[u8], usize> = HashMap::new();
    if new.len() >= BLOCK {
        blocks.extend(base.chunks_exact(BLOCK).enumerate().map(|(index, block)| (block, index * BLOCK)));
    }
    let (mut given, mut at) = (0, 0);
    while let Some(block) = new.get(at..at + BLOCK) {
        let Some(&start) = blocks.get(block) else {
            at += 1;
            continue;
        };
        let ahead = base[start..].iter().zip(&new[at..]).take_while(|(one, other)| one == other).count();
        let behind = base[..start].iter().rev().zip(new[given..at].iter().rev()).take_while(|(a, b)| a == b).count();
        pieces.give(&new[given..at - behind]);
        pieces.copy(start - behind, behind + ahead);
        at += ahead;
        given = at;
    }
    pieces.give(&new[given..]);
}

/// A delta as it is written: a number whose last bit says what follows, then a place or bytes.
#[derive(Default)]
struct Pieces {
    bytes: Vec<u8>,
}

impl Pieces {
    fn copy(&mut self, start: usize, count: usize) {
        if count > 0 {
            self.write((count as u64) << 1 | 1);
            self.write(start as u64);
        }
    }

    fn give(&mut self, bytes: &[u8]) {
        if !bytes.is_empty() {
            self.write((bytes.len() as u64) << 1);
            self.bytes.extend_from_slice(bytes);
        }
    }

    /// Seven bits a byte, the lowest first.
    fn write(&mut self, mut number: u64) {
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

fn read(bytes: &mut &[u8]) -> Option<u64> {
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
    fn what_moved_and_what_was_put_in_between_is_found() {
        let part = |seed: u8| (0..2_000_u32).map(|n| (n * 7 + n / 13).to_le_bytes()[0] ^ seed).collect::<Vec<u8>>();
        let base = [part(1), part(2), part(3)].concat();
        let new = [part(1), b"something new".to_vec(), part(3), part(2), part(3)].concat();
        let delta = encode(&base, &new).unwrap();
        assert!(delta.len() < 200, "{} bytes", delta.len());
        assert_eq!(decode(&base, &delta, new.len()).unwrap(), new);
    }

    #[test]
    fn strangers_are_not_compared() {
        assert_eq!(encode(&[1; 1_000], &[2; 1_000]), None);
    }

    proptest! {
        #[test]
        fn a_delta_gives_back_what_it_was_made_of(base in "[ab]{0,300}", new in "[ab]{0,300}") {
            if let Some(delta) = encode(base.as_bytes(), new.as_bytes()) {
                prop_assert_eq!(decode(base.as_bytes(), &delta, new.len()).unwrap(), new.as_bytes());
                prop_assert_eq!(decode(base.as_bytes(), &delta, new.len() + 1), None);
            }
        }

        #[test]
        fn damage_never_panics(base in prop::collection::vec(any::<u8>(), 0..64), delta in prop::collection::vec(any::<u8>(), 0..64), length in 0_usize..128) {
            let _ = decode(&base, &delta, length);
        }
    }
}
