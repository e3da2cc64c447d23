//! The spawner: the only code that clones sandbox processes.
//!
//! A host with threads must never fork into a sandbox, because a clone copies locks that other threads hold. Such a host
//! forks the spawner first, as a small single-threaded process, and sends it requests. When the host ends, the spawner's
//! socket closes, the spawner exits, and every sandbox ends with it. A host that runs one command needs no such process:
//! it clones its sandbox itself, before it starts a thread.

use std::collections::HashMap;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use base::lock;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use serde::{Deserialize, Serialize};

use crate::engine_namespaces::EngineNamespaces;
use crate::error::{During, JailError, SetupFailure, SetupStep};
use crate::host_user::HostUser;
use crate::init::InitLifetime;
use crate::mount_layout::{self, LayoutMount};
use crate::mount_sources::{IdMaps, MountSources};
use crate::plan::JailPlan;
use crate::prewarmed::{PrewarmedSandbox, write_proc};
use crate::process_tag::ProcessTag;
use crate::seccomp::Filters;
use crate::setup;
use crate::sys::{self, CloneSide, SignalDisposition};
use crate::wire;

/// How long the spawner must have been idle before it prewarms the next sandbox.
const PREWARM_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 3_000_000 };

/// A request to make one sandbox. Its control socket is sent with it, then the descriptors of its cgroups.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CloneRequest {
    /// The plan of the sandbox.
    pub(crate) plan: JailPlan,
    /// The number of `tasks` files of v1 cgroups that follow.
    pub(crate) tasks: usize,
    /// Whether the directory of a v2 cgroup follows them.
    pub(crate) v2: bool,
}

/// A request of the host to the spawner.
#[derive(Debug, Serialize, Deserialize)]
enum SpawnerRequest {
    /// Make one sandbox.
    Clone(Box<CloneRequest>),
    /// Lay a plan out below `directory`: in the host's mounts, or in those of an engine whose two namespaces follow.
    LayOut { directory: PathBuf, plan: Box<JailPlan>, in_engine: bool },
}

#[derive(Debug, Serialize, Deserialize)]
enum SpawnerReply {
    /// The new process runs; its pidfd is sent with this.
    Cloned { pid: i32 },
    /// The plan is laid out; the layer that holds changes is sent with this, if there is one.
    LaidOut { mounts: Vec<LayoutMount> },
    /// The sandbox could not be cloned, or the plan not be laid out.
    Failed(SetupFailure),
}

/// The host's handle to the spawner. Dropping it ends every sandbox made through it.
#[derive(Debug)]
pub struct Spawner {
    connection: SpawnerConnection,
}

/// The connection from the handle to the code that clones.
#[derive(Debug)]
enum SpawnerConnection {
    /// Over a socket to the spawner process.
    Socket(Mutex<OwnedFd>),
    /// By direct calls in this process.
    InProcess(Mutex<SpawnerState>),
}

/// The process in which a spawner runs. Chosen by the constructor of [`Spawner`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SpawnerMode {
    /// In its own process: the host may have threads.
    SeparateProcess,
    /// In the host's process, which must have one thread until its sandbox is made.
    HostProcess,
}

impl Spawner {
    /// Forks the spawner from this process, which must have one thread: first thing in `main`.
    pub fn fork() -> Result<Self, JailError> {
        has_one_thread()?;
        let (ours, theirs) = wire::socket_pair().map_err(|error| JailError::Spawner("connect", error))?;
        match sys::clone_process(0, None).map_err(|error| JailError::Spawner("fork", error))? {
            CloneSide::Child => {
                drop(ours);
                sys::exit_now(serve(&theirs))
            }
            CloneSide::Parent { .. } => Ok(Self { connection: SpawnerConnection::Socket(Mutex::new(ours)) }),
        }
    }

    /// Returns a spawner that works in this process, for a program that runs one command in one sandbox. It starts to
    /// make the sandbox at once. The sandbox ends by itself when its command and all processes of it have ended.
    ///
    /// This process must have one thread; cloning fails otherwise.
    pub fn for_one_command() -> Result<Self, JailError> {
        let state = SpawnerState::open(InitLifetime::OneCommand);
        let mut state = state.map_err(|error| JailError::Spawner("prepare", error))?;
        state.prewarm();
        Ok(Self { connection: SpawnerConnection::InProcess(Mutex::new(state)) })
    }

    /// Returns where this spawner runs.
    pub fn mode(&self) -> SpawnerMode {
        match self.connection {
            SpawnerConnection::Socket(_) => SpawnerMode::SeparateProcess,
            SpawnerConnection::InProcess(_) => SpawnerMode::HostProcess,
        }
    }

    /// Starts `program` with `arguments` as the spawner; the program must call [`serve_spawner`] at once.
    pub fn exec(program: &Path, arguments: &[&str]) -> Result<Self, JailError> {
        let (ours, theirs) = wire::socket_pair().map_err(|error| JailError::Spawner("connect", error))?;
        let mut command = std::process::Command::new(program);
        // The socket is passed as stdin, a descriptor that every program inherits.
        command.args(arguments).stdin(theirs).process_group(0);
        command.spawn().map_err(|error| JailError::Spawner("start", error))?;
        Ok(Self { connection: SpawnerConnection::Socket(Mutex::new(ours)) })
    }

    /// Clones one sandbox process; returns its pidfd and process id.
    pub(crate) fn clone_one(&self, request: CloneRequest, fds: Vec<OwnedFd>) -> Result<(OwnedFd, i32), JailError> {
        match self.call(SpawnerRequest::Clone(Box::new(request)), fds)? {
            (SpawnerReply::Cloned { pid }, Some(pidfd)) => Ok((pidfd, pid)),
            _ => Err(JailError::Spawner("read from", io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Lays a plan out below `directory`; returns the paths to mount, and the layer that holds changes.
    pub(crate) fn lay_out(
        &self,
        directory: &Path,
        plan: &JailPlan,
        engine: Option<&EngineNamespaces>,
    ) -> Result<(Vec<LayoutMount>, Option<OwnedFd>), JailError> {
        let fds = engine.map(EngineNamespaces::duplicates).transpose();
        let fds = fds.map_err(|error| JailError::Spawner("write to", error))?;
        let (plan, in_engine) = (Box::new(plan.clone()), fds.is_some());
        let request = SpawnerRequest::LayOut { directory: directory.to_owned(), plan, in_engine };
        match self.call(request, fds.unwrap_or_default())? {
            (SpawnerReply::LaidOut { mounts }, upper) => Ok((mounts, upper)),
            _ => Err(JailError::Spawner("read from", io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn call(&self, request: SpawnerRequest, fds: Vec<OwnedFd>) -> Result<(SpawnerReply, Option<OwnedFd>), JailError> {
        let socket = match &self.connection {
            SpawnerConnection::Socket(socket) => lock(socket),
            SpawnerConnection::InProcess(state) => {
                let mut state = lock(state);
                return Ok(state.handle(request, fds)?);
            }
        };
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        wire::send(&*socket, &request, &fds).map_err(|error| JailError::Spawner("write to", error))?;
        match wire::receive(&*socket).map_err(|error| JailError::Spawner("read from", error))? {
            Some((SpawnerReply::Failed(failure), _)) => Err(failure.into()),
            Some((answer, mut fds)) => Ok((answer, fds.pop())),
            None => Err(JailError::Spawner("read from", io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// Fails when this process has several threads: a clone would copy their locks, held or not.
fn has_one_thread() -> Result<(), JailError> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(|error| JailError::Spawner("fork", error))?.count();
    match threads {
        1 => Ok(()),
        _ => Err(JailError::Spawner("fork", io::Error::other("the process has more than one thread"))),
    }
}

/// Serves the spawner's socket, which is stdin, until it closes. Returns the exit code. Called by programs that
/// [`Spawner::exec`] starts.
pub fn serve_spawner() -> i32 {
    match sys::adopt(0).and_then(|stdin| stdin.try_clone()) {
        Ok(socket) => serve(&socket),
        Err(_) => 1,
    }
}

fn serve(socket: &OwnedFd) -> i32 {
    // The kernel reaps ended sandboxes; the host watches them by pidfd.
    sys::set_signal(libc::SIGCHLD, SignalDisposition::Ignore);
    // Signals such as Ctrl-C are for the host, which closes the socket when it is done.
    for signal in [libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT, libc::SIGPIPE] {
        sys::set_signal(signal, SignalDisposition::Ignore);
    }
    let _ = rustix::process::set_parent_process_death_signal(None);
    // Every sandbox's init is a copy of this process. Without these steps a sandbox could read the host's arguments in
    // /proc/1/cmdline, and reach the host's open files through a working directory of /proc/self/fd/N.
    if sys::erase_arguments().is_err() || sys::close_all_but(socket.as_fd()).is_err() {
        return 1;
    }
    if setup::silence_standard_streams().is_err() {
        return 1;
    }
    let Ok(mut state) = SpawnerState::open(InitLifetime::UntilDisconnected) else { return 1 };
    state.prewarm();
    loop {
        // Prewarming waits for an idle moment, so that it does not delay the sandbox just made.
        let mut requests = [PollFd::new(socket, PollFlags::IN)];
        if matches!(poll(&mut requests, Some(&PREWARM_AFTER)), Ok(0)) {
            state.prewarm();
        }
        match wire::receive::<SpawnerRequest>(socket) {
            Ok(Some((request, fds))) => {
                let (reply, fd) =
                    state.handle(request, fds).unwrap_or_else(|error| (SpawnerReply::Failed(error), None));
                let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
                if wire::send(socket, &reply, &fds).is_err() {
                    return 1;
                }
            }
            Ok(None) => return 0,
            Err(_) => return 1,
        }
    }
}

/// The state that the spawner keeps between sandboxes.
#[derive(Debug)]
struct SpawnerState {
    /// The lifetime of the spawner's sandboxes.
    lifetime: InitLifetime,
    filters: Filters,
    ids: HostUser,
    owners: OwnerMaps,
    /// The next sandbox, made before it is requested.
    prewarmed: Option<PrewarmedSandbox>,
    /// The host's mount table. The prewarmed sandbox has a copy of the mounts from when it was made.
    mounts: OwnedFd,
}

impl SpawnerState {
    fn open(lifetime: InitLifetime) -> io::Result<Self> {
        let ids = HostUser::for_sandboxes();
        let mounts = rustix::fs::open("/proc/self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let owners = OwnerMaps { ids, known: HashMap::new() };
        Ok(Self {
            lifetime,
            filters: Filters::compile(ProcessTag::RealtimeLimit),
            ids,
            owners,
            prewarmed: None,
            mounts,
        })
    }

    fn handle(
        &mut self,
        request: SpawnerRequest,
        fds: Vec<OwnedFd>,
    ) -> Result<(SpawnerReply, Option<OwnedFd>), SetupFailure> {
        match request {
            SpawnerRequest::Clone(request) => {
                let (pidfd, pid) = self.make(&request, fds)?;
                Ok((SpawnerReply::Cloned { pid }, Some(pidfd)))
            }
            SpawnerRequest::LayOut { directory, plan, in_engine: false } => {
                let (mounts, upper) = mount_layout::lay_out(&directory, &plan, self.ids, Some(&mut self.owners))?;
                Ok((SpawnerReply::LaidOut { mounts }, upper))
            }
            SpawnerRequest::LayOut { directory, plan, in_engine: true } => {
                let engine = EngineNamespaces::received(fds).ok_or(rustix::io::Errno::INVAL);
                let engine = engine.during(SetupStep::EnterEngine, "descriptors")?;
                let (mounts, upper) = engine.lay_out(&directory, &plan)?;
                Ok((SpawnerReply::LaidOut { mounts }, upper))
            }
        }
    }

    /// Makes one sandbox, from the prewarmed one if that can be used.
    fn make(&mut self, request: &CloneRequest, mut fds: Vec<OwnedFd>) -> Result<(OwnedFd, i32), SetupFailure> {
        let plan = &request.plan;
        if fds.len() != 1 + request.tasks + usize::from(request.v2) {
            return Err(SetupFailure {
                step: SetupStep::CloneNamespaces,
                subject: "descriptors".into(),
                errno: libc::EINVAL,
            });
        }
        let control = fds.remove(0);
        let into = if request.v2 { fds.pop() } else { None };
        let sources = if self.ids.privileged { Some(MountSources::open(plan, Some(&mut self.owners))?) } else { None };
        let outdated = self.mounts_have_changed();
        let sandbox = match self.prewarmed.take() {
            // A process joins its v2 cgroup when it is cloned, so a prewarmed one is too late for that.
            Some(prewarmed) if into.is_none() && !outdated => prewarmed,
            _ => self.clone_sandbox(into.as_ref().map(AsFd::as_fd))?,
        };
        sandbox.send_plan(plan, &control, &fds, sources.as_ref())
    }

    fn clone_sandbox(&self, into: Option<BorrowedFd<'_>>) -> Result<PrewarmedSandbox, SetupFailure> {
        let Self { lifetime, ids, filters, .. } = self;
        if *lifetime == InitLifetime::OneCommand && has_one_thread().is_err() {
            return Err(SetupFailure {
                step: SetupStep::CloneNamespaces,
                subject: "threads".into(),
                errno: libc::EAGAIN,
            });
        }
        PrewarmedSandbox::clone(*ids, *lifetime, filters, into)
    }

    /// Makes the next sandbox before it is requested. A failure is ignored: the next request meets it again and reports it.
    fn prewarm(&mut self) {
        if self.prewarmed.is_none() {
            self.mounts_have_changed();
            self.prewarmed = self.clone_sandbox(None).ok();
        }
    }

    /// Returns whether anything was mounted or unmounted on the host since the last call.
    fn mounts_have_changed(&self) -> bool {
        let mut changed = [PollFd::new(&self.mounts, PollFlags::PRI)];
        // A poll that fails counts as a change.
        !matches!(poll(&mut changed, Some(&Timespec::default())), Ok(0))
    }
}

/// A cache of user namespaces, each of which shows the files of one owner as the sandbox user's.
#[derive(Debug)]
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
    /// Makes a user namespace. It outlives the process it was made with, for as long as a descriptor of it is open.
    fn make(&self, uid: u32, gid: u32) -> io::Result<OwnedFd> {
        let (wait, hold) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
        match sys::clone_process(libc::CLONE_NEWUSER.cast_unsigned().into(), None)? {
            CloneSide::Child => {
                drop(hold);
                let _ = rustix::io::read(&wait, &mut [0; 1]);
                sys::exit_now(0)
            }
            CloneSide::Parent { pid, .. } => {
                write_proc(pid, "uid_map", &format!("{uid} {} 1", self.ids.uid))?;
                write_proc(pid, "gid_map", &format!("{gid} {} 1", self.ids.gid))?;
                let path = format!("/proc/{}/ns/user", pid.as_raw_nonzero());
                Ok(rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?)
            }
        }
    }
}
