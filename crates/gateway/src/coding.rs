//! Bodies that come compressed, and how they are opened.
//!
//! What is forwarded, metered, recorded and searched for keys is always plain. It is opened piece by piece, because a
//! few compressed bytes can stand for gigabytes: whoever takes the pieces says when it is enough.

use bytes::{Buf, Bytes};
use flate2::{Decompress, FlushDecompress, Status};
use futures_util::{StreamExt, stream};
use http::{HeaderMap, header};
use zstd::stream::raw::{DParameter, Decoder as Zstd, Operation};

use crate::upstream::{ResponseStream, UpstreamFailure};

/// So much comes out at a time.
const PIECE_BYTES: usize = 16 << 10;
/// The largest window a sender may ask us to keep: what RFC 8878 wants of everybody who takes zstd over HTTP.
const ZSTD_WINDOW_LOG: u32 = 23;
/// The largest window of gzip and deflate.
const FLATE_WINDOW_BITS: u8 = 15;

/// How a body is compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Coding {
    Gzip,
    Deflate,
    Zstd,
}

/// Why a body could not be opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UnpackError {
    /// It is not what its header says.
    Broken(Coding),
    /// It ends before its end.
    Cut,
}

impl Coding {
    /// How the body behind `headers` is compressed; none: it is plain. An error names what we cannot open.
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
            // Nobody compresses twice but to make something small that is very large.
            if let Some(first) = found.replace(coding) {
                return Err(format!("{}, {name}", first.name()));
            }
        }
        Ok(found)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gzip => "gzip",
            Self::Deflate => "deflate",
            Self::Zstd => "zstd",
        }
    }

    /// Opens a body that has all come; none: more than `limit` bytes are in it.
    pub(crate) fn unpack(self, mut body: Bytes, limit: usize) -> Result<Option<Bytes>, UnpackError> {
        let mut unpacker = Unpacker::new(self);
        let mut plain = Vec::new();
        loop {
            let piece = unpacker.next(&mut body)?;
            if piece.is_empty() {
                unpacker.finish()?;
                return Ok(Some(plain.into()));
            }
            if plain.len() + piece.len() > limit {
                return Ok(None);
            }
            plain.extend_from_slice(&piece);
        }
    }

    /// The frames of a compressed answer, opened as they come.
    pub(crate) fn unpack_frames(self, frames: ResponseStream) -> ResponseStream {
        let opened = Opened { frames, packed: Bytes::new(), unpacker: Unpacker::new(self) };
        Box::pin(stream::unfold(Some(opened), |opened| async {
            let mut opened = opened?;
            match opened.next().await {
                Ok(Some(piece)) => Some((Ok(piece), Some(opened))),
                Ok(None) => None,
                Err(failure) => Some((Err(failure), None)),
            }
        }))
    }
}

impl From<UnpackError> for UpstreamFailure {
    fn from(error: UnpackError) -> Self {
        match error {
            UnpackError::Broken(coding) => Self::InvalidResponse(format!("its {} cannot be opened", coding.name())),
            UnpackError::Cut => Self::Cut,
        }
    }
}

/// An answer that is opened as it comes.
struct Opened {
    frames: ResponseStream,
    /// What has come and is not opened yet.
    packed: Bytes,
    unpacker: Unpacker,
}

impl Opened {
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

/// Opens one body, piece by piece.
struct Unpacker {
    coding: Coding,
    /// Made when the first byte is there, which tells two kinds of deflate apart.
    opener: Option<Opener>,
    /// Whether what has come could be all.
    whole: bool,
}

enum Opener {
    Flate(Decompress),
    Zstd(Zstd<'static>),
}

/// What one step took and gave.
struct Step {
    read: usize,
    written: usize,
    /// Whether the compressed data has come to its end.
    ended: bool,
}

impl Unpacker {
    fn new(coding: Coding) -> Self {
        // An answer that has no body may still name a coding.
        Self { coding, opener: None, whole: true }
    }

    /// Opens some of `packed`; nothing comes out when more must come first.
    fn next(&mut self, packed: &mut Bytes) -> Result<Bytes, UnpackError> {
        let broken = UnpackError::Broken(self.coding);
        let mut piece = vec![0; PIECE_BYTES];
        let mut length = 0;
        while length < PIECE_BYTES {
            if self.whole {
                // Behind the end there may be one more of the same kind; deflate alone has no such thing.
                let Some(first) = packed.first() else { break };
                if self.opener.is_some() && self.coding == Coding::Deflate {
                    return Err(broken);
                }
                self.opener = Some(Opener::new(self.coding, *first).ok_or(broken)?);
                self.whole = false;
            }
            let Some(opener) = &mut self.opener else { break };
            let step = opener.step(packed, &mut piece[length..]).ok_or(broken)?;
            packed.advance(step.read);
            length += step.written;
            self.whole = step.ended;
            if step.read == 0 && step.written == 0 && !step.ended {
                break;
            }
        }
        piece.truncate(length);
        Ok(piece.into())
    }

    /// Nothing more comes.
    fn finish(&self) -> Result<(), UnpackError> {
        if self.whole { Ok(()) } else { Err(UnpackError::Cut) }
    }
}

impl Opener {
    fn new(coding: Coding, first: u8) -> Option<Self> {
        Some(match coding {
            Coding::Gzip => Self::Flate(Decompress::new_gzip(FLATE_WINDOW_BITS)),
            // By its RFC it has a zlib header, and some servers leave that out.
            Coding::Deflate => Self::Flate(Decompress::new(first & 0x0f == 8)),
            Coding::Zstd => {
                let mut decoder = Zstd::new().ok()?;
                decoder.set_parameter(DParameter::WindowLogMax(ZSTD_WINDOW_LOG)).ok()?;
                Self::Zstd(decoder)
            }
        })
    }

    /// Takes one step; none: this cannot be opened.
    fn step(&mut self, packed: &[u8], piece: &mut [u8]) -> Option<Step> {
        match self {
            Self::Flate(stream) => {
                let (read, written) = (stream.total_in(), stream.total_out());
                let status = stream.decompress(packed, piece, FlushDecompress::None).ok()?;
                Some(Step {
                    read: usize::try_from(stream.total_in() - read).ok()?,
                    written: usize::try_from(stream.total_out() - written).ok()?,
                    ended: status == Status::StreamEnd,
                })
            }
            Self::Zstd(stream) => {
                let status = stream.run_on_buffers(packed, piece).ok()?;
                let (read, written) = (status.bytes_read, status.bytes_written);
                Some(Step { read, written, ended: status.remaining == 0 })
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

    const ALL: [Coding; 3] = [Coding::Gzip, Coding::Deflate, Coding::Zstd];

    #[test]
    fn each_coding_is_opened_however_it_is_cut() {
        let text = b"data: {\"usage\":1}\n\n".repeat(3_000);
        for coding in ALL {
            let packed = packed(coding, &text);
            assert!(coding.unpack(packed.clone(), text.len()).unwrap().unwrap() == text, "{coding:?}");
            for size in [1, 7, 4096] {
                let frames: Vec<_> = packed.chunks(size).map(|piece| Ok(Bytes::copy_from_slice(piece))).collect();
                let frames = coding.unpack_frames(Box::pin(stream::iter(frames)));
                let opened = tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(frames.fold(
                    Vec::new(),
                    |mut all, piece| async move {
                        all.extend_from_slice(&piece.unwrap());
                        all
                    },
                ));
                assert!(opened == text, "{coding:?} in pieces of {size}");
            }
        }
    }

    #[test]
    fn deflate_is_opened_without_its_header_too() {
        let mut writer = write::DeflateEncoder::new(Vec::new(), Compression::default());
        writer.write_all(b"hello hello").unwrap();
        let packed = Bytes::from(writer.finish().unwrap());
        assert_eq!(Coding::Deflate.unpack(packed, 100).unwrap().unwrap(), "hello hello");
    }

    #[test]
    fn what_was_joined_is_opened_as_one() {
        for coding in [Coding::Gzip, Coding::Zstd] {
            let joined = [packed(coding, b"one "), packed(coding, b"two")].concat();
            assert_eq!(coding.unpack(joined.into(), 100).unwrap().unwrap(), "one two", "{coding:?}");
        }
    }

    #[test]
    fn a_bomb_is_left_as_soon_as_it_is_too_large() {
        for coding in ALL {
            let bomb = packed(coding, &vec![0; 4 << 20]);
            assert!(bomb.len() < 8 << 10, "{coding:?} of {} bytes", bomb.len());
            assert_eq!(coding.unpack(bomb, 1 << 20), Ok(None), "{coding:?}");
        }
    }

    #[test]
    fn what_is_broken_or_cut_is_told_apart_from_what_is_whole() {
        for coding in ALL {
            let whole = packed(coding, b"hello hello hello");
            assert_eq!(coding.unpack(whole.slice(..whole.len() - 1), 100), Err(UnpackError::Cut), "{coding:?}");
            // Not even a block of deflate without a header begins like this.
            let told = coding.unpack(Bytes::from_static(b"\x07 is something else"), 100);
            assert_eq!(told, Err(UnpackError::Broken(coding)));
            assert_eq!(coding.unpack(Bytes::new(), 100), Ok(Some(Bytes::new())));
        }
    }

    #[test]
    fn a_coding_is_read_off_its_header() {
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
        fn any_bytes_are_opened_without_harm(bytes in prop::collection::vec(any::<u8>(), 0..200), at in 0..60usize) {
            for coding in ALL {
                let mut spoilt = packed(coding, &bytes).to_vec();
                let at = at % spoilt.len();
                spoilt[at] ^= 0x55;
                for bytes in [bytes.clone(), spoilt] {
                    if let Ok(Some(plain)) = coding.unpack(bytes.into(), 1 << 16) {
                        prop_assert!(plain.len() <= 1 << 16);
                    }
                }
            }
        }
    }
}
