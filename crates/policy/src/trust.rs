//! Which project files a person trusts, pinned by their content.
//!
//! The agent can write every file of the workspace, so trust belongs to bytes, not to a path: a file that
//! changed by one byte is as untrusted as one never seen. The caller keeps this somewhere the agent cannot
//! write, and asks with the bytes it will use, not with a path that may change in between.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use base::Digest;
use serde::{Deserialize, Serialize};

/// Files a person said yes to.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TrustedFiles {
    files: BTreeMap<PathBuf, FilePin>,
}

/// What a trusted file held when it was trusted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilePin {
    /// Hexadecimal SHA-256 of its bytes.
    pub sha256: String,
    /// When it was trusted, in seconds since 1970.
    pub trusted_unix_secs: u64,
}

/// How a file stands.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "state", rename_all = "lowercase")]
pub enum FileTrust {
    /// Trusted, byte for byte: it may be a base.
    Trusted,
    /// Trusted once, changed since: it may only narrow.
    Changed {
        /// What was trusted.
        pinned: String,
        /// What is there now.
        found: String,
    },
    /// Never trusted: it may only narrow.
    Unknown,
}

impl TrustedFiles {
    /// Trusts the file at the absolute `path` with exactly these bytes, and returns their hash.
    pub fn pin(&mut self, path: impl Into<PathBuf>, bytes: &[u8], now_unix_secs: u64) -> String {
        let sha256 = Digest::of(bytes).to_string();
        self.files.insert(path.into(), FilePin { sha256: sha256.clone(), trusted_unix_secs: now_unix_secs });
        sha256
    }

    /// Ends the trust; whether there was any.
    pub fn untrust(&mut self, path: &Path) -> bool {
        self.files.remove(path).is_some()
    }

    /// How the file at the absolute `path` stands, given the bytes that will be used.
    pub fn check(&self, path: &Path, bytes: &[u8]) -> FileTrust {
        let Some(pin) = self.files.get(path) else { return FileTrust::Unknown };
        let found = Digest::of(bytes).to_string();
        if pin.sha256 == found { FileTrust::Trusted } else { FileTrust::Changed { pinned: pin.sha256.clone(), found } }
    }

    /// Every pin, by path.
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
    fn pins_survive_being_stored() {
        let mut trusted = TrustedFiles::default();
        trusted.pin("/a", b"x", 7);
        let stored = serde_json::to_string(&trusted).unwrap();
        assert_eq!(serde_json::from_str::<TrustedFiles>(&stored).unwrap(), trusted);
    }
}
