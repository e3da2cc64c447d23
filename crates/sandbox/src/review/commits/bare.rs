//! A bare repository of our own, made file by file.
//!
//! Its configuration and references are ours. Of the session's files it gets only those whose names are names of objects:
//! no configuration, hook, index, alternate, graft or replacement.

use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::CommitsError;
use super::git::{GitCommand, GitPlace};
use super::host_repository::{HostRepository, ObjectFormat};
use super::repository_start::GIT;
use super::session_refs::SessionReferences;
use crate::review::content_store::ContentStore;
use crate::review::{SavedChanges, SavedEntry};

/// The most bytes of saved objects.
const MAX_OBJECT_BYTES: u64 = 2 << 30;
/// The name of the session's checked-out commit in the bare repository.
pub(super) const CHECKED_OUT: &str = "refs/viv/HEAD";

/// The beginning of the name of a repository with the session's objects.
pub(super) const SESSION_REPOSITORY: &str = "git-session.";
const VIEW_REPOSITORY: &str = "git-view.";

/// The repository. Dropping it removes its files.
#[derive(Debug)]
pub(crate) struct BareRepository {
    pub(crate) directory: PathBuf,
}

impl BareRepository {
    /// Makes a repository that has the host's objects only, to read what was imported.
    pub(crate) fn view(saved: &SavedChanges, host: &HostRepository) -> Result<Self, CommitsError> {
        Ok(Self::make(saved, VIEW_REPOSITORY, host)?)
    }

    /// Makes a repository that has the objects and branches of the session as well.
    pub(crate) fn of_session(
        saved: &SavedChanges,
        host: &HostRepository,
        references: &SessionReferences,
    ) -> Result<Self, CommitsError> {
        let this = Self::make(saved, SESSION_REPOSITORY, host)?;
        let mut packed = String::new();
        for tip in &references.tips {
            if let Some(branch) = tip.branch() {
                packed.push_str(&format!("{} refs/heads/{branch}\n", tip.id));
            }
        }
        packed.extend(references.head.iter().map(|id| format!("{id} {CHECKED_OUT}\n")));
        fs::write(this.directory.join("packed-refs"), packed)?;
        for pack in this.add_objects(saved, host.format)? {
            let checked =
                GitCommand::new(this.place(), [Path::new("index-pack").as_os_str(), pack.as_os_str()]).run()?;
            checked.checked()?;
        }
        Ok(this)
    }

    pub(crate) fn place(&self) -> GitPlace<'_> {
        GitPlace::Own(&self.directory)
    }

    fn make(saved: &SavedChanges, name: &str, host: &HostRepository) -> io::Result<Self> {
        let id = uuid::Uuid::new_v4().simple();
        let this = Self { directory: saved.directory().canonicalize()?.join(format!("{name}{id}")) };
        for directory in ["", "refs/heads", "objects/info", "objects/pack"] {
            DirBuilder::new().recursive(true).mode(0o700).create(this.directory.join(directory))?;
        }
        let config = match host.format {
            ObjectFormat::Sha1 => "[core]\n\trepositoryformatversion = 0\n\tbare = true\n",
            ObjectFormat::Sha256 => {
                "[core]\n\trepositoryformatversion = 1\n\tbare = true\n[extensions]\n\tobjectFormat = sha256\n"
            }
        };
        let alternates = [host.objects().as_os_str().as_bytes(), b"\n"].concat();
        fs::write(this.directory.join("config"), config)?;
        fs::write(this.directory.join("HEAD"), "ref: refs/heads/none\n")?;
        fs::write(this.directory.join("objects/info/alternates"), alternates)?;
        if let Some(shallow) = &host.shallow {
            fs::write(this.directory.join("shallow"), shallow)?;
        }
        Ok(this)
    }

    /// Adds the session's objects; returns its packs, which have no index yet.
    fn add_objects(&self, saved: &SavedChanges, format: ObjectFormat) -> Result<Vec<PathBuf>, CommitsError> {
        let contents = ContentStore::of(saved.directory());
        let (mut packs, mut bytes) = (Vec::new(), 0_u64);
        for record in &saved.manifest.changes {
            let Some(SavedEntry::Regular { sha256, size, .. }) = &record.change.entry else { continue };
            let Some(name) = object_name(&record.change.path, format) else { continue };
            bytes = bytes.saturating_add(*size);
            if bytes > MAX_OBJECT_BYTES {
                return Err(CommitsError::TooLarge { bytes, limit: MAX_OBJECT_BYTES });
            }
            let path = self.directory.join("objects").join(name);
            if let Some(parent) = path.parent() {
                DirBuilder::new().recursive(true).mode(0o700).create(parent)?;
            }
            contents.link(sha256, &path)?;
            if path.extension().is_some() {
                packs.push(path);
            }
        }
        Ok(packs)
    }
}

impl Drop for BareRepository {
    fn drop(&mut self) {
        // The directory of saved changes is removed with the session in any case.
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// Returns the path below `objects` of a saved file that is a loose object or a pack; `None` for every other file.
fn object_name(path: &Path, format: ObjectFormat) -> Option<&Path> {
    let name = path.strip_prefix(GIT).ok()?.strip_prefix("objects").ok()?;
    let is_hex = |text: &str| text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    let mut parts = name.iter().map(|part| part.to_str());
    let (Some(Some(directory)), Some(Some(file)), None) = (parts.next(), parts.next(), parts.next()) else {
        return None;
    };
    let is_loose = directory.len() == 2 && file.len() == format.digits() - 2 && is_hex(directory) && is_hex(file);
    let pack = file.strip_prefix("pack-").and_then(|file| file.strip_suffix(".pack"));
    // Git names a pack by a digest, whose length does not depend on the format in all versions.
    let is_pack = directory == "pack" && pack.is_some_and(|pack| matches!(pack.len(), 40 | 64) && is_hex(pack));
    (is_loose || is_pack).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_names_of_objects_are_taken_from_a_session() {
        let (loose, hex) = (format!(".git/objects/ab/{}", "0f".repeat(19)), "0f".repeat(20));
        for good in [loose.clone(), format!(".git/objects/pack/pack-{hex}.pack")] {
            assert!(object_name(Path::new(&good), ObjectFormat::Sha1).is_some(), "{good}");
        }
        for bad in [
            ".git/objects/info/alternates".to_owned(),
            ".git/objects/info/commit-graph".to_owned(),
            ".git/objects/pack/multi-pack-index".to_owned(),
            format!(".git/objects/pack/pack-{hex}.idx"),
            format!(".git/objects/pack/pack-{hex}.keep"),
            format!(".git/objects/pack/pack-{hex}.pack/x"),
            format!(".git/objects/AB/{}", "0f".repeat(19)),
            format!(".git/objects/ab/{}", "0f".repeat(18)),
            format!(".git/{loose}"),
            ".git/config".to_owned(),
            "objects/ab/cd".to_owned(),
        ] {
            assert!(object_name(Path::new(&bad), ObjectFormat::Sha1).is_none(), "{bad}");
        }
    }
}
