//! Decompression of request and response bodies.
//!
//! Bodies are forwarded, metered, recorded and searched for keys only in plain form. They are decompressed piece by
//! piece, because a few compressed bytes can expand to gigabytes. The reader of the pieces enforces the limit.

use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, header};
use zstd::stream::raw::{DParameter, Decoder as Zstd, Operation};

use crate::upstream::{ResponseStream, UpstreamFailure};

/// The most bytes in one decompressed piece.
const PIECE_BYTES: usize = 16 << 10;
/// The largest accepted zstd window, as RFC 8878 recommends for HTTP.
const ZSTD_WINDOW_LOG: u32 = 23;
/// The largest window of gzip and deflate.
const FLATE_WINDOW_BITS: u8 = 15;

/// The compression of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Zstd,
}

/// Why a body could not be decompressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnpackError {
    /// The bytes are not valid for the coding.
    Broken(Coding),
    /// The body is incomplete.
    Cut,
}

impl Coding {
    /// Returns the coding of the body behind `headers`; `None` if it is plain. An error holds the unsupported name.
    pub(crate) fn of(headers: &HeaderMap) -> Result<Option<Self>, String> {
        let mut names = headers.get_all(header::CONTENT_ENCODING).iter().flat_map(|value| {
            let text = String::from_utf8_lossy(value.as_bytes()).to_ascii_lowercase();
            text.split(',').map(|name| name.trim().to_owned()).collect::<Vec<_>>()
        });
        let mut found = None;
        for name in names.by_ref().filter(|name| !matches!(name.as_str(), "" | "identity")) {
            let coding = match name.as_str() {
                "gzip" | "x-gzip" => Self::Gzip,
                "deflate" => Self::Deflate,
                "zstd" => Self::Zstd,
                _ => return Err(name),
            };
            // Double compression has no use but decompression bombs.
            if let Some(first) = found.replace(coding) {
                return Err(format!("{}, {name}", first.name()));
            }
        }
        Ok(found)
    }

    /// Returns the name of the coding in HTTP.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }

    /// Returns the most bytes of memory that a decoder needs.
    pub(crate) fn window_bytes(self) -> usize {
        match self {
            Self::Gzip | Self::Deflate => 64 << 10,
            Self::Zstd => 1 << ZSTD_WINDOW_LOG,
        }
    }

    /// Returns the frames of a compressed response, decompressed as they arrive.
    pub(crate) fn unpack_frames(self, frames: ResponseStream) -> ResponseStream {
        let unpacked = UnpackedFrames { frames, packed: Bytes::new(), unpacker: Unpacker::new(self) };
        Box::pin(stream::unfold(Some(unpacked), |unpacked| async {
            let mut unpacked = unpacked?;
            match unpacked.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(unpacked))),
                Ok(None) => None,
                Err(failure) => Some((Err(failure), None)),
            }
        }))
    }
}

impl From<UnpackError> for UpstreamFailure {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Broken(coding) => Self::InvalidResponse(format!("invalid {} data", coding.name())),
            UnpackError::Cut => Self::Cut,
        }
    }
}

/// A complete body that is decompressed step by step.
pub(crate) struct PackedBody {
    packed: Bytes,
    unpacker: Unpacker,
    /// Decompressed bytes that did not fit into the last step.
    piece: Bytes,
}

impl PackedBody {
    pub(crate) fn new(coding: Coding, packed: Bytes) -> Self {
        Self { packed, unpacker: Unpacker::new(coding), piece: Bytes::new() }
    }

    /// Decompresses into `plain` until it has `room` bytes. Returns whether the body has ended.
    pub(crate) fn fill(&mut self, plain: &mut Vec<u8>, room: usize) -> Result<bool, UnpackError> {
        loop {
            if self.piece.is_empty() {
                self.piece = self.unpacker.next(&mut self.packed)?;
            }
            if self.piece.is_empty() {
                self.unpacker.finish()?;
                return Ok(true);
            }
            let count = self.piece.len().min(room - plain.len().min(room));
            if count == 0 {
                return Ok(false);
            }
            plain.extend_from_slice(&self.piece.split_to(count));
        }
    }
}

/// A response that is decompressed as it arrives.
struct UnpackedFrames {
    frames: ResponseStream,
    /// Bytes that have arrived and are not decompressed yet.
    packed: Bytes,
    unpacker: Unpacker,
}

impl UnpackedFrames {
    async fn next(&mut self) -> Result<Option<Bytes>, UpstreamFailure> {
        loop {
            let piece = self.unpacker.next(&mut self.packed)?;
            if !piece.is_empty() {
                return Ok(Some(piece));
            }
            let Some(bytes) = self.frames.next().await else {
                self.unpacker.finish()?;
                return Ok(None);
            };
            self.packed = bytes?;
        }
    }
}

/// Decompresses one body, piece by piece.
struct Unpacker {
    coding: Coding,
    /// Made with the first byte, which tells the two kinds of deflate apart.
    decoder: Option<Decoder>,
    /// Whether the body may end here.
    complete: bool,
}

enum Decoder {
    Flate(Decompress),
    Zstd(Zstd<'static>),
}

/// The progress of one decompression step.
struct DecodeStep {
    read: usize,
    written: usize,
    /// Whether the compressed data has ended.
    ended: bool,
}

impl Unpacker {
    fn new(coding: Coding) -> Self {
        // A response without a body may still name a coding, so an empty body is complete.
        Self { coding, decoder: None, complete: true }
    }

    /// Decompresses the start of `packed`. Returns an empty piece if more input is needed.
    fn next(&mut self, packed: &mut Bytes) -> Result<Bytes, UnpackError> {
        let broken = UnpackError::Broken(self.coding);
        let mut piece = vec![0; PIECE_BYTES];
        let mut length = 0;
        while length < PIECE_BYTES {
            if self.complete {
                // Another gzip member or zstd frame may follow. Deflate has no such concept.
                let Some(first) = packed.first() else { break };
                if self.decoder.is_some() && self.coding == Coding::Deflate {
                    return Err(broken);
                }
                self.decoder = Some(Decoder::new(self.coding, *first).ok_or(broken)?);
                self.complete = false;
            }
            let Some(decoder) = &mut self.decoder else { break };
            let step = decoder.step(packed, &mut piece[length..]).ok_or(broken)?;
            packed.advance(step.read);
            length += step.written;
            self.complete = step.ended;
            if step.read == 0 && step.written == 0 && !step.ended {
                break;
            }
        }
        piece.truncate(length);
        Ok(piece.into())
    }

    /// Fails if the body is incomplete at the end of the input.
    fn finish(&self) -> Result<(), UnpackError> {
        if self.complete { Ok(()) } else { Err(UnpackError::Cut) }
    }
}

impl Decoder {
    fn new(coding: Coding, first: u8) -> Option<Self> {
        Some(match coding {
            Coding::Gzip => Self::Flate(Decompress::new_gzip(FLATE_WINDOW_BITS)),
            // The RFC requires a zlib header, but some servers omit it.
            Coding::Deflate => Self::Flate(Decompress::new(first & 0x0f == 8)),
            Coding::Zstd => {
                let mut zstd = Zstd::new().ok()?;
                zstd.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).ok()?;
                Self::Zstd(zstd)
            }
        })
    }

    /// Does one step; `None` if the data is invalid.
    fn step(&mut self, packed: &[u8], piece: &mut [u8]) -> Option<DecodeStep> {
        match self {
            Self::Flate(stream) => {
                let (read, written) = (stream.total_in(), stream.total_out());
                let status = stream.decompress(packed, piece, FlushDecompress::None).ok()?;
                Some(DecodeStep {
                    read: usize::try_from(stream.total_in() - read).ok()?,
                    written: usize::try_from(stream.total_out() - written).ok()?,
                    ended: status == Status::StreamEnd,
                })
            }
            Self::Zstd(stream) => {
                let status = stream.run_on_buffers(packed, piece).ok()?;
                let (read, written) = (status.bytes_read, status.bytes_written);
                Some(DecodeStep { read, written, ended: status.remaining == 0 })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write};
    use proptest::prelude::*;

    use super::*;

    fn packed(coding: Coding, text: &[u8]) -> Bytes {
        let (out, level) = (Vec::new(), Compression::default());
        match coding {
            Coding::Gzip => {
                let mut writer = write::GzEncoder::new(out, level);
                writer.write_all(text).unwrap();
                writer.finish().unwrap().into()
            }
            Coding::Deflate => {
                let mut writer = write::ZlibEncoder::new(out, level);
                writer.write_all(text).unwrap();
                writer.finish().unwrap().into()
            }
            Coding::Zstd => zstd::encode_all(text, 1).unwrap().into(),
        }
    }

    /// Decompresses a complete body; `None` if it has more than `limit` bytes.
    fn unpack(coding: Coding, body: Bytes, limit: usize) -> Result<Option<Bytes>, UnpackError> {
        let (mut packed, mut plain) = (PackedBody::new(coding, body), Vec::new());
        Ok(packed.fill(&mut plain, limit)?.then(|| plain.into()))
    }

    const ALL: [Coding; 3] = [Coding::Gzip, Coding::Deflate, Coding::Zstd];

    #[test]
    fn each_coding_is_unpacked_for_any_frame_size() {
        let text = b"data: {\"usage\":1}\n\n".repeat(3_000);
        for coding in ALL {
            let packed = packed(coding, &text);
            assert!(unpack(coding, packed.clone(), text.len()).unwrap().unwrap() == text, "{coding:?}");
            for size in [1, 7, 4096] {
                let frames: Vec<_> = packed.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
                let frames = coding.unpack_frames(Box::pin(stream::iter(frames)));
                let unpacked = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(frames.fold(
                    Vec::new(),
                    |mut all, piece| async move {
                        all.extend_from_slice(&piece.unwrap());
                        all
                    },
                ));
                assert!(unpacked == text, "{coding:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn deflate_without_a_zlib_header_is_unpacked() {
        let mut writer = write::DeflateEncoder::new(Vec::new(), Compression::default());
        writer.write_all(b"hello hello").unwrap();
        let packed = Bytes::from(writer.finish().unwrap());
        assert_eq!(unpack(Coding::Deflate, packed, 100).unwrap().unwrap(), "hello hello");
    }

    #[test]
    fn concatenated_members_are_unpacked_as_one_body() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let joined = [packed(coding, b"one "), packed(coding, b"two")].concat();
            assert_eq!(unpack(coding, joined.into(), 100).unwrap().unwrap(), "one two", "{coding:?}");
        }
    }

    #[test]
    fn decompression_bomb_is_abandoned_at_the_limit() {
        for coding in ALL {
            let bomb = packed(coding, &vec![0; 4 << 20]);
            assert!(bomb.len() < 8 << 10, "{coding:?} of {} bytes", bomb.len());
            assert_eq!(unpack(coding, bomb, 1 << 20), Ok(None), "{coding:?}");
        }
    }

    #[test]
    fn invalid_incomplete_and_complete_bodies_are_distinguished() {
        for coding in ALL {
            let whole = packed(coding, b"hello hello hello");
            assert_eq!(unpack(coding, whole.slice(..whole.len() - 1), 100), Err(UnpackError::Cut), "{coding:?}");
            // These bytes are not valid for deflate without a header either.
            let result = unpack(coding, Bytes::from_static(b"\x07 is something else"), 100);
            assert_eq!(result, Err(UnpackError::Broken(coding)));
            assert_eq!(unpack(coding, Bytes::new(), 100), Ok(Some(Bytes::new())));
        }
    }

    #[test]
    fn coding_is_read_from_the_header() {
        let read = |values: &[&'static str]| {
            let mut headers = HeaderMap::new();
            for value in values {
                headers.append(header::CONTENT_ENCODING, http::HeaderValue::from_static(value));
            }
            Coding::of(&headers)
        };
        assert_eq!(read(&[]), Ok(None));
        assert_eq!(read(&["Identity"]), Ok(None));
        assert_eq!(read(&[" X-GZip "]), Ok(Some(Coding::Gzip)));
        assert_eq!(read(&["br"]), Err("br".to_owned()));
        assert_eq!(read(&["gzip, gzip"]), Err("gzip, gzip".to_owned()));
        assert_eq!(read(&["gzip", "zstd"]), Err("gzip, zstd".to_owned()));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_exceed_the_limit(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..60usize) {
            for coding in ALL {
                let mut corrupted = packed(coding, &bytes).to_vec();
                let at = at % corrupted.len();
                corrupted[at] ^= 0x55;
                for bytes in [bytes.clone(), corrupted] {
                    if let Ok(Some(plain)) = unpack(coding, bytes.into(), 1 << 16) {
                        prop_assert!(plain.len() <= 1 << 16);
                    }
                }
            }
        }
    }
}
