//! The store for request and response bodies, addressed by content.

use std::{collections::HashMap, io, sync::Mutex};

use base::{Digest, lock};
use bytes::Bytes;
use protocol::BodyRef;
use store::BodyKind;

/// Stores bodies under the SHA-256 of their bytes.
///
/// `put` writes to the page cache and does not wait for the disk. The gateway calls it on worker threads only for a
/// body that [is short](Self::is_short). Storing the same bytes again is not an error.
pub trait BodyStore: Send + Sync {
    /// Stores `bytes` and returns a reference to them.
    fn put(&self, kind: BodyKind, bytes: Bytes) -> io::Result<BodyRef>;

    /// Returns whether a body of this length is stored without a new file, faster than another thread is woken.
    fn is_short(&self, kind: BodyKind, bytes: usize) -> bool;
}

impl BodyStore for store::FileBodyStore {
    fn put(&self, kind: BodyKind, bytes: Bytes) -> io::Result<BodyRef> {
        // Only a short body becomes part of its record, and then bytes without another owner need not be copied.
        let owned = bytes.is_unique() && self.is_short(kind, bytes.len());
        let stored = if owned { Self::put(self, kind, Vec::from(bytes)) } else { Self::put(self, kind, &*bytes) };
        stored.map_err(io::Error::other)
    }

    fn is_short(&self, kind: BodyKind, bytes: usize) -> bool {
        Self::is_short(self, kind, bytes)
    }
}

/// Stores bodies in memory, for tests and ephemeral sessions.
#[derive(Debug, Default)]
pub struct MemoryBodyStore(Mutex<HashMap<String, Vec<u8>>>);

impl MemoryBodyStore {
    /// Returns the bytes behind a reference; `None` if they are not stored.
    pub fn get(&self, body: &BodyRef) -> Option<Vec<u8>> {
        match body {
            BodyRef::Inline { text } => Some(text.clone().into_bytes()),
            BodyRef::Stored { sha256, .. } => lock(&self.0).get(sha256).cloned(),
        }
    }
}

impl BodyStore for MemoryBodyStore {
    fn put(&self, _: BodyKind, bytes: Bytes) -> io::Result<BodyRef> {
        let sha256 = Digest::of(&bytes).to_string();
        let mut bodies = lock(&self.0);
        bodies.entry(sha256.clone()).or_insert_with(|| bytes.to_vec());
        Ok(BodyRef::Stored { sha256, bytes: bytes.len() as u64 })
    }

    fn is_short(&self, _: BodyKind, _: usize) -> bool {
        true
    }
}
