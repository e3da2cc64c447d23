//! The one process that clones: small, single-threaded, and alone with the power to make sandboxes.
//!
//! The host has many threads, so it must never fork into a sandbox itself. It starts the spawner first and
//! asks it. When the host is gone the spawner's socket closes, it exits, and every sandbox dies with it.

use std::collections::HashMap;
use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};
use rustix::process::{Pid, Signal};
use serde::{Deserialize, Serialize};

use crate::error::{During, Failure, JailError, Step};
use crate::host_user::HostUser;
use crate::init::{self, HouseRules, InitReport};
use crate::plan::{INSIDE_GID, INSIDE_UID, Plan};
use crate::seccomp::Filters;
use crate::setup::{self, Inherited};
use crate::source::{IdMaps, Sources};
use crate::sys::{self, Disposition, Side};
use crate::wire;

/// Namespaces of a sandbox; the cgroup one follows once its cgroup is joined.
const NAMESPACES: i32 = libc::CLONE_NEWUSER
    | libc::CLONE_NEWNS
    | libc::CLONE_NEWPID
    | libc::CLONE_NEWNET
    | libc::CLONE_NEWIPC
    | libc::CLONE_NEWUTS;

/// One sandbox to be made. Its control socket goes with it, then the descriptors of its cgroups.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CloneRequest {
    /// What it is made of.
    pub(crate) plan: Plan,
    /// How many `tasks` files of v1 cgroups follow.
    pub(crate) tasks: usize,
    /// Whether the directory of a v2 cgroup follows them.
    pub(crate) v2: bool,
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The new process runs; its pidfd goes with it.
    Cloned { pid: i32 },
    /// It could not even be cloned.
    Failed(Failure),
}

/// The host's handle to the spawner. Dropping it ends every sandbox made through it.
#[derive(Debug)]
pub struct Spawner {
    socket: Mutex<OwnedFd>,
}

impl Spawner {
    /// Forks the spawner from this process, which must have one thread: first thing in `main`.
    pub fn fork() -> Result<Self, JailError> {
        let threads = std::fs::read_dir("/proc/self/task").map_err(|error| JailError::Spawner("fork", error))?.count();
        if threads != 1 {
            let error = io::Error::other("the process has more than one thread");
            return Err(JailError::Spawner("fork", error));
        }
        let (ours, theirs) = wire::pair().map_err(|error| JailError::Spawner("connect", error))?;
        match sys::clone_process(0, None).map_err(|error| JailError::Spawner("fork", error))? {
            Side::Child => {
                drop(ours);
                sys::exit_now(serve(&theirs))
            }
            Side::Parent { .. } => Ok(Self { socket: Mutex::new(ours) }),
        }
    }

    /// Starts `program` with `arguments` as the spawner; it must call [`serve_spawner`] at once.
    pub fn exec(program: &Path, arguments: &[&str]) -> Result<Self, JailError> {
        let (ours, theirs) = wire::pair().map_err(|error| JailError::Spawner("connect", error))?;
        let mut command = std::process::Command::new(program);
        // Its stdin is the socket: the one descriptor that every program start passes on.
        command.args(arguments).stdin(theirs).process_group(0);
        command.spawn().map_err(|error| JailError::Spawner("start", error))?;
        Ok(Self { socket: Mutex::new(ours) })
    }

    /// Asks for one clone; returns its pidfd and number.
    pub(crate) fn clone_one(
        &self,
        request: &CloneRequest,
        fds: &[BorrowedFd<'_>],
    ) -> Result<(OwnedFd, i32), JailError> {
        let socket = self.socket.lock().unwrap_or_else(PoisonError::into_inner);
        wire::send(&*socket, request, fds).map_err(|error| JailError::Spawner("ask", error))?;
        match wire::receive(&*socket).map_err(|error| JailError::Spawner("hear", error))? {
            Some((Answer::Cloned { pid }, mut fds)) if fds.len() == 1 => Ok((fds.remove(0), pid)),
            Some((Answer::Failed(failure), _)) => Err(failure.into()),
            _ => Err(JailError::Spawner("hear", io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// What a program started by [`Spawner::exec`] does: serves its stdin until it closes, then returns an
/// exit code.
pub fn serve_spawner() -> i32 {
    match sys::adopt(0).and_then(|stdin| stdin.try_clone()) {
        Ok(socket) => serve(&socket),
        Err(_) => 1,
    }
}

fn serve(socket: &OwnedFd) -> i32 {
    // Ended sandboxes are reaped by the kernel; the host watches them by pidfd.
    sys::set_signal(libc::SIGCHLD, Disposition::Ignore);
    // Ctrl-C is for the host, which ends us by closing the socket when it is done.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        sys::set_signal(signal, Disposition::Ignore);
    }
    let _ = rustix::process::set_parent_process_death_signal(None);
    // Every sandbox's init is a copy of this process: what it was started with and what the host has open
    // would be there to find, in /proc/1/cmdline and by a working directory of /proc/self/fd/N.
    if sys::forget_arguments().is_err() || sys::close_all_but(socket.as_fd()).is_err() {
        return 1;
    }
    let Ok(mut workshop) = Workshop::open() else { return 1 };
    loop {
        match wire::receive::<CloneRequest>(socket) {
            Ok(Some((request, fds))) => {
                let answered = match workshop.make(&request, fds) {
                    Ok((pidfd, pid)) => wire::send(socket, &Answer::Cloned { pid }, &[pidfd.as_fd()]),
                    Err(failure) => wire::send(socket, &Answer::Failed(failure), &[]),
                };
                if answered.is_err() {
                    return 1;
                }
            }
            Ok(None) => return 0,
            Err(_) => return 1,
        }
    }
}

/// What the spawner keeps between sandboxes.
struct Workshop {
    filters: Filters,
    ids: HostUser,
    owners: OwnerMaps,
}

impl Workshop {
    fn open() -> io::Result<Self> {
        let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
        rustix::stdio::dup2_stdin(&null)?;
        rustix::stdio::dup2_stdout(&null)?;
        rustix::stdio::dup2_stderr(&null)?;
        let ids = HostUser::of_our_sandboxes();
        Ok(Self { filters: Filters::compile()?, ids, owners: OwnerMaps { ids, known: HashMap::new() } })
    }

    /// Clones one sandbox.
    fn make(&mut self, request: &CloneRequest, mut fds: Vec<OwnedFd>) -> Result<(OwnedFd, i32), Failure> {
        let plan = &request.plan;
        if fds.len() != 1 + request.tasks + usize::from(request.v2) {
            return Err(Failure { step: Step::CloneNamespaces, subject: "descriptors".into(), errno: libc::EINVAL });
        }
        let control = fds.remove(0);
        let into = if request.v2 { fds.pop() } else { None };
        let sources = if self.ids.privileged { Some(Sources::open(plan, Some(&mut self.owners))?) } else { None };
        let (go, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).during(Step::CloneNamespaces, "")?;

        match sys::clone_process(NAMESPACES.cast_unsigned().into(), into.as_ref().map(AsFd::as_fd))
            .during(Step::CloneNamespaces, "")?
        {
            Side::Child => {
                drop(tell);
                let privileged = self.ids.privileged;
                let inherited = Inherited { go, sources, tasks: fds, filters: &self.filters, privileged };
                sys::exit_now(live(plan, inherited, &control))
            }
            Side::Parent { pidfd, pid } => {
                if let Err(failure) = self.ids.map(pid) {
                    let _ = rustix::process::pidfd_send_signal(&pidfd, Signal::KILL);
                    return Err(failure);
                }
                rustix::io::write(&tell, b"g").during(Step::MapIds, "go")?;
                Ok((pidfd, pid.as_raw_nonzero().get()))
            }
        }
    }
}

impl HostUser {
    /// Maps the one user and group inside to ours.
    fn map(self, pid: Pid) -> Result<(), Failure> {
        if !self.privileged {
            write_proc(pid, "setgroups", "deny").during(Step::MapIds, "setgroups")?;
        }
        write_proc(pid, "uid_map", &format!("{INSIDE_UID} {} 1", self.uid)).during(Step::MapIds, "uid_map")?;
        write_proc(pid, "gid_map", &format!("{INSIDE_GID} {} 1", self.gid)).during(Step::MapIds, "gid_map")
    }
}

fn write_proc(pid: Pid, file: &str, content: &str) -> io::Result<()> {
    let path = format!("/proc/{}/{file}", pid.as_raw_nonzero());
    std::fs::OpenOptions::new().write(true).open(path)?.write_all(content.as_bytes())
}

/// User namespaces that show files of one owner as the sandbox's; kept, since repositories recur.
struct OwnerMaps {
    ids: HostUser,
    known: HashMap<(u32, u32), OwnedFd>,
}

impl IdMaps for OwnerMaps {
    fn for_owner(&mut self, uid: u32, gid: u32) -> io::Result<BorrowedFd<'_>> {
        if !self.known.contains_key(&(uid, gid)) {
            let made = self.make(uid, gid)?;
            self.known.insert((uid, gid), made);
        }
        self.known.get(&(uid, gid)).map(AsFd::as_fd).ok_or_else(|| io::Error::from_raw_os_error(libc::ENOENT))
    }
}

impl OwnerMaps {
    /// A user namespace outlives the process it was made with as long as somebody holds it.
    fn make(&self, uid: u32, gid: u32) -> io::Result<OwnedFd> {
        let (wait, hold) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        match sys::clone_process(libc::CLONE_NEWUSER.cast_unsigned().into(), None)? {
            Side::Child => {
                drop(hold);
                let _ = rustix::io::read(&wait, &mut [0; 1]);
                sys::exit_now(0)
            }
            Side::Parent { pid, .. } => {
                write_proc(pid, "uid_map", &format!("{uid} {} 1", self.ids.uid))?;
                write_proc(pid, "gid_map", &format!("{gid} {} 1", self.ids.gid))?;
                let path = format!("/proc/{}/ns/user", pid.as_raw_nonzero());
                Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
            }
        }
    }
}

/// The life of the new process: set up, report, serve.
fn live(plan: &Plan, inherited: Inherited<'_>, control: &OwnedFd) -> i32 {
    sys::set_signal(libc::SIGCHLD, Disposition::Default);
    let _ = rustix::process::set_parent_process_death_signal(Some(Signal::KILL));
    let house = HouseRules { limits: plan.process, filters: inherited.filters };
    let finished = match setup::build(plan, inherited) {
        Ok(finished) => finished,
        Err(failure) => {
            let _ = wire::send(control, &InitReport::Failed(failure), &[]);
            return 1;
        }
    };
    let mut fds = vec![finished.models.as_fd(), finished.egress.as_fd(), finished.workspace.as_fd()];
    fds.extend(finished.upper.as_ref().map(AsFd::as_fd));
    if wire::send(control, &InitReport::Ready, &fds).is_err() {
        return 1;
    }
    drop(finished);
    // What is left are the spawner's own: its socket to the host, and maps of other sandboxes' owners.
    if sys::close_all_but(control.as_fd()).is_err() {
        return 1;
    }
    i32::from(init::serve(control, &house).is_err())
}
