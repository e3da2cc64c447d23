//! Where a bench keeps what it needs while it runs.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder for one run; dropped, it is gone.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// A folder that holds these. Others cannot write to them: a data directory they could write to is refused.
    pub(crate) fn make(names: &[&str]) -> Result<Self> {
        // On the disk and not in memory, or nothing would ever wait for it.
        let path = crate::workspace::target_directory()?.join(format!("bench-{}", std::process::id()));
        for name in names {
            let folder = path.join(name);
            std::fs::create_dir_all(&folder).context("cannot make a folder for the bench")?;
            let private = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(&folder, private).context("cannot make a folder of the bench private")?;
        }
        Ok(Self(path))
    }

    /// An empty folder in it, which others cannot write to either.
    pub(crate) fn fresh(&self, name: &str) -> Result<PathBuf> {
        use std::os::unix::fs::DirBuilderExt as _;

        let path = self.0.join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path).context("cannot empty a folder of the bench")?;
        }
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.context("cannot make a folder for the bench")?;
        Ok(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // What is left over would only be untidy.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
