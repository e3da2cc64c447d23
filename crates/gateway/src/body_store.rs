//! Where the bodies of model calls are kept, by content.

use std::{collections::HashMap, io, sync::Mutex};

use base::{Digest, lock};
use bytes::Bytes;
use protocol::BodyRef;
use store::BodyKind;

/// A store of bodies, addressed by the SHA-256 of their bytes.
///
/// `put` writes into the page cache and waits for no disk. The gateway calls it on threads that serve connections
/// where a body [is short](Self::is_short). Storing the same bytes again is not an error.
pub trait BodyStore: Send + Sync {
    /// Keeps `bytes` and says how to find them.
    fn put(&self, kind: BodyKind, bytes: Bytes) -> io::Result<BodyRef>;

    /// Whether so many bytes are kept sooner than another thread is woken: no file is made for them.
    fn is_short(&self, kind: BodyKind, bytes: usize) -> bool;
}

impl BodyStore for store::FileBodyStore {
    fn put(&self, kind: BodyKind, bytes: Bytes) -> io::Result<BodyRef> {
        // What nobody else has need not be copied.
        let kept =
            if bytes.is_unique() { Self::put(self, kind, Vec::from(bytes)) } else { Self::put(self, kind, &*bytes) };
        kept.map_err(io::Error::other)
    }

    fn is_short(&self, kind: BodyKind, bytes: usize) -> bool {
        Self::is_short(self, kind, bytes)
    }
}

/// Keeps bodies in memory, for tests and sessions that leave nothing behind.
#[derive(Debug, Default)]
pub struct MemoryBodyStore(Mutex<HashMap<String, Vec<u8>>>);

impl MemoryBodyStore {
    /// The bytes behind a reference.
    pub fn get(&self, body: &BodyRef) -> Option<Vec<u8>> {
        match body {
            BodyRef::Here { text } => Some(text.clone().into_bytes()),
            BodyRef::Named { sha256, .. } => lock(&self.0).get(sha256).cloned(),
        }
    }
}

impl BodyStore for MemoryBodyStore {
    fn put(&self, _: BodyKind, bytes: Bytes) -> io::Result<BodyRef> {
        let sha256 = Digest::of(&bytes).to_string();
        let mut kept = lock(&self.0);
        kept.entry(sha256.clone()).or_insert_with(|| bytes.to_vec());
        Ok(BodyRef::Named { sha256, bytes: bytes.len() as u64 })
    }

    fn is_short(&self, _: BodyKind, _: usize) -> bool {
        true
    }
}
