//! `installed.json` beside `node_modules`: the installed packages with their hashes.

use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// Name of the manifest file.
const FILE: &str = "installed.json";
/// Lock file of npm.
const LOCK: &str = "package-lock.json";

/// Manifest of one installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InstallManifest {
    pub(super) name: String,
    pub(super) package: String,
    pub(super) version: String,
    /// Hash of the package's archive, verified by npm.
    pub(super) integrity: String,
    pub(super) installed_at: String,
    /// All installed packages, including this one.
    pub(super) packages: Vec<InstalledPackage>,
}

/// One package of an installation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct InstalledPackage {
    /// Folder of the package.
    pub(super) path: String,
    pub(super) version: String,
    pub(super) integrity: String,
}

impl InstallManifest {
    /// Builds the manifest from npm's lock file in `folder`; `None` if a package has no hash.
    pub(super) fn from_lock(folder: &Path, name: &str, package: &str, installed_at: String) -> Option<Self> {
        let lock = std::fs::read(folder.join(LOCK)).ok()?;
        let lock: Value = serde_json::from_slice(&lock).ok()?;
        let listed = lock.get("packages")?.as_object()?;
        // The lock file also lists packages for other systems, which were not installed.
        let packages: Vec<InstalledPackage> = (listed.iter())
            .filter(|(path, _)| !path.is_empty() && folder.join(path).is_dir())
            .map(|(path, entry)| {
                let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
                InstalledPackage { path: path.clone(), version: text("version"), integrity: text("integrity") }
            })
            .collect();
        let own = packages.iter().find(|part| part.path == format!("node_modules/{package}"))?;
        if packages.iter().any(|part| part.integrity.is_empty()) {
            return None;
        }
        let (version, integrity) = (own.version.clone(), own.integrity.clone());
        Some(Self { name: name.to_owned(), package: package.to_owned(), version, integrity, installed_at, packages })
    }

    /// Reads the manifest in `folder`.
    pub(super) fn read(folder: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(folder.join(FILE)).ok()?).ok()
    }

    /// Writes the manifest into `folder`.
    pub(super) fn write(&self, folder: &Path) -> std::io::Result<()> {
        let text = serde_json::to_string_pretty(self).map_err(std::io::Error::other)?;
        std::fs::write(folder.join(FILE), text + "\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn folder(lock: &str) -> tempfile::TempDir {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join(LOCK), lock).unwrap();
        std::fs::create_dir_all(folder.path().join("node_modules/@x/y")).unwrap();
        folder
    }

    #[test]
    fn the_manifest_lists_installed_packages_with_their_hash() {
        let folder = folder(
            r#"{"packages":{"":{"dependencies":{}},
                "node_modules/@x/y":{"version":"1.2.3","integrity":"sha512-a"},
                "node_modules/@x/y-darwin":{"version":"1.2.3","integrity":"sha512-b"}}}"#,
        );
        let manifest = InstallManifest::from_lock(folder.path(), "y", "@x/y", "now".into()).unwrap();
        assert_eq!((&*manifest.version, &*manifest.integrity, manifest.packages.len()), ("1.2.3", "sha512-a", 1));
        manifest.write(folder.path()).unwrap();
        assert_eq!(InstallManifest::read(folder.path()), Some(manifest));
    }

    #[test]
    fn a_package_without_a_hash_is_rejected() {
        let unhashed = folder(r#"{"packages":{"node_modules/@x/y":{"version":"1.2.3"}}}"#);
        assert_eq!(InstallManifest::from_lock(unhashed.path(), "y", "@x/y", "now".into()), None);
        assert_eq!(InstallManifest::from_lock(folder("{}").path(), "y", "@x/y", "now".into()), None);
    }
}
