//! The temporary folder of one bench run.

use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

/// A folder for one run. Dropping it removes the folder.
pub(crate) struct Folder(PathBuf);

impl Folder {
    /// Creates a folder with one private subfolder for each of `names`. `viv` refuses a data directory that others can
    /// write to.
    pub(crate) fn make(names: &[&str]) -> Result<Self> {
        // On the disk: on a memory file system, fsync would cost nothing.
        let path = crate::workspace::target_directory()?.join(format!("bench-{}", std::process::id()));
        for name in names {
            let folder = path.join(name);
            std::fs::create_dir_all(&folder).context("cannot create a folder for the bench")?;
            let private = std::fs::Permissions::from_mode(0o700);
            std::fs::set_permissions(&folder, private).context("cannot make a folder of the bench private")?;
        }
        Ok(Self(path))
    }

    /// Creates an empty private subfolder.
    pub(crate) fn fresh(&self, name: &str) -> Result<PathBuf> {
        use std::os::unix::fs::DirBuilderExt as _;

        let path = self.0.join(name);
        if path.exists() {
            std::fs::remove_dir_all(&path).context("cannot empty a folder of the bench")?;
        }
        let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(&path);
        made.context("cannot create a folder for the bench")?;
        Ok(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A leftover folder does no harm.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}
