//! Who the user inside is on the host.
//!
//! Made by root it is somebody who is nobody else there; made by anybody else it is they themselves.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;

use rustix::fs::{AtFlags, chownat};
use rustix::process::{Gid, Uid};

/// Host ids for sandboxes made by root: above every range that users, services or containers are given.
const UNUSED_HOST_ID: u32 = 1_900_000_000;

/// The ids on the host that the user inside has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HostUser {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Whether root makes the sandbox.
    pub(crate) privileged: bool,
}

impl HostUser {
    /// The user whose namespace it is, as seen from inside.
    pub(crate) const OF_A_NAMESPACE: Self = Self { uid: 0, gid: 0, privileged: true };

    /// Of sandboxes that this process has made.
    pub fn of_our_sandboxes() -> Self {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        if uid == 0 {
            Self { uid: UNUSED_HOST_ID, gid: UNUSED_HOST_ID, privileged: true }
        } else {
            Self { uid, gid, privileged: false }
        }
    }

    /// Whether the caller has to become somebody else to be this user.
    pub fn is_somebody_else(self) -> bool {
        self.privileged
    }

    /// Number of the user.
    pub fn uid(self) -> u32 {
        self.uid
    }

    /// Number of the group.
    pub fn gid(self) -> u32 {
        self.gid
    }

    /// Makes it the owner of what is at `path` under `directory`, a link itself too.
    pub(crate) fn take(self, directory: impl AsFd, path: &Path) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        Ok(chownat(directory, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Makes the calling thread this user, and that thread alone, for good: it has no capability any more, so it
    /// can do to a sandbox's files what a command inside can. A thread of its own, which then ends, is meant.
    pub fn take_over_thread(self) -> io::Result<()> {
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
