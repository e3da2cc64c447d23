//! A body that is kept as less than its bytes: compressed, or as what is new in it.

use base::Digest;

use super::delta;

const MAGIC: &[u8; 5] = b"vivb1";
const HEAD: usize = MAGIC.len() + 1 + 8 + 8 + 32;
const IS_DELTA: u8 = 1;
const IS_ZSTD: u8 = 2;
/// Beyond this a new body stands on its own: reading one back must not mean reading a whole history.
pub(super) const DEEPEST: usize = 64;
/// Less than this is not worth the processor.
const WORTH_COMPRESSING: usize = 512;

/// What stands before the bytes of a packed body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Head {
    flags: u8,
    /// Of the body itself.
    pub(super) length: u64,
    /// Of what follows the head.
    payload: u64,
    base: Digest,
}

impl Head {
    /// Reads the beginning of a file.
    pub(super) fn read(bytes: &[u8]) -> Option<Self> {
        let rest = bytes.strip_prefix(MAGIC)?;
        let (flags, rest) = rest.split_first()?;
        let (length, rest) = rest.split_first_chunk()?;
        let (payload, rest) = rest.split_first_chunk()?;
        let (base, _) = rest.split_first_chunk()?;
        let (length, payload) = (u64::from_le_bytes(*length), u64::from_le_bytes(*payload));
        Some(Self { flags: *flags, length, payload, base: Digest::from_bytes(*base) })
    }

    /// How long a whole file with this head is.
    pub(super) fn file_length(&self) -> u64 {
        self.payload.saturating_add(HEAD as u64)
    }

    /// The body it stands on.
    pub(super) fn base(&self) -> Option<Digest> {
        (self.flags & IS_DELTA != 0).then_some(self.base)
    }

    fn write(&self, payload: &[u8]) -> Vec<u8> {
        let mut file = Vec::with_capacity(HEAD + payload.len());
        file.extend_from_slice(MAGIC);
        file.push(self.flags);
        file.extend_from_slice(&self.length.to_le_bytes());
        file.extend_from_slice(&self.payload.to_le_bytes());
        file.extend_from_slice(&self.base.to_bytes());
        file.extend_from_slice(payload);
        file
    }
}

/// A body that another one may stand on.
#[derive(Debug, Clone, Copy)]
pub(super) struct Base<'a> {
    pub(super) digest: Digest,
    pub(super) below: &'a [Digest],
    pub(super) bytes: &'a [u8],
}

/// `body` as a file of less than its size, and which others that stands on; none: it is best kept as it is.
pub(super) fn pack(body: &[u8], bases: &[Base<'_>], compress: bool) -> Option<(Vec<u8>, Vec<Digest>)> {
    let length = body.len() as u64;
    let deltas = bases.iter().filter(|base| base.below.len() < DEEPEST);
    let deltas = deltas.filter_map(|base| Some((delta::encode(base.bytes, body)?, base)));
    let best = deltas.min_by_key(|(delta, _)| delta.len()).filter(|(delta, _)| delta.len() < body.len() / 2);
    let mut below = Vec::new();
    let (mut payload, mut head) = match best {
        Some((delta, base)) => {
            below.push(base.digest);
            below.extend_from_slice(base.below);
            (delta, Head { flags: IS_DELTA, length, payload: 0, base: base.digest })
        }
        None if compress => (body.to_vec(), Head { flags: 0, length, payload: 0, base: Digest::ZERO }),
        None => return None,
    };
    if compress && payload.len() >= WORTH_COMPRESSING {
        let smaller = zstd::bulk::compress(&payload, 0).ok().filter(|smaller| smaller.len() < payload.len());
        if let Some(smaller) = smaller {
            payload = smaller;
            head.flags |= IS_ZSTD;
        }
    }
    head.payload = payload.len() as u64;
    (head.flags != 0).then(|| (head.write(&payload), below))
}

/// The body in `file`, which may stand on another that `base` finds; none: it is damaged.
pub(super) fn unpack(file: &[u8], base: Option<&[u8]>) -> Option<Vec<u8>> {
    let head = Head::read(file)?;
    let payload = file.get(HEAD..).filter(|payload| payload.len() as u64 == head.payload)?;
    let length = usize::try_from(head.length).ok()?;
    let unzipped;
    let payload = if head.flags & IS_ZSTD == 0 {
        payload
    } else {
        // Neither a body nor a delta of it is longer than both together; a bomb is.
        unzipped = zstd::bulk::decompress(payload, length.checked_mul(2)?.checked_add(1 << 16)?).ok()?;
        &unzipped
    };
    match head.base() {
        Some(_) => delta::decode(base?, payload, length),
        None => Some(payload.to_vec()),
    }
}
