//! The body of an answer, freed from how its end is told.

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use crate::upstream::UpstreamFailure;

/// A size line with its extensions, or the trailers: nobody needs more.
const LINE_BYTES: usize = 16 << 10;
/// Hexadecimal digits of the largest size.
const MOST_DIGITS: usize = 16;

/// Where in a body we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Decoder {
    /// So many bytes are left.
    Length(u64),
    /// Chunked transfer coding.
    Chunked(Chunk),
    /// The body ends with the connection.
    UntilClose,
    /// All of it has come.
    Done,
}

/// Where in a chunk we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Chunk {
    Size,
    Data(u64),
    /// Before the line end that closes the data.
    DataEnd,
    Trailers,
}

impl Decoder {
    pub(super) fn length(length: u64) -> Self {
        if length == 0 { Self::Done } else { Self::Length(length) }
    }

    pub(super) fn chunked() -> Self {
        Self::Chunked(Chunk::Size)
    }

    /// Takes everything of the body that is in `buffer`, as one frame; none: more must come first, or all
    /// has come.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, UpstreamFailure> {
        let bytes = match self {
            Self::Done => Bytes::new(),
            Self::UntilClose => buffer.split().freeze(),
            Self::Length(left) => {
                let bytes = take(buffer, left);
                if *left == 0 {
                    *self = Self::Done;
                }
                bytes
            }
            Self::Chunked(_) => self.decode_chunks(buffer)?,
        };
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    /// The connection has ended: whether that was the end of the body, too.
    pub(super) fn ends_here(&mut self) -> bool {
        if *self == Self::UntilClose {
            *self = Self::Done;
        }
        *self == Self::Done
    }

    fn decode_chunks(&mut self, buffer: &mut BytesMut) -> Result<Bytes, UpstreamFailure> {
        let (mut rest, mut data) = (&buffer[..], BytesMut::with_capacity(buffer.len()));
        while let Self::Chunked(chunk) = self {
            let next = match chunk {
                Chunk::Size => match size(&mut rest)? {
                    Some(0) => Chunk::Trailers,
                    Some(size) => Chunk::Data(size),
                    None => break,
                },
                Chunk::Data(left) => {
                    let taken;
                    (taken, rest) = rest.split_at(at_most(*left, rest.len()));
                    data.extend_from_slice(taken);
                    *left -= taken.len() as u64;
                    if *left == 0 { Chunk::DataEnd } else { break }
                }
                Chunk::DataEnd => match rest.strip_prefix(b"\r\n") {
                    Some(next) => {
                        rest = next;
                        Chunk::Size
                    }
                    None => match line(&mut rest)? {
                        Some(b"") => Chunk::Size,
                        Some(_) => return Err(garbage("a chunk is longer than it said")),
                        None => break,
                    },
                },
                Chunk::Trailers => match line(&mut rest)? {
                    Some(b"") => {
                        *self = Self::Done;
                        break;
                    }
                    Some(_) => Chunk::Trailers,
                    None => break,
                },
            };
            *self = Self::Chunked(next);
        }
        let used = buffer.len() - rest.len();
        buffer.advance(used);
        Ok(data.freeze())
    }
}

/// Takes at most `left` bytes, and counts them off.
fn take(buffer: &mut BytesMut, left: &mut u64) -> Bytes {
    let length = at_most(*left, buffer.len());
    *left -= length as u64;
    buffer.split_to(length).freeze()
}

/// `left` where that is less than `length`.
fn at_most(left: u64, length: usize) -> usize {
    usize::try_from(left).map_or(length, |left| left.min(length))
}

/// Takes a line, without its end.
fn line<'b>(rest: &mut &'b [u8]) -> Result<Option<&'b [u8]>, UpstreamFailure> {
    let Some(end) = memchr(b'\n', rest) else {
        return if rest.len() > LINE_BYTES { Err(garbage("a line of its chunks never ends")) } else { Ok(None) };
    };
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
}

/// Takes the line that says how long a chunk is.
fn size(rest: &mut &[u8]) -> Result<Option<u64>, UpstreamFailure> {
    let (size, digits) = leading_size(rest);
    // Nearly all are a few digits and the line's end.
    if digits > 0
        && let Some(next) = rest[digits..].strip_prefix(b"\r\n")
    {
        *rest = next;
        return Ok(Some(size));
    }
    let Some(line) = line(rest)? else { return Ok(None) };
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    match leading_size(&digits[zeros..]) {
        (size, count) if zeros + count == digits.len() && !digits.is_empty() => Ok(Some(size)),
        _ => Err(garbage("a chunk has no size")),
    }
}

/// The number that `text` begins with, and how many digits it has; at most as many as fit.
fn leading_size(text: &[u8]) -> (u64, usize) {
    let digits = text.iter().take(MOST_DIGITS).map_while(|digit| char::from(*digit).to_digit(16));
    digits.fold((0, 0), |(size, count), digit| (size << 4 | u64::from(digit), count + 1))
}

fn garbage(problem: &str) -> UpstreamFailure {
    UpstreamFailure::InvalidResponse(problem.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes `bytes`, which come in `pieces`; the frames, and whether the body came to its end.
    fn decode(mut decoder: Decoder, pieces: &[&[u8]]) -> Result<(Vec<Bytes>, bool), UpstreamFailure> {
        let mut buffer = BytesMut::new();
        let mut frames = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            frames.extend(decoder.decode(&mut buffer)?);
        }
        Ok((frames, decoder.ends_here()))
    }

    #[test]
    fn all_chunks_in_the_buffer_become_one_frame() {
        let (frames, ended) = decode(Decoder::chunked(), &[b"3\r\nabc\r\n4;x=1\r\ndefg\r\n0\r\nt: 1\r\n\r\n"]).unwrap();
        assert_eq!((frames, ended), (vec![Bytes::from("abcdefg")], true));
    }

    #[test]
    fn a_body_that_stops_early_did_not_end() {
        assert!(!decode(Decoder::chunked(), &[b"3\r\nabc\r\n"]).unwrap().1);
        assert!(!decode(Decoder::length(5), &[b"abc"]).unwrap().1);
        assert!(decode(Decoder::UntilClose, &[b"abc"]).unwrap().1);
    }

    #[test]
    fn a_size_may_begin_with_zeros_and_end_with_a_line_feed_alone() {
        let (frames, ended) = decode(Decoder::chunked(), &[b"00000000000000000003\r\nabc\r\n2\nde\n000\n\n"]).unwrap();
        assert_eq!((frames, ended), (vec![Bytes::from("abcde")], true));
    }

    #[test]
    fn chunks_that_make_no_sense_are_refused() {
        for bytes in [
            &b"xyz\r\n"[..],
            b"-1\r\n",
            b"\r\n",
            b"3\r\nabcd\r\n",
            b"11111111111111111\r\n",
            "1".repeat(20_000).as_bytes(),
        ] {
            assert!(decode(Decoder::chunked(), &[bytes]).is_err());
        }
    }

    proptest! {
        #[test]
        fn what_was_chunked_comes_out_whole_however_it_was_cut(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..10),
            size in 1usize..50,
        ) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(b"\r\n");
            }
            wire.extend_from_slice(b"0\r\n\r\n");
            let pieces: Vec<&[u8]> = wire.chunks(size).collect();
            let (frames, ended) = decode(Decoder::chunked(), &pieces).unwrap();
            prop_assert_eq!(frames.concat(), chunks.concat());
            prop_assert!(ended);
        }

        #[test]
        fn garbage_never_panics(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(Decoder::chunked(), &[&bytes]);
        }
    }
}
