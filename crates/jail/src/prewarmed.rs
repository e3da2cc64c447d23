//! A sandbox that is made before its plan is known.
//!
//! Namespaces, /proc, devices and listeners are the same in every sandbox and take most of the start-up time, so the
//! spawner makes them ahead. A prewarmed sandbox is used once, and holds nothing of any plan before it receives its own.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::process::{Pid, Signal};
use rustix::thread::{sched_getaffinity, sched_getcpu, sched_setaffinity};
use serde::{Deserialize, Serialize};

use crate::error::{During, SetupFailure, SetupStep};
use crate::host_user::HostUser;
use crate::init::{self, CommandRules, InitLifetime, InitReport};
use crate::mount_sources::MountSources;
use crate::plan::{INSIDE_GID, INSIDE_UID, JailPlan};
use crate::process_tag::ProcessTag;
use crate::seccomp::Filters;
use crate::setup::{self, FinishedSandbox, PlanInputs};
use crate::sys::{self, CloneSide, SignalDisposition};
use crate::wire;

/// Namespaces that a process can only enter when it is cloned. It makes the others itself, so that its parent does not
/// wait for them: the network namespace takes the kernel longest.
const NAMESPACES: i32 = libc::CLONE_NEWUSER | libc::CLONE_NEWPID;

impl HostUser {
    /// Maps the one user and group inside to this user and group on the host.
    pub(crate) fn map(self, pid: Pid) -> Result<(), SetupFailure> {
        if !self.privileged {
            write_proc(pid, "setgroups", "deny").during(SetupStep::MapIds, "setgroups")?;
        }
        write_proc(pid, "uid_map", &format!("{INSIDE_UID} {} 1", self.uid)).during(SetupStep::MapIds, "uid_map")?;
        write_proc(pid, "gid_map", &format!("{INSIDE_GID} {} 1", self.gid)).during(SetupStep::MapIds, "gid_map")
    }
}

/// Writes a file in another process's directory of /proc.
pub(crate) fn write_proc(pid: Pid, file: &str, content: &str) -> io::Result<()> {
    let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
    std::fs::OpenOptions::new().write(true).open(path)?.write_all(content.as_bytes())
}

/// The plan of a prewarmed sandbox, sent once. The host's control socket is sent with it, then the `tasks` files. The
/// mounts follow in as many further messages as they need.
#[derive(Debug, Serialize, Deserialize)]
struct PlanMessage {
    plan: JailPlan,
    tasks: usize,
    /// The number of mounts that follow; `None` without root, where the sandbox opens them itself.
    mounts: Option<usize>,
}

/// The spawner's handle to a process that waits for its plan. The process ends when this is dropped.
#[derive(Debug)]
pub(crate) struct PrewarmedSandbox {
    socket: OwnedFd,
    pidfd: OwnedFd,
    pid: Pid,
}

impl PrewarmedSandbox {
    /// Clones the process, which then prepares itself. With `into`, it starts in that v2 cgroup.
    pub(crate) fn clone(
        ids: HostUser,
        lifetime: InitLifetime,
        filters: &Filters,
        into: Option<BorrowedFd<'_>>,
    ) -> Result<Self, SetupFailure> {
        let (go, go_sender) =
            rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).during(SetupStep::CloneNamespaces, "")?;
        let (socket, inside) = wire::socket_pair().during(SetupStep::CloneNamespaces, "")?;
        match sys::clone_process(NAMESPACES.cast_unsigned().into(), into).during(SetupStep::CloneNamespaces, "")? {
            CloneSide::Child => {
                drop((go_sender, socket));
                sys::exit_now(run(go, inside, ids.privileged, lifetime, filters))
            }
            CloneSide::Parent { pidfd, pid } => {
                let this = Self { socket, pidfd, pid };
                if lifetime == InitLifetime::OneCommand {
                    move_to_other_processor(pid);
                }
                ids.map(pid)?;
                rustix::io::write(&go_sender, b"g").during(SetupStep::MapIds, "go")?;
                Ok(this)
            }
        }
    }

    /// Sends the plan. The sandbox reports on `control` from now on. Returns its pidfd and process id, for the host.
    pub(crate) fn send_plan(
        self,
        plan: &JailPlan,
        control: &OwnedFd,
        tasks: &[OwnedFd],
        sources: Option<&MountSources>,
    ) -> Result<(OwnedFd, i32), SetupFailure> {
        let mounts: Option<Vec<_>> = sources.map(|sources| sources.mounts().collect());
        let message = PlanMessage { plan: plan.clone(), tasks: tasks.len(), mounts: mounts.as_ref().map(Vec::len) };
        let first: Vec<_> = std::iter::once(control).chain(tasks).map(AsFd::as_fd).collect();
        wire::send(&self.socket, &message, &first).during(SetupStep::CloneNamespaces, "plan")?;
        for batch in mounts.unwrap_or_default().chunks(wire::MAX_FDS) {
            wire::send(&self.socket, &(), batch).during(SetupStep::CloneNamespaces, "mounts")?;
        }
        Ok((self.pidfd, self.pid.as_raw_nonzero().get()))
    }
}

/// Runs the new process: prepares the sandbox, waits for the plan, finishes, reports and serves. Returns the exit code.
fn run(go: OwnedFd, socket: OwnedFd, privileged: bool, lifetime: InitLifetime, filters: &Filters) -> i32 {
    sys::set_signal(libc::SIGCHLD, SignalDisposition::Default);
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    if lifetime == InitLifetime::OneCommand {
        // This process is a copy of the host, whose arguments would show in /proc/1/cmdline.
        if sys::erase_arguments().is_err() {
            return 1;
        }
    }
    let prepared = setup::prepare(go, privileged);
    // Without a plan the sandbox was not needed, or the spawner has ended.
    let Ok(Some((plan, control, tasks, sources))) = wait_for_plan(&socket) else { return 0 };
    drop(socket);
    let rules = CommandRules { limits: plan.process, lifetime, filters, tag: ProcessTag::RealtimeLimit };
    let inputs = PlanInputs { sources, tasks, filters };
    let finished = match prepared.and_then(|prepared| setup::finish(prepared, &plan, inputs)) {
        Ok(finished) => finished,
        Err(failure) => {
            let _ = wire::send(&control, &InitReport::Failed(failure), &[]);
            return 1;
        }
    };
    let FinishedSandbox { models, egress, workspace, terminals, .. } = &finished;
    let mut fds = vec![models.as_fd(), egress.as_fd(), workspace.as_fd(), terminals.as_fd()];
    fds.extend(finished.upper.as_ref().map(AsFd::as_fd));
    fds.extend(finished.dns.iter().flat_map(|(streams, datagrams)| [streams.as_fd(), datagrams.as_fd()]));
    if wire::send(&control, &InitReport::Ready, &fds).is_err() {
        return 1;
    }
    drop(finished);
    // The descriptors that remain are the spawner's: its socket to the host, and user namespaces of other sandboxes.
    if sys::close_all_but(control.as_fd()).is_err() {
        return 1;
    }
    // The control socket is closed by now, so an error can only be the exit code.
    init::serve(&control, &rules).map_or_else(|error| error.raw_os_error().unwrap_or(1), |()| 0)
}

/// Moves a new process to another processor, so that it runs beside its parent. Otherwise it would wait behind its parent
/// until the kernel next balances the load, which takes as long as making a sandbox.
fn move_to_other_processor(pid: Pid) {
    let Ok(allowed) = sched_getaffinity(None) else { return };
    let mut others = allowed;
    others.unset(sched_getcpu());
    // With one processor, or when this is refused, the process stays where it is.
    if others.count() > 0 && sched_setaffinity(Some(pid), &others).is_ok() {
        let _ = sched_setaffinity(Some(pid), &allowed);
    }
}

/// A plan with the host's socket, the cgroups to join and the mounts that root has opened.
type ReceivedPlan = (JailPlan, OwnedFd, Vec<OwnedFd>, Option<MountSources>);

/// Returns the plan; `None` when the socket closes without one.
fn wait_for_plan(socket: &OwnedFd) -> io::Result<Option<ReceivedPlan>> {
    let Some((PlanMessage { plan, tasks, mounts }, mut fds)) = wire::receive::<PlanMessage>(socket)? else {
        return Ok(None);
    };
    if fds.len() != 1 + tasks {
        return Ok(None);
    }
    let control = fds.remove(0);
    let Some(expected) = mounts else { return Ok(Some((plan, control, fds, None))) };
    let mut mounts = Vec::with_capacity(expected);
    while mounts.len() < expected {
        let Some(((), batch)) = wire::receive::<()>(socket)? else { return Ok(None) };
        mounts.extend(batch);
    }
    let sources = MountSources::of(&plan, mounts);
    Ok(Some((plan, control, fds, Some(sources))))
}
