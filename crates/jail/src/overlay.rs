//! The overlay file system of a workspace: a mask layer, the host's directory, and a layer that takes the changes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

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
    /// The owner of the layers; `None` when that is the calling user.
    pub(crate) owner: Option<HostUser>,
}

impl OverlayBuilder<'_> {
    /// Mounts the layers `mask : workspace` below an upper layer in the scratch space. Returns the merged tree and the
    /// upper layer.
    pub(crate) fn overlay(&self, lower: &OwnedFd, entries: MaskEntries<'_>) -> io::Result<(OwnedFd, OwnedFd)> {
        let layers = self.lower_layers(lower, entries)?;
        for name in ["upper", "work"] {
            mkdirat(self.scratch, name, Mode::from_raw_mode(0o755))?;
        }
        // The top directory of a merged tree has the attributes of the upper layer.
        let lower_stat = rustix::fs::statat(self.scratch, "lower", AtFlags::empty())?;
        rustix::fs::chmodat(self.scratch, "upper", Mode::from_raw_mode(lower_stat.st_mode & 0o777), AtFlags::empty())?;
        for name in ["upper", "work"] {
            self.set_owner(Path::new(name))?;
        }
        let (upper, work) = (format!("{}/upper", self.at), format!("{}/work", self.at));
        let merged = merge(&[("lowerdir", &layers), ("upperdir", &upper), ("workdir", &work)])?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok((merged, openat(self.scratch, "upper", flags, Mode::empty())?))
    }

    /// Mounts the layers `mask : workspace` without an upper layer, so that nothing can be written.
    pub(crate) fn masked(&self, lower: &OwnedFd, entries: MaskEntries<'_>) -> io::Result<OwnedFd> {
        let layers = self.lower_layers(lower, entries)?;
        merge(&[("lowerdir", &layers)])
    }

    /// Attaches the lower layers while the overlay is mounted; returns them as an overlay option.
    fn lower_layers(&self, lower: &OwnedFd, entries: MaskEntries<'_>) -> io::Result<String> {
        for name in ["mask", "lower"] {
            mkdirat(self.scratch, name, Mode::from_raw_mode(0o755))?;
        }
        attach(lower, self.scratch, "lower")?;
        let mask = openat(self.scratch, "mask", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        mask::fill(&mask, lower, entries)?;
        for path in entries.paths() {
            for parent in path.ancestors().skip(1) {
                self.set_owner(&Path::new("mask").join(parent))?;
            }
        }
        for cover in entries.covers {
            self.set_owner(&Path::new("mask").join(&cover.path))?;
        }
        let lower = format!("{}/lower", self.at);
        Ok(if entries.is_empty() { lower } else { format!("{}/mask:{lower}", self.at) })
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
