//! The one process that clones: small, single-threaded, and alone with the power to make sandboxes.
//!
//! The host has many threads, so it must never fork into a sandbox itself. It starts the spawner first and
//! asks it. When the host is gone the spawner's socket closes, it exits, and every sandbox dies with it.
//! A host that runs one command does without the process between, and clones before it has a thread.

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

use crate::blank::{Blank, write_proc};
use crate::error::{During, Failure, JailError, SetupStep};
use crate::host_user::HostUser;
use crate::init::Stay;
use crate::mark::Mark;
use crate::plan::JailPlan;
use crate::quarters::EngineNamespaces;
use crate::seccomp::Filters;
use crate::setup;
use crate::source::{IdMaps, Sources};
use crate::stage::{self, LayoutMount};
use crate::sys::{self, Disposition, Side};
use crate::wire;

/// How long nobody must have asked for a sandbox before one is made ahead.
const SPARE_AFTER: Timespec = Timespec { tv_sec: 0, tv_nsec: 3_000_000 };

/// One sandbox to be made. Its control socket goes with it, then the descriptors of its cgroups.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct CloneRequest {
    /// What it is made of.
    pub(crate) plan: JailPlan,
    /// How many `tasks` files of v1 cgroups follow.
    pub(crate) tasks: usize,
    /// Whether the directory of a v2 cgroup follows them.
    pub(crate) v2: bool,
}

/// What the host asks.
#[derive(Debug, Serialize, Deserialize)]
enum Request {
    /// One sandbox.
    Clone(Box<CloneRequest>),
    /// A plan laid out in the host's tree, or in that of an engine whose two namespaces follow.
    Stage { place: PathBuf, plan: Box<JailPlan>, apart: bool },
}

#[derive(Debug, Serialize, Deserialize)]
enum Answer {
    /// The new process runs; its pidfd goes with it.
    Cloned { pid: i32 },
    /// It is laid out; the layer that holds changes goes with it, where there is one.
    Staged { mounts: Vec<LayoutMount> },
    /// It could not be cloned, or not be laid out.
    Failed(Failure),
}

/// The host's handle to the spawner. Dropping it ends every sandbox made through it.
#[derive(Debug)]
pub struct Spawner {
    place: Place,
}

/// Where sandboxes are made.
#[derive(Debug)]
enum Place {
    /// In a process of its own, for a host with threads.
    Apart(Mutex<OwnedFd>),
    /// In the host, which makes one before it has threads.
    Here(Mutex<Workshop>),
}

impl Spawner {
    /// Forks the spawner from this process, which must have one thread: first thing in `main`.
    pub fn fork() -> Result<Self, JailError> {
        has_one_thread()?;
        let (ours, theirs) = wire::pair().map_err(|error| JailError::Spawner("connect", error))?;
        match sys::clone_process(0, None).map_err(|error| JailError::Spawner("fork", error))? {
            Side::Child => {
                drop(ours);
                sys::exit_now(serve(&theirs))
            }
            Side::Parent { .. } => Ok(Self { place: Place::Apart(Mutex::new(ours)) }),
        }
    }

    /// For a program that runs one command in one sandbox and ends: begins to make it here and now, with no
    /// process between. The sandbox ends by itself when its command has ended and left nothing running.
    ///
    /// This process must have one thread, which is looked at when it clones.
    pub fn for_one_command() -> Result<Self, JailError> {
        let mut workshop = Workshop::open(Stay::OneCommand).map_err(|error| JailError::Spawner("prepare", error))?;
        workshop.make_spare();
        Ok(Self { place: Place::Here(Mutex::new(workshop)) })
    }

    /// Whether it works in this process, which must then have one thread until the sandbox is made.
    pub fn is_here(&self) -> bool {
        matches!(self.place, Place::Here(_))
    }

    /// Starts `program` with `arguments` as the spawner; it must call [`serve_spawner`] at once.
    pub fn exec(program: &Path, arguments: &[&str]) -> Result<Self, JailError> {
        let (ours, theirs) = wire::pair().map_err(|error| JailError::Spawner("connect", error))?;
        let mut command = std::process::Command::new(program);
        // Its stdin is the socket: the one descriptor that every program start passes on.
        command.args(arguments).stdin(theirs).process_group(0);
        command.spawn().map_err(|error| JailError::Spawner("start", error))?;
        Ok(Self { place: Place::Apart(Mutex::new(ours)) })
    }

    /// Asks for one clone; returns its pidfd and number.
    pub(crate) fn clone_one(&self, request: CloneRequest, fds: Vec<OwnedFd>) -> Result<(OwnedFd, i32), JailError> {
        match self.ask(Request::Clone(Box::new(request)), fds)? {
            (Answer::Cloned { pid }, Some(pidfd)) => Ok((pidfd, pid)),
            _ => Err(JailError::Spawner("hear", io::ErrorKind::UnexpectedEof.into())),
        }
    }

    /// Asks for a plan to be laid out; returns what is to be mounted, and the layer that holds changes.
    pub(crate) fn stage(
        &self,
        place: &Path,
        plan: &JailPlan,
        quarters: Option<&EngineNamespaces>,
    ) -> Result<(Vec<LayoutMount>, Option<OwnedFd>), JailError> {
        let fds =
            quarters.map(EngineNamespaces::duplicates).transpose().map_err(|error| JailError::Spawner("ask", error))?;
        let (plan, apart) = (Box::new(plan.clone()), fds.is_some());
        match self.ask(Request::Stage { place: place.to_owned(), plan, apart }, fds.unwrap_or_default())? {
            (Answer::Staged { mounts }, upper) => Ok((mounts, upper)),
            _ => Err(JailError::Spawner("hear", io::ErrorKind::UnexpectedEof.into())),
        }
    }

    fn ask(&self, request: Request, fds: Vec<OwnedFd>) -> Result<(Answer, Option<OwnedFd>), JailError> {
        let socket = match &self.place {
            Place::Apart(socket) => lock(&socket),
            Place::Here(workshop) => {
                let mut workshop = lock(&workshop);
                return Ok(workshop.answer(request, fds)?);
            }
        };
        let fds: Vec<_> = fds.iter().map(AsFd::as_fd).collect();
        wire::send(&*socket, &request, &fds).map_err(|error| JailError::Spawner("ask", error))?;
        match wire::receive(&*socket).map_err(|error| JailError::Spawner("hear", error))? {
            Some((Answer::Failed(failure), _)) => Err(failure.into()),
            Some((answer, mut fds)) => Ok((answer, fds.pop())),
            None => Err(JailError::Spawner("hear", io::ErrorKind::UnexpectedEof.into())),
        }
    }
}

/// Who clones with other threads beside it copies their locks, held or not.
fn has_one_thread() -> Result<(), JailError> {
    let threads = std::fs::read_dir("/proc/self/task").map_err(|error| JailError::Spawner("fork", error))?.count();
    match threads {
        1 => Ok(()),
        _ => Err(JailError::Spawner("fork", io::Error::other("the process has more than one thread"))),
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
    if setup::silence_standard_streams().is_err() {
        return 1;
    }
    let Ok(mut workshop) = Workshop::open(Stay::UntilLetGo) else { return 1 };
    workshop.make_spare();
    loop {
        // The next one is made when the last is out of the way.
        let mut asked = [PollFd::new(socket, PollFlags::IN)];
        if matches!(poll(&mut asked, Some(&SPARE_AFTER)), Ok(0)) {
            workshop.make_spare();
        }
        match wire::receive::<Request>(socket) {
            Ok(Some((request, fds))) => {
                let (answer, fd) = workshop.answer(request, fds).unwrap_or_else(|error| (Answer::Failed(error), None));
                let fds: Vec<_> = fd.iter().map(AsFd::as_fd).collect();
                let answered = wire::send(socket, &answer, &fds);
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
#[derive(Debug)]
struct Workshop {
    /// How long its sandboxes stay.
    stay: Stay,
    filters: Filters,
    ids: HostUser,
    owners: OwnerMaps,
    /// The next sandbox, made while nobody waited for it.
    spare: Option<Blank>,
    /// The host's mounts: a spare has a copy of them as they were.
    mounts: OwnedFd,
}

impl Workshop {
    fn open(stay: Stay) -> io::Result<Self> {
        let ids = HostUser::of_our_sandboxes();
        let mounts = rustix::fs::open("/proc/self/mountinfo", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let owners = OwnerMaps { ids, known: HashMap::new() };
        Ok(Self { stay, filters: Filters::compile(Mark::OfTheHost), ids, owners, spare: None, mounts })
    }

    fn answer(&mut self, request: Request, fds: Vec<OwnedFd>) -> Result<(Answer, Option<OwnedFd>), Failure> {
        match request {
            Request::Clone(request) => {
                let (pidfd, pid) = self.make(&request, fds)?;
                Ok((Answer::Cloned { pid }, Some(pidfd)))
            }
            Request::Stage { place, plan, apart: false } => {
                let (mounts, upper) = stage::lay_out(&place, &plan, self.ids, Some(&mut self.owners))?;
                Ok((Answer::Staged { mounts }, upper))
            }
            Request::Stage { place, plan, apart: true } => {
                let quarters = EngineNamespaces::received(fds).ok_or(rustix::io::Errno::INVAL);
                let (mounts, upper) = quarters.during(SetupStep::EnterEngine, "descriptors")?.lay_out(&place, &plan)?;
                Ok((Answer::Staged { mounts }, upper))
            }
        }
    }

    /// Makes one sandbox: of the spare, when there is one and it will do.
    fn make(&mut self, request: &CloneRequest, mut fds: Vec<OwnedFd>) -> Result<(OwnedFd, i32), Failure> {
        let plan = &request.plan;
        if fds.len() != 1 + request.tasks + usize::from(request.v2) {
            return Err(Failure {
                step: SetupStep::CloneNamespaces,
                subject: "descriptors".into(),
                errno: libc::EINVAL,
            });
        }
        let control = fds.remove(0);
        let into = if request.v2 { fds.pop() } else { None };
        let sources = if self.ids.privileged { Some(Sources::open(plan, Some(&mut self.owners))?) } else { None };
        let outdated = self.mounts_have_changed();
        let blank = match self.spare.take() {
            // A v2 group is joined at birth.
            Some(spare) if into.is_none() && !outdated => spare,
            _ => self.blank(into.as_ref().map(AsFd::as_fd))?,
        };
        blank.furnish(plan, &control, &fds, sources.as_ref())
    }

    fn blank(&self, into: Option<BorrowedFd<'_>>) -> Result<Blank, Failure> {
        let Self { stay, ids, filters, .. } = self;
        if *stay == Stay::OneCommand && has_one_thread().is_err() {
            return Err(Failure { step: SetupStep::CloneNamespaces, subject: "threads".into(), errno: libc::EAGAIN });
        }
        Blank::clone(*ids, *stay, filters, into)
    }

    /// Makes the next sandbox ahead. Whatever fails here is told to the first who asks for one.
    fn make_spare(&mut self) {
        if self.spare.is_none() {
            self.mounts_have_changed();
            self.spare = self.blank(None).ok();
        }
    }

    /// Whether anything was mounted or unmounted on the host since this was last asked.
    fn mounts_have_changed(&self) -> bool {
        let mut changed = [PollFd::new(&self.mounts, PollFlags::PRI)];
        // A kernel that cannot tell has said nothing for sure.
        !matches!(poll(&mut changed, Some(&Timespec::default())), Ok(0))
    }
}

/// User namespaces that show files of one owner as the sandbox's; kept, since repositories recur.
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
