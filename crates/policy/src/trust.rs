//! Project files that a person trusts, pinned by digest.
//!
//! The agent can write every file of the workspace, so a person trusts the content of a file and not its path. A file
//! that changed by one byte is untrusted. The caller stores this list where the agent cannot write, and checks the
//! bytes that it is going to use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::Digest;
use serde::{Deserialize, Serialize};

/// The files that a person trusts.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedFiles {
    files: BTreeMap<PathBuf, FilePin>,
}

/// The content of a trusted file at the time when it was trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePin {
    /// Hexadecimal SHA-256 of its bytes.
    pub sha256: String,
    /// The time when it was trusted, in seconds since 1970.
    pub trusted_unix_secs: u64,
}

/// Whether a file is trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum FileTrust {
    /// Trusted, with this content: it can be a base layer.
    Trusted,
    /// Trusted before, and changed since: it can only be a narrowing layer.
    Changed {
        /// Digest of the trusted content.
        pinned: String,
        /// Digest of the current content.
        found: String,
    },
    /// Never trusted: it can only be a narrowing layer.
    Unknown,
}

impl TrustedFiles {
    /// Trusts the file at the absolute `path` with these bytes, and returns their digest.
    pub fn pin(&mut self, path: impl Into<PathBuf>, bytes: &[u8], now_unix_secs: u64) -> String {
        let sha256 = Digest::of(bytes).to_string();
        self.files.insert(path.into(), FilePin { sha256: sha256.clone(), trusted_unix_secs: now_unix_secs });
        sha256
    }

    /// Removes the trust of a file. Returns whether it was trusted.
    pub fn untrust(&mut self, path: &Path) -> bool {
        self.files.remove(path).is_some()
    }

    /// Returns whether the file at the absolute `path` is trusted with these bytes.
    pub fn check(&self, path: &Path, bytes: &[u8]) -> FileTrust {
        let Some(pin) = self.files.get(path) else { return FileTrust::Unknown };
        let found = Digest::of(bytes).to_string();
        if pin.sha256 == found { FileTrust::Trusted } else { FileTrust::Changed { pinned: pin.sha256.clone(), found } }
    }

    /// Returns all pins by path.
    pub fn iter(&self) -> impl Iterator<Item = (&Path, &FilePin)> {
        self.files.iter().map(|(path, pin)| (path.as_path(), pin))
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{FileTrust, TrustedFiles};

    #[test]
    fn trust_ends_with_the_first_changed_byte() {
        let path = Path::new("/home/you/project/sandbox.policy.yaml");
        let mut trusted = TrustedFiles::default();
        assert_eq!(trusted.check(path, b"version: 1\n"), FileTrust::Unknown);
        let hash = trusted.pin(path, b"version: 1\n", 1_700_000_000);
        assert_eq!(hash, "09bfcc6a14b83e2192b8673677725c84883ee9cd0c70e45c9ec09daa8f2b2847");
        assert_eq!(trusted.check(path, b"version: 1\n"), FileTrust::Trusted);
        assert!(matches!(trusted.check(path, b"version: 1 \n"), FileTrust::Changed { pinned, .. } if pinned == hash));
        assert_eq!(trusted.check(Path::new("/elsewhere/sandbox.policy.yaml"), b"version: 1\n"), FileTrust::Unknown);
        assert!(trusted.untrust(path));
        assert_eq!(trusted.check(path, b"version: 1\n"), FileTrust::Unknown);
    }

    #[test]
    fn pins_round_trip_through_json() {
        let mut trusted = TrustedFiles::default();
        trusted.pin("/a", b"x", 7);
        let stored = serde_json::to_string(&trusted).unwrap();
        assert_eq!(serde_json::from_str::<TrustedFiles>(&stored).unwrap(), trusted);
    }
}
