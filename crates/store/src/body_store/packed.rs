//! Packed bodies: compressed, or stored as a delta of another body.

use base::Digest;

use super::delta;

const MAGIC: &[u8; 5] = b"vivb1";
const HEADER_BYTES: usize = MAGIC.len() + 1 + 8 + 8 + 32;
const IS_DELTA: u8 = 1;
const IS_ZSTD: u8 = 2;
/// The longest chain of deltas. It bounds the number of files that are read for one body.
pub(super) const MAX_CHAIN: usize = 64;
/// Smaller payloads are not compressed.
const MIN_COMPRESSED_BYTES: usize = 512;

/// The header of a packed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct PackHeader {
    flags: u8,
    /// Length of the body.
    pub(super) length: u64,
    /// Length of the bytes after the header.
    payload: u64,
    base: Digest,
}

impl PackHeader {
    /// Reads the header at the start of `bytes`; returns `None` if it is not valid.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (flags, rest) = rest.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (payload, rest) = rest.split_first_chunk()?;
        let (base, _) = rest.split_first_chunk()?;
        let (length, payload) = (u64::from_le_bytes(*length), u64::from_le_bytes(*payload));
        Some(Self { flags: *flags, length, payload, base: Digest::from_bytes(*base) })
    }

    /// Returns the length of a complete file with this header.
    pub(super) fn file_length(&self) -> u64 {
        self.payload.saturating_add(HEADER_BYTES as u64)
    }

    /// Returns the body that this body is a delta of.
    pub(super) fn base(&self) -> Option<Digest> {
        (self.flags & IS_DELTA != 0).then_some(self.base)
    }

    fn write(&self, payload: &[u8]) -> Vec<u8> {
        let mut file = Vec::with_capacity(HEADER_BYTES + payload.len());
        file.extend_from_slice(MAGIC);
        file.push(self.flags);
        file.extend_from_slice(&self.length.to_le_bytes());
        file.extend_from_slice(&self.payload.to_le_bytes());
        file.extend_from_slice(&self.base.to_bytes());
        file.extend_from_slice(payload);
        file
    }
}

/// A body that another body can be a delta of.
#[derive(Debug, Clone, Copy)]
pub(super) struct DeltaBase<'a> {
    pub(super) digest: Digest,
    pub(super) bases: &'a [Digest],
    pub(super) bytes: &'a [u8],
}

/// Returns `body` as a packed file and the chain of its bases; `None` if packing does not make it smaller.
pub(super) fn pack(body: &[u8], candidates: &[DeltaBase<'_>], compress: bool) -> Option<(Vec<u8>, Vec<Digest>)> {
    let length = body.len() as u64;
    let deltas = candidates.iter().filter(|base| base.bases.len() < MAX_CHAIN);
    let deltas = deltas.filter_map(|base| Some((delta::encode(base.bytes, body)?, base)));
    let best = deltas.min_by_key(|(delta, _)| delta.len()).filter(|(delta, _)| delta.len() < body.len() / 2);
    let mut bases = Vec::new();
    let (mut payload, mut header) = match best {
        Some((delta, base)) => {
            bases.push(base.digest);
            bases.extend_from_slice(base.bases);
            (delta, PackHeader { flags: IS_DELTA, length, payload: 0, base: base.digest })
        }
        None if compress => (body.to_vec(), PackHeader { flags: 0, length, payload: 0, base: Digest::ZERO }),
        None => return None,
    };
    if compress && payload.len() >= MIN_COMPRESSED_BYTES {
        let smaller = zstd::bulk::compress(&payload, 0).ok().filter(|smaller| smaller.len() < payload.len());
        if let Some(smaller) = smaller {
            payload = smaller;
            header.flags |= IS_ZSTD;
        }
    }
    header.payload = payload.len() as u64;
    (header.flags != 0).then(|| (header.write(&payload), bases))
}

/// Returns the body in `file`; `base` is the body that it is a delta of. Returns `None` if the file is damaged.
pub(super) fn unpack(file: &[u8], base: Option<&[u8]>) -> Option<Vec<u8>> {
    let header = PackHeader::read(file)?;
    let payload = file.get(HEADER_BYTES..).filter(|payload| payload.len() as u64 == header.payload)?;
    let length = usize::try_from(header.length).ok()?;
    let unzipped;
    let payload = if header.flags & IS_ZSTD == 0 {
        payload
    } else {
        // A delta is never much longer than its body. The limit stops a decompression bomb.
        unzipped = zstd::bulk::decompress(payload, length.checked_mul(2)?.checked_add(1 << 16)?).ok()?;
        &unzipped
    };
    match header.base() {
        Some(_) => delta::decode(base?, payload, length),
        None => Some(payload.to_vec()),
    }
}
