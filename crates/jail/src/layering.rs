//! An overlay workspace: what hides, what is the host's, and what takes the changes.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Mode, OFlags, mkdirat, openat};

use crate::host_user::HostUser;
use crate::mask;
use crate::root::{attach, new_fs};
use crate::sys::{self, attr};

/// Where layers are put together.
pub(crate) struct Layering<'a> {
    /// The size-limited file system that takes the changes.
    pub(crate) scratch: &'a OwnedFd,
    /// Where that is attached: an overlay is told its layers by path.
    pub(crate) at: &'a str,
    /// Who owns the layers, where that is not whoever makes them.
    pub(crate) owner: Option<HostUser>,
}

impl Layering<'_> {
    /// `mask : workspace` below, a directory of the scratch space above: the merged tree and that directory.
    pub(crate) fn overlay(&self, lower: &OwnedFd, masks: &[PathBuf]) -> io::Result<(OwnedFd, OwnedFd)> {
        let layers = self.lower_layers(lower, masks)?;
        for name in ["upper", "work"] {
            mkdirat(self.scratch, name, Mode::from_raw_mode(0o755))?;
        }
        // The top of a merged tree shows the upper layer's attributes.
        let shown = rustix::fs::statat(self.scratch, "lower", AtFlags::empty())?;
        rustix::fs::chmodat(self.scratch, "upper", Mode::from_raw_mode(shown.st_mode & 0o777), AtFlags::empty())?;
        for name in ["upper", "work"] {
            self.give(Path::new(name))?;
        }
        let (upper, work) = (format!("{}/upper", self.at), format!("{}/work", self.at));
        let merged = merge(&[("lowerdir", &layers), ("upperdir", &upper), ("workdir", &work)])?;
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok((merged, openat(self.scratch, "upper", flags, Mode::empty())?))
    }

    /// `mask : workspace` with nothing above: it cannot be written.
    pub(crate) fn masked(&self, lower: &OwnedFd, masks: &[PathBuf]) -> io::Result<OwnedFd> {
        let layers = self.lower_layers(lower, masks)?;
        merge(&[("lowerdir", &layers)])
    }

    /// Attaches the layers below for the moment of the merge.
    fn lower_layers(&self, lower: &OwnedFd, masks: &[PathBuf]) -> io::Result<String> {
        for name in ["mask", "lower"] {
            mkdirat(self.scratch, name, Mode::from_raw_mode(0o755))?;
        }
        attach(lower, self.scratch, "lower")?;
        let mask = openat(self.scratch, "mask", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        mask::hide(&mask, lower, masks)?;
        for hidden in masks {
            for parent in hidden.ancestors().skip(1) {
                self.give(&Path::new("mask").join(parent))?;
            }
        }
        let lower = format!("{}/lower", self.at);
        Ok(if masks.is_empty() { lower } else { format!("{}/mask:{lower}", self.at) })
    }

    /// Gives a directory of a layer to the user inside: a merged tree shows the owner of its topmost layer.
    fn give(&self, path: &Path) -> io::Result<()> {
        self.owner.map_or(Ok(()), |owner| owner.take(self.scratch, path))
    }
}

/// Overlay clones its layers when it is made; the place the host's one is attached at goes with the rest.
fn merge(options: &[(&str, &str)]) -> io::Result<OwnedFd> {
    let options: Vec<_> = options.iter().copied().chain([("source", "workspace")]).collect();
    let merged = new_fs("overlay", &["userxattr"], &options)?;
    sys::mount_setattr(merged.as_fd(), attr::NOSUID | attr::NODEV, false, None)?;
    Ok(merged)
}
