//! The namespaces of a rootless container engine: the user namespace of its user, with its own mounts.
//!
//! Such an engine does not see mounts that are made outside of its namespaces. The user who owns the namespaces may
//! enter them and mount there. So a child process enters, lays the plan out inside, reports, and ends.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{During, SetupFailure, SetupStep};
use crate::host_user::HostUser;
use crate::mount_layout::{self, LayoutMount};
use crate::plan::JailPlan;
use crate::sys::{self, CloneSide};
use crate::wire;

/// The two namespaces of an engine.
#[derive(Debug)]
pub struct EngineNamespaces {
    user: OwnedFd,
    mounts: OwnedFd,
}

impl EngineNamespaces {
    /// Returns the namespaces of the process `pid`; `None` when they are this process's own.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let named = |process: &str, kind: &str| format!("/proc/{process}/ns/{kind}");
        let process = pid.to_string();
        if std::fs::read_link(named(&process, "user"))? == std::fs::read_link(named("self", "user"))? {
            return Ok(None);
        }
        let open = |kind| rustix::fs::open(named(&process, kind), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        Ok(Some(Self { user: open("user")?, mounts: open("mnt")? }))
    }

    /// Returns the namespaces from descriptors received over a socket.
    pub(crate) fn received(fds: Vec<OwnedFd>) -> Option<Self> {
        let [user, mounts] = <[OwnedFd; 2]>::try_from(fds).ok()?;
        Some(Self { user, mounts })
    }

    /// Returns duplicates of the descriptors, to be sent over a socket.
    pub(crate) fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        [&self.user, &self.mounts].into_iter().map(OwnedFd::try_clone).collect()
    }

    /// Lays `plan` out at `directory`, a path as the engine sees it.
    pub(crate) fn lay_out(
        &self,
        directory: &Path,
        plan: &JailPlan,
    ) -> Result<(Vec<LayoutMount>, Option<OwnedFd>), SetupFailure> {
        let (ours, theirs) = wire::socket_pair().during(SetupStep::EnterEngine, "socket")?;
        match sys::clone_process(0, None).during(SetupStep::EnterEngine, "process")? {
            CloneSide::Child => {
                let owner = HostUser::NAMESPACE_ROOT;
                let laid_out = self.enter().and_then(|()| mount_layout::lay_out(directory, plan, owner, None));
                sys::exit_now(i32::from(reply(&theirs, laid_out).is_err()))
            }
            CloneSide::Parent { .. } => {
                drop(theirs);
                let received = wire::receive::<Result<Vec<LayoutMount>, SetupFailure>>(&ours);
                let received = received.and_then(|reply| reply.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()));
                let (mounts, mut fds) = received.during(SetupStep::EnterEngine, "reply")?;
                Ok((mounts?, fds.pop()))
            }
        }
    }

    fn enter(&self) -> Result<(), SetupFailure> {
        let enter = |space: &OwnedFd, kind| move_into_link_name_space(space.as_fd(), Some(kind));
        enter(&self.user, LinkNameSpaceType::User).during(SetupStep::EnterEngine, "users")?;
        enter(&self.mounts, LinkNameSpaceType::Mount).during(SetupStep::EnterEngine, "mounts")
    }
}

fn reply(socket: &OwnedFd, laid_out: Result<(Vec<LayoutMount>, Option<OwnedFd>), SetupFailure>) -> io::Result<()> {
    let (mounts, upper) = match laid_out {
        Ok((mounts, upper)) => (Ok(mounts), upper),
        Err(failure) => (Err(failure), None),
    };
    let fds: Vec<BorrowedFd<'_>> = upper.iter().map(AsFd::as_fd).collect();
    wire::send(socket, &mounts, &fds)
}
