//! Where the engine of an ordinary user lives: in a user namespace of that user's, with mounts of its own.
//!
//! It finds no mount that is made outside. But whoever owns the namespace may enter it, and can do there what root
//! does elsewhere: so a plan for such an engine is laid out from inside, by a process that never comes back.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use crate::error::{During, Failure, SetupStep};
use crate::host_user::HostUser;
use crate::plan::JailPlan;
use crate::stage::{self, LayoutMount};
use crate::sys::{self, Side};
use crate::wire;

/// The two namespaces of an engine.
#[derive(Debug)]
pub struct EngineNamespaces {
    user: OwnedFd,
    mounts: OwnedFd,
}

impl EngineNamespaces {
    /// Those of the process `pid`; none when it lives where we do.
    pub fn of(pid: i32) -> io::Result<Option<Self>> {
        let named = |process: &str, kind: &str| format!("/proc/{process}/ns/{kind}");
        let process = pid.to_string();
        if std::fs::read_link(named(&process, "user"))? == std::fs::read_link(named("self", "user"))? {
            return Ok(None);
        }
        let open = |kind| rustix::fs::open(named(&process, kind), OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
        Ok(Some(Self { user: open("user")?, mounts: open("mnt")? }))
    }

    /// As they came over a socket.
    pub(crate) fn received(fds: Vec<OwnedFd>) -> Option<Self> {
        let [user, mounts] = <[OwnedFd; 2]>::try_from(fds).ok()?;
        Some(Self { user, mounts })
    }

    /// To be sent over a socket.
    pub(crate) fn duplicates(&self) -> io::Result<Vec<OwnedFd>> {
        [&self.user, &self.mounts].into_iter().map(OwnedFd::try_clone).collect()
    }

    /// Lays `plan` out at `place` as it is seen from there.
    pub(crate) fn lay_out(
        &self,
        place: &Path,
        plan: &JailPlan,
    ) -> Result<(Vec<LayoutMount>, Option<OwnedFd>), Failure> {
        let (ours, theirs) = wire::pair().during(SetupStep::EnterEngine, "socket")?;
        match sys::clone_process(0, None).during(SetupStep::EnterEngine, "process")? {
            Side::Child => {
                let laid = self.enter().and_then(|()| stage::lay_out(place, plan, HostUser::OF_A_NAMESPACE, None));
                sys::exit_now(i32::from(answer(&theirs, laid).is_err()))
            }
            Side::Parent { .. } => {
                drop(theirs);
                let heard = wire::receive::<Result<Vec<LayoutMount>, Failure>>(&ours);
                let heard = heard.and_then(|heard| heard.ok_or_else(|| io::ErrorKind::UnexpectedEof.into()));
                let (mounts, mut fds) = heard.during(SetupStep::EnterEngine, "answer")?;
                Ok((mounts?, fds.pop()))
            }
        }
    }

    fn enter(&self) -> Result<(), Failure> {
        let enter = |space: &OwnedFd, kind| move_into_link_name_space(space.as_fd(), Some(kind));
        enter(&self.user, LinkNameSpaceType::User).during(SetupStep::EnterEngine, "users")?;
        enter(&self.mounts, LinkNameSpaceType::Mount).during(SetupStep::EnterEngine, "mounts")
    }
}

fn answer(socket: &OwnedFd, laid: Result<(Vec<LayoutMount>, Option<OwnedFd>), Failure>) -> io::Result<()> {
    let (mounts, upper) = match laid {
        Ok((mounts, upper)) => (Ok(mounts), upper),
        Err(failure) => (Err(failure), None),
    };
    let fds: Vec<BorrowedFd<'_>> = upper.iter().map(AsFd::as_fd).collect();
    wire::send(socket, &mounts, &fds)
}
