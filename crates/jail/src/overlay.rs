//! The overlay file system of a workspace: a mask layer, the host's directory, and a layer that takes the changes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat};

use crate::host_user::HostUser;
use crate::mask::{self, MaskEntries};
use crate::private_root::{attach, new_fs};
use crate::sys::{self, attr};

/// Builds the layers of a workspace.
pub(crate) struct OverlayBuilder<'a> {
    /// The size-limited file system that takes the changes.
    pub(crate) scratch: &'a OwnedFd,
    /// The path at which it is attached: an overlay takes its layers by path.
    pub(crate) at: &'a str,
    /// The directory in the scratch space that holds the layers; empty for the scratch space itself.
    pub(crate) folder: &'a str,
    /// The owner of the layers; `None` when that is the calling user.
    pub(crate) owner: Option<HostUser>,
}

impl OverlayBuilder<'_> {
    /// Mounts the layers `mask : workspace` below an upper layer in the scratch space. Returns the merged tree and the
    /// upper layer.
    pub(crate) fn overlay(&self, lower: &OwnedFd, entries: MaskEntries<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
        let layers = self.lower_layers(lower, entries)?;
        for name in ["upper", "work"] {
            mkdirat(self.scratch, self.name(name), Mode::from_raw_mode(0o755))?;
        }
        // The top directory of a merged tree has the attributes of the upper layer.
        let lower_stat = rustix::fs::statat(self.scratch, self.name("lower"), AtFlags::empty())?;
        rustix::fs::chmodat(
            self.scratch,
            self.name("upper"),
            Mode::from_raw_mode(lower_stat.st_mode & 0o777),
            AtFlags::empty(),
        )?;
        for name in ["upper", "work"] {
            self.set_owner(&self.name(name))?;
        }
        let (upper, work) = (self.path("upper"), self.path("work"));
        let merged = merge(&[("lowerdir", &layers), ("upperdir", &upper), ("workdir", &work)])?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok((merged, openat(self.scratch, self.name("upper"), flags, Mode::empty())?))
    }

    /// Mounts the layers `mask : workspace` without an upper layer, so that nothing can be written.
    pub(crate) fn masked(&self, lower: &OwnedFd, entries: MaskEntries<'_>) -> io::Result<OwnedFd> {
        let layers = self.lower_layers(lower, entries)?;
        merge(&[("lowerdir", &layers)])
    }

    /// Attaches the lower layers while the overlay is mounted; returns them as an overlay option.
    fn lower_layers(&self, lower: &OwnedFd, entries: MaskEntries<'_>) -> io::Result<String> {
        for name in ["mask", "lower"] {
            mkdirat(self.scratch, self.name(name), Mode::from_raw_mode(0o755))?;
        }
        attach(lower, self.scratch, self.name("lower"))?;
        let mask = openat(self.scratch, self.name("mask"), OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        mask::fill(&mask, lower, entries)?;
        for path in entries.paths() {
            for parent in path.ancestors().skip(1) {
                self.set_owner(&self.name("mask").join(parent))?;
            }
        }
        for cover in entries.covers {
            self.set_owner(&self.name("mask").join(&cover.path))?;
        }
        let lower = self.path("lower");
        Ok(if entries.is_empty() { lower } else { format!("{}:{lower}", self.path("mask")) })
    }

    /// Returns the path of a layer, relative to the scratch space.
    fn name(&self, layer: &str) -> PathBuf {
        Path::new(self.folder).join(layer)
    }

    /// Returns the absolute path of a layer.
    fn path(&self, layer: &str) -> String {
        Path::new(self.at).join(self.name(layer)).to_string_lossy().into_owned()
    }

    /// Gives a directory of a layer to the sandbox user. A merged directory has the owner of its topmost layer.
    fn set_owner(&self, path: &Path) -> io::Result<()> {
        self.owner.map_or(Ok(()), |owner| owner.chown(self.scratch, path))
    }
}

/// Mounts an overlay. It clones its layers, so the directory at which the host's layer is attached can go afterwards.
fn merge(options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let options: Vec<_> = options.iter().copied().chain([("source", "workspace")]).collect();
    let merged = new_fs("overlay", &["userxattr"], &options)?;
    sys::mount_setattr(merged.as_fd(), attr::NOSUID | attr::NODEV, false, None)?;
    Ok(merged)
}
