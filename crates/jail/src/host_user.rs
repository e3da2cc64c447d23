//! The host user that the sandbox user is mapped to.
//!
//! For sandboxes that root makes, its ids are unused on the host. For any other user, it is that user.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, chownat};
use rustix::process::{Gid, Uid};

/// The host id for sandboxes made by root: above every range that is assigned to users, services or containers.
const UNUSED_HOST_ID: u32 = 1_900_000_000;

/// The ids of the sandbox user on the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether root makes the sandbox.
    pub(crate) privileged: bool,
}

impl HostUser {
    /// The root user of a user namespace, as seen from inside.
    pub(crate) const NAMESPACE_ROOT: Self = Self { uid: 0, gid: 0, privileged: true };

    /// Returns the host user of sandboxes that this process makes.
    pub fn for_sandboxes() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if uid == 0 {
            Self { uid: UNUSED_HOST_ID, gid: UNUSED_HOST_ID, privileged: true }
        } else {
            Self { uid, gid, privileged: false }
        }
    }

    /// Returns whether this user is not the calling user.
    pub fn differs_from_caller(self) -> bool {
        self.privileged
    }

    /// Returns the user id.
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// Returns the group id.
    pub fn gid(self) -> u32 {
        self.gid
    }

    /// Makes this user the owner of `path` under `directory`, without following a link.
    pub(crate) fn chown(self, directory: impl AsFd, path: &Path) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        Ok(chownat(directory, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Switches only the calling thread to this user, permanently and without capabilities. The thread can then do to a
    /// sandbox's files exactly what a command inside can. Call it in a new thread that ends afterwards.
    pub fn switch_thread(self) -> io::Result<()> {
        if !self.privileged {
            return Ok(());
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        rustix::thread::set_thread_groups(&[])?;
        rustix::thread::set_thread_res_gid(gid, gid, gid)?;
        rustix::thread::set_thread_res_uid(uid, uid, uid)?;
        Ok(())
    }
}
