//! Decoder for response bodies: removes the framing (content length or chunks).

use bytes::{Buf, Bytes, BytesMut};
use memchr::memchr;

use crate::upstream::UpstreamFailure;

/// Length limit of a chunk size line or a trailer line.
const MAX_LINE_BYTES: usize = 16 << 10;
/// Maximum number of hexadecimal digits in a chunk size.
const MAX_SIZE_DIGITS: usize = 16;

/// Position in a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BodyDecoder {
    /// Number of bytes that remain.
    Length(u64),
    /// Chunked transfer coding.
    Chunked(ChunkState),
    /// The body ends when the connection closes.
    UntilClose,
    /// The body is complete.
    Done,
}

/// Position in a chunked body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ChunkState {
    Size,
    Data(u64),
    /// Before the line end after the data.
    DataEnd,
    Trailers,
}

impl BodyDecoder {
    pub(super) fn with_length(length: u64) -> Self {
        if length == 0 { Self::Done } else { Self::Length(length) }
    }

    pub(super) fn chunked() -> Self {
        Self::Chunked(ChunkState::Size)
    }

    /// Takes all body bytes from `buffer` as one frame; returns `None` if more input is needed or the body is complete.
    pub(super) fn decode(&mut self, buffer: &mut BytesMut) -> Result<Option<Bytes>, UpstreamFailure> {
        let bytes = match self {
            Self::Done => Bytes::new(),
            Self::UntilClose => buffer.split().freeze(),
            Self::Length(left) => {
                let bytes = take_bytes(buffer, left);
                if *left == 0 {
                    *self = Self::Done;
                }
                bytes
            }
            Self::Chunked(_) => self.decode_chunks(buffer)?,
        };
        Ok((!bytes.is_empty()).then_some(bytes))
    }

    /// Handles the end of the connection; returns whether the body is complete.
    pub(super) fn finish(&mut self) -> bool {
        if *self == Self::UntilClose {
            *self = Self::Done;
        }
        *self == Self::Done
    }

    fn decode_chunks(&mut self, buffer: &mut BytesMut) -> Result<Bytes, UpstreamFailure> {
        let (mut rest, mut data) = (&buffer[..], BytesMut::with_capacity(buffer.len()));
        while let Self::Chunked(chunk) = self {
            let next = match chunk {
                ChunkState::Size => match take_size(&mut rest)? {
                    Some(0) => ChunkState::Trailers,
                    Some(size) => ChunkState::Data(size),
                    None => break,
                },
                ChunkState::Data(left) => {
                    let taken;
                    (taken, rest) = rest.split_at(at_most(*left, rest.len()));
                    data.extend_from_slice(taken);
                    *left -= taken.len() as u64;
                    if *left == 0 { ChunkState::DataEnd } else { break }
                }
                ChunkState::DataEnd => match rest.strip_prefix(b"\r\n") {
                    Some(next) => {
                        rest = next;
                        ChunkState::Size
                    }
                    None => match take_line(&mut rest)? {
                        Some(b"") => ChunkState::Size,
                        Some(_) => return Err(invalid("chunk data is longer than the chunk size")),
                        None => break,
                    },
                },
                ChunkState::Trailers => match take_line(&mut rest)? {
                    Some(b"") => {
                        *self = Self::Done;
                        break;
                    }
                    Some(_) => ChunkState::Trailers,
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

/// Takes at most `left` bytes and subtracts them from `left`.
fn take_bytes(buffer: &mut BytesMut, left: &mut u64) -> Bytes {
    let length = at_most(*left, buffer.len());
    *left -= length as u64;
    buffer.split_to(length).freeze()
}

/// Returns the smaller of `left` and `length`.
fn at_most(left: u64, length: usize) -> usize {
    usize::try_from(left).map_or(length, |left| left.min(length))
}

/// Takes a line and returns it without its line end; `None` if it is incomplete.
fn take_line<'b>(rest: &mut &'b [u8]) -> Result<Option<&'b [u8]>, UpstreamFailure> {
    let Some(end) = memchr(b'\n', rest) else {
        return if rest.len() > MAX_LINE_BYTES {
            Err(invalid("a chunk size or trailer line is too long"))
        } else {
            Ok(None)
        };
    };
    let line = &rest[..end];
    *rest = &rest[end + 1..];
    Ok(Some(line.strip_suffix(b"\r").unwrap_or(line)))
}

/// Takes a chunk size line and returns the size; `None` if the line is incomplete.
fn take_size(rest: &mut &[u8]) -> Result<Option<u64>, UpstreamFailure> {
    let (size, digits) = parse_leading_size(rest);
    // Fast path: nearly all lines are a few digits and a line end.
    if digits > 0
        && let Some(next) = rest[digits..].strip_prefix(b"\r\n")
    {
        *rest = next;
        return Ok(Some(size));
    }
    let Some(line) = take_line(rest)? else { return Ok(None) };
    let digits = line.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
    let zeros = digits.iter().take_while(|digit| **digit == b'0').count();
    match parse_leading_size(&digits[zeros..]) {
        (size, count) if zeros + count == digits.len() && !digits.is_empty() => Ok(Some(size)),
        _ => Err(invalid("invalid chunk size")),
    }
}

/// Returns the hexadecimal number at the start of `text` and its number of digits, at most [`MAX_SIZE_DIGITS`].
fn parse_leading_size(text: &[u8]) -> (u64, usize) {
    let digits = text.iter().take(MAX_SIZE_DIGITS).map_while(|digit| char::from(*digit).to_digit(16));
    digits.fold((0, 0), |(size, count), digit| (size << 4 | u64::from(digit), count + 1))
}

fn invalid(problem: &str) -> UpstreamFailure {
    UpstreamFailure::InvalidResponse(problem.to_owned())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Decodes a body that arrives in `pieces`; returns the frames and whether the body is complete.
    fn decode(mut decoder: BodyDecoder, pieces: &[&[u8]]) -> Result<(Vec<Bytes>, bool), UpstreamFailure> {
        let mut buffer = BytesMut::new();
        let mut frames = Vec::new();
        for piece in pieces {
            buffer.extend_from_slice(piece);
            frames.extend(decoder.decode(&mut buffer)?);
        }
        Ok((frames, decoder.finish()))
    }

    #[test]
    fn all_chunks_in_the_buffer_become_one_frame() {
        let (frames, ended) =
            decode(BodyDecoder::chunked(), &[b"3\r\nabc\r\n4;x=1\r\ndefg\r\n0\r\nt: 1\r\n\r\n"]).unwrap();
        assert_eq!((frames, ended), (vec![Bytes::from("abcdefg")], true));
    }

    #[test]
    fn body_that_stops_early_is_incomplete() {
        assert!(!decode(BodyDecoder::chunked(), &[b"3\r\nabc\r\n"]).unwrap().1);
        assert!(!decode(BodyDecoder::with_length(5), &[b"abc"]).unwrap().1);
        assert!(decode(BodyDecoder::UntilClose, &[b"abc"]).unwrap().1);
    }

    #[test]
    fn chunk_size_may_have_leading_zeros_and_end_with_a_line_feed() {
        let (frames, ended) =
            decode(BodyDecoder::chunked(), &[b"00000000000000000003\r\nabc\r\n2\nde\n000\n\n"]).unwrap();
        assert_eq!((frames, ended), (vec![Bytes::from("abcde")], true));
    }

    #[test]
    fn invalid_chunks_are_rejected() {
        for bytes in [
            &b"xyz\r\n"[..],
            b"-1\r\n",
            b"\r\n",
            b"3\r\nabcd\r\n",
            b"11111111111111111\r\n",
            "1".repeat(20_000).as_bytes(),
        ] {
            assert!(decode(BodyDecoder::chunked(), &[bytes]).is_err());
        }
    }

    proptest! {
        #[test]
        fn chunked_body_is_decoded_for_any_split_of_the_input(
            chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..40), 0..10),
            size in 1usize..50,
        ) {
            let mut encoded = Vec::new();
            for chunk in &chunks {
                encoded.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
                encoded.extend_from_slice(chunk);
                encoded.extend_from_slice(b"\r\n");
            }
            encoded.extend_from_slice(b"0\r\n\r\n");
            let pieces: Vec<&[u8]> = encoded.chunks(size).collect();
            let (frames, ended) = decode(BodyDecoder::chunked(), &pieces).unwrap();
            prop_assert_eq!(frames.concat(), chunks.concat());
            prop_assert!(ended);
        }

        #[test]
        fn invalid_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let _ = decode(BodyDecoder::chunked(), &[&bytes]);
        }
    }
}
