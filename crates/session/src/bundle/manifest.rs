//! The manifest of a bundle: the digest of every file.
//!
//! It detects damage, not forgery: an attacker can write matching digests.

use std::collections::BTreeMap;

use base::Digest;
use serde::{Deserialize, Serialize};

use crate::SessionError;

/// The name of the manifest in the bundle.
pub(super) const NAME: &str = "manifest.json";
/// Largest manifest.
pub(super) const MAX_BYTES: u64 = 64 << 20;
/// Most files in a bundle.
pub(super) const MAX_FILES: usize = 400_000;
const VERSION: u32 = 1;

/// The digests of all files in a bundle.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct BundleManifest {
    version: u32,
    /// The digest of each file except the manifest.
    files: BTreeMap<String, Digest>,
}

impl BundleManifest {
    pub(super) fn of(files: BTreeMap<String, Digest>) -> Self {
        Self { version: VERSION, files }
    }

    /// Fails unless `found` has exactly the files of the manifest, unchanged.
    pub(super) fn check(&self, found: &BTreeMap<String, Digest>) -> Result<(), SessionError> {
        if self.version != VERSION {
            let why = format!("version {} is not supported, only {VERSION}", self.version);
            return Err(SessionError::InvalidBundle(why));
        }
        for (name, digest) in &self.files {
            match found.get(name) {
                None => return Err(SessionError::InvalidBundle(format!("`{name}` is missing"))),
                Some(other) if other != digest => {
                    return Err(SessionError::InvalidBundle(format!(
                        "`{name}` does not match its digest in the manifest"
                    )));
                }
                Some(_) => {}
            }
        }
        match found.keys().find(|name| !self.files.contains_key(*name)) {
            Some(name) => Err(SessionError::InvalidBundle(format!("unexpected file `{name}`"))),
            None => Ok(()),
        }
    }
}
