//! What a bundle holds, and the hash of every file in it: one that was changed or cut is known by it.
//!
//! It guards against what happens to files. Whoever means to can write other hashes too.

use std::collections::BTreeMap;

use base::Digest;
use serde::{Deserialize, Serialize};

use crate::SessionError;

/// Its name in the bundle.
pub(super) const NAME: &str = "manifest.json";
/// A manifest is no longer.
pub(super) const BYTES: u64 = 64 << 20;
/// No bundle has more files.
pub(super) const FILES: usize = 400_000;
const VERSION: u32 = 1;

/// What a bundle holds.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Manifest {
    version: u32,
    /// The SHA-256 of each file but this one.
    files: BTreeMap<String, Digest>,
}

impl Manifest {
    pub(super) fn of(files: BTreeMap<String, Digest>) -> Self {
        Self { version: VERSION, files }
    }

    /// Fails unless `found` is what was written.
    pub(super) fn check(&self, found: &BTreeMap<String, Digest>) -> Result<(), SessionError> {
        if self.version != VERSION {
            let why = format!("it is of version {}, and this program reads {VERSION}", self.version);
            return Err(SessionError::InvalidBundle(why));
        }
        for (name, digest) in &self.files {
            match found.get(name) {
                None => return Err(SessionError::InvalidBundle(format!("`{name}` is missing"))),
                Some(other) if other != digest => {
                    return Err(SessionError::InvalidBundle(format!("`{name}` was changed after it was written")));
                }
                Some(_) => {}
            }
        }
        match found.keys().find(|name| !self.files.contains_key(*name)) {
            Some(name) => Err(SessionError::InvalidBundle(format!("`{name}` does not belong in it"))),
            None => Ok(()),
        }
    }
}
