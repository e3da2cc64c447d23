//! A sandbox that is told last what it is for.
//!
//! Namespaces, /proc, devices and listeners are the same in every sandbox and take most of its start, so they
//! can be made while nobody waits. It is used once, and nothing of a plan is in it before it is furnished.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, Signal};
use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::error::{During, Failure, SetupStep};
use crate::host_user::HostUser;
use crate::init::{self, HouseRules, InitReport, Stay};
use crate::mark::Mark;
use crate::plan::{INSIDE_GID, INSIDE_UID, JailPlan};
use crate::seccomp::Filters;
use crate::setup::{self, Finished, Given};
use crate::source::Sources;
use crate::sys::{self, Disposition, Side};
use crate::wire;

/// Namespaces that a process can only be born into. It makes the others itself: the one of the network takes the kernel
/// longest of all, and its parent need not wait for it.
const NAMESPACES: i32 = libc::CLONE_NEWUSER | libc::CLONE_NEWPID;

impl HostUser {
    /// Maps the one user and group inside to ours.
    pub(crate) fn map(self, pid: Pid) -> Result<(), Failure> {
        if !self.privileged {
            write_proc(pid, "setgroups", "deny").during(SetupStep::MapIds, "setgroups")?;
        }
        write_proc(pid, "uid_map", &format!("{INSIDE_UID} {} 1", self.uid)).during(SetupStep::MapIds, "uid_map")?;
        write_proc(pid, "gid_map", &format!("{INSIDE_GID} {} 1", self.gid)).during(SetupStep::MapIds, "gid_map")
    }
}

/// Writes a file of another process's directory in /proc.
pub(crate) fn write_proc(pid: Pid, file: &str, content: &str) -> io::Result<()> {
    let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
    std::fs::OpenOptions::new().write(true).open(path)?.write_all(content.as_bytes())
}

/// What a blank is told, once. The host's control socket comes with it, then the `tasks` files; the mounts
/// follow in messages of their own, as many as it takes.
#[derive(Debug, Serialize, Deserialize)]
struct Furnishing {
    plan: JailPlan,
    tasks: usize,
    /// How many mounts follow; without root there are none, and they are opened inside.
    mounts: Option<usize>,
}

/// The spawner's handle to a process that waits for its plan. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Blank {
    door: OwnedFd,
    pidfd: OwnedFd,
    pid: Pid,
}

impl Blank {
    /// Clones it; it goes on by itself from there. With `into`, it is born in that v2 cgroup.
    pub(crate) fn clone(
        ids: HostUser,
        stay: Stay,
        filters: &Filters,
        into: Option<BorrowedFd<'_>>,
    ) -> Result<Self, Failure> {
        let (go, tell) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).during(SetupStep::CloneNamespaces, "")?;
        let (door, inside) = wire::pair().during(SetupStep::CloneNamespaces, "")?;
        match sys::clone_process(NAMESPACES.cast_unsigned().into(), into).during(SetupStep::CloneNamespaces, "")? {
            Side::Child => {
                drop((tell, door));
                sys::exit_now(live(go, inside, ids.privileged, stay, filters))
            }
            Side::Parent { pidfd, pid } => {
                let this = Self { door, pidfd, pid };
                if stay == Stay::OneCommand {
                    set_aside(pid);
                }
                ids.map(pid)?;
                rustix::io::write(&tell, b"g").during(SetupStep::MapIds, "go")?;
                Ok(this)
            }
        }
    }

    /// Says what it is for. It reports on `control` from now on; its pidfd and number are the host's.
    pub(crate) fn furnish(
        self,
        plan: &JailPlan,
        control: &OwnedFd,
        tasks: &[OwnedFd],
        sources: Option<&Sources>,
    ) -> Result<(OwnedFd, i32), Failure> {
        let mounts: Option<Vec<_>> = sources.map(|sources| sources.mounts().collect());
        let furnishing = Furnishing { plan: plan.clone(), tasks: tasks.len(), mounts: mounts.as_ref().map(Vec::len) };
        let first: Vec<_> = std::iter::once(control).chain(tasks).map(AsFd::as_fd).collect();
        wire::send(&self.door, &furnishing, &first).during(SetupStep::CloneNamespaces, "plan")?;
        for some in mounts.unwrap_or_default().chunks(wire::MAX_FDS) {
            wire::send(&self.door, &(), some).during(SetupStep::CloneNamespaces, "mounts")?;
        }
        Ok((self.pidfd, self.pid.as_raw_nonzero().get()))
    }
}

/// The life of the new process: prepare, wait, finish, report, serve.
fn live(go: OwnedFd, door: OwnedFd, privileged: bool, stay: Stay, filters: &Filters) -> i32 {
    sys::set_signal(libc::SIGCHLD, Disposition::Default);
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if stay == Stay::OneCommand {
        // Made in the host itself, this is a copy of it: what it was started with would be in /proc/1/cmdline.
        if sys::forget_arguments().is_err() {
            return 1;
        }
    }
    let prepared = setup::prepare(go, privileged);
    // Nobody wanted it, or the spawner is gone.
    let Ok(Some((plan, control, tasks, sources))) = wait_for_plan(&door) else { return 0 };
    drop(door);
    let house = HouseRules { limits: plan.process, stay, filters, mark: Mark::OfTheHost };
    let given = Given { sources, tasks, filters };
    let finished = match prepared.and_then(|prepared| setup::finish(prepared, &plan, given)) {
        Ok(finished) => finished,
        Err(failure) => {
            let _ = wire::send(&control, &InitReport::Failed(failure), &[]);
            return 1;
        }
    };
    let Finished { models, egress, workspace, terminals, .. } = &finished;
    let mut fds = vec![models.as_fd(), egress.as_fd(), workspace.as_fd(), terminals.as_fd()];
    fds.extend(finished.upper.as_ref().map(AsFd::as_fd));
    fds.extend(finished.names.iter().flat_map(|(streams, datagrams)| [streams.as_fd(), datagrams.as_fd()]));
    if wire::send(&control, &InitReport::Ready, &fds).is_err() {
        return 1;
    }
    drop(finished);
    // What is left are the spawner's own: its socket to the host, and maps of other sandboxes' owners.
    if sys::close_all_but(control.as_fd()).is_err() {
        return 1;
    }
    // There is nobody to tell it to any more but who buries this process.
    init::serve(&control, &house).map_or_else(|error| error.raw_os_error().unwrap_or(1), |()| 0)
}

/// Puts a new process on another processor than ours, which works beside it. It would wait behind its parent until the
/// kernel next looks how the work lies, and by then a sandbox could be made.
fn set_aside(pid: Pid) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut others = allowed;
    others.unset(sched_getcpu());
    // Where there is no other it stays, as it does where this is refused.
    if others.count() > 0 && sched_setaffinity(Some(pid), &others).is_ok() {
        let _ = sched_setaffinity(Some(pid), &allowed);
    }
}

/// A plan with the host's socket, the cgroups to join and the mounts root has opened.
type Order = (JailPlan, OwnedFd, Vec<OwnedFd>, Option<Sources>);

/// `None` when none will come.
fn wait_for_plan(door: &OwnedFd) -> io::Result<Option<Order>> {
    let Some((Furnishing { plan, tasks, mounts }, mut fds)) = wire::receive::<Furnishing>(door)? else {
        return Ok(None);
    };
    if fds.len() != 1 + tasks {
        return Ok(None);
    }
    let control = fds.remove(0);
    let Some(expected) = mounts else { return Ok(Some((plan, control, fds, None))) };
    let mut mounts = Vec::with_capacity(expected);
    while mounts.len() < expected {
        let Some(((), some)) = wire::receive::<()>(door)? else { return Ok(None) };
        mounts.extend(some);
    }
    let sources = Sources::of(&plan, mounts);
    Ok(Some((plan, control, fds, Some(sources))))
}
