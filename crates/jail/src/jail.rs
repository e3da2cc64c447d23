//! One sandbox, from the host's side.
//!
//! Dropping a `Jail` kills everything in it. The kernel does the same when the host dies.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::cgroup::{Cgroup, Entrance};
use crate::error::JailError;
use crate::guest::GuestOrder;
use crate::init::{InitReport, InitRequest};
use crate::plan::{ExecPlan, JailPlan};
use crate::spawner::{CloneRequest, Spawner};
use crate::{verify, wire};

/// A running sandbox.
#[derive(Debug)]
pub struct Jail {
    control: OwnedFd,
    pidfd: OwnedFd,
    pid: i32,
}

/// A sandbox that has just been made, with what it passed out.
#[derive(Debug)]
pub struct NewJail {
    /// The sandbox.
    pub jail: Jail,
    /// Accepts what connects to the model port inside.
    pub models: TcpListener,
    /// Accepts what connects to the egress port inside.
    pub egress: TcpListener,
    /// Where names are asked for inside, if the plan has that.
    pub names: Option<(TcpListener, UdpSocket)>,
    /// The workspace as it is seen inside; as long as it is held its mounts stay.
    pub workspace: OwnedFd,
    /// Its own instance of devpts, to make terminals in; where there is none they are made inside.
    pub terminals: Option<OwnedFd>,
    /// The directory that holds the changes of an overlay workspace; it outlives the sandbox.
    pub upper: Option<OwnedFd>,
}

/// What stands in for what a sandbox with a kernel of its own cannot pass out.
#[derive(Debug)]
pub struct GuestChannels {
    /// The process that is its kernel: everything inside ends with it.
    pub kernel: i32,
    /// Where the port of models is carried to.
    pub models: TcpListener,
    /// The same, of everything else.
    pub egress: TcpListener,
    /// The workspace, as it is mounted from outside.
    pub workspace: OwnedFd,
}

/// News of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecEvent {
    /// It runs.
    Started {
        /// The command.
        exec: u64,
    },
    /// It could not be started.
    NotStarted {
        /// The command.
        exec: u64,
        /// Why.
        errno: i32,
    },
    /// It ended.
    Exited {
        /// The command.
        exec: u64,
        /// Its exit code, when it had one.
        code: Option<i32>,
        /// The signal that ended it.
        signal: Option<i32>,
        /// Processor time of it and its children.
        cpu_micros: u64,
        /// Largest resident size.
        peak_rss_bytes: u64,
    },
}

impl Jail {
    /// Makes a sandbox; returns when its first command could start. Blocks for some milliseconds.
    ///
    /// With `group`, its limits hold from the first instruction on. What came out is checked from outside.
    pub fn make(spawner: &Spawner, plan: &JailPlan, group: Option<&Cgroup>) -> Result<NewJail, JailError> {
        let (control, theirs) = wire::pair().map_err(|error| JailError::Spawner("connect", error))?;
        let entrance = match group {
            Some(group) => group.entrance().map_err(|error| JailError::Spawner("limit", error))?,
            None => Entrance::default(),
        };
        let request = CloneRequest { plan: plan.clone(), tasks: entrance.tasks.len(), v2: entrance.v2.is_some() };
        let fds = std::iter::once(theirs).chain(entrance.tasks).chain(entrance.v2).collect();
        let (pidfd, pid) = spawner.clone_one(request, fds)?;
        let jail = Self { control, pidfd, pid };
        verify::look_around();
        let made = jail.made()?;
        verify::check(pid, group).map_err(JailError::NotAsPlanned)?;
        Ok(made)
    }

    /// Takes over a sandbox that an engine has made around our init, which has just called on `control`.
    ///
    /// What came out is checked from outside as far as an engine's sandboxes are alike.
    pub fn adopt(control: OwnedFd, order: &GuestOrder) -> Result<NewJail, JailError> {
        let hear = |error: io::Error| JailError::Spawner("hear", error);
        let peer = rustix::net::sockopt::socket_peercred(&control).map_err(|error| hear(error.into()))?;
        let pidfd = rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()).map_err(|error| hear(error.into()))?;
        wire::send(&control, order, &[]).map_err(|_| JailError::Ended)?;
        let jail = Self { control, pidfd, pid: peer.pid.as_raw_nonzero().get() };
        let made = jail.made()?;
        verify::check_guest(made.jail.pid).map_err(JailError::NotAsPlanned)?;
        Ok(made)
    }

    /// The same, of a sandbox with a kernel of its own.
    pub fn adopt_apart(control: OwnedFd, order: &GuestOrder, stand_in: GuestChannels) -> Result<NewJail, JailError> {
        let gone = |error: rustix::io::Errno| JailError::Spawner("hear", error.into());
        let kernel = rustix::process::Pid::from_raw(stand_in.kernel).ok_or(JailError::Ended)?;
        let pidfd = rustix::process::pidfd_open(kernel, PidfdFlags::empty()).map_err(gone)?;
        wire::send(&control, order, &[]).map_err(|_| JailError::Ended)?;
        let jail = Self { control, pidfd, pid: stand_in.kernel };
        match wire::receive(&jail.control).map_err(|error| JailError::Spawner("hear", error))? {
            Some((InitReport::Ready, _)) => {}
            Some((InitReport::Failed(failure), _)) => return Err(failure.into()),
            _ => return Err(JailError::Ended),
        }
        verify::check_kernel(jail.pid).map_err(JailError::NotAsPlanned)?;
        let GuestChannels { models, egress, workspace, .. } = stand_in;
        Ok(NewJail { jail, models, egress, names: None, workspace, terminals: None, upper: None })
    }

    /// Waits for the end of the set-up.
    fn made(self) -> Result<NewJail, JailError> {
        let jail = self;
        let report = wire::receive(&jail.control).map_err(|error| JailError::Spawner("hear", error))?;
        match report {
            Some((InitReport::Ready, mut fds)) if fds.len() >= 4 => {
                // Behind the four that are always there: the upper layer, and the two sockets for names.
                let names = (fds.len() >= 6).then(|| fds.split_off(fds.len() - 2));
                let names = names.and_then(|fds| <[OwnedFd; 2]>::try_from(fds).ok());
                let names = names.map(|[streams, datagrams]| (streams.into(), datagrams.into()));
                let upper = (fds.len() == 5).then(|| fds.remove(4));
                let terminals = Some(fds.remove(3));
                let workspace = fds.remove(2);
                let egress = TcpListener::from(fds.remove(1));
                let models = TcpListener::from(fds.remove(0));
                Ok(NewJail { jail, models, egress, names, workspace, terminals, upper })
            }
            Some((InitReport::Failed(failure), _)) => Err(failure.into()),
            _ => Err(JailError::Ended),
        }
    }

    /// Number of its init in the host's PID namespace.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Whether what is inside sees the names of the host's control groups, as with some engines it does.
    pub fn sees_cgroups(&self) -> bool {
        verify::sees_cgroups(self.pid)
    }

    /// Asks for a command; [`Jail::news`] tells what became of it.
    pub fn exec(&self, plan: ExecPlan, stdio: [BorrowedFd<'_>; 3]) -> Result<(), JailError> {
        wire::send(&self.control, &InitRequest::Exec(plan), &stdio).map_err(|_| JailError::Ended)
    }

    /// Ends a command and everything that descends from it.
    pub fn kill_exec(&self, exec: u64) -> Result<(), JailError> {
        wire::send(&self.control, &InitRequest::Kill { exec }, &[]).map_err(|_| JailError::Ended)
    }

    /// Says that the window of a terminal that was made inside has another size.
    pub fn resize(&self, exec: u64, window: (u16, u16)) -> Result<(), JailError> {
        wire::send(&self.control, &InitRequest::Resize { exec, window }, &[]).map_err(|_| JailError::Ended)
    }

    /// The next news; `None` when the sandbox has ended. Blocks, until [`Jail::control`] was called.
    pub fn news(&self) -> io::Result<Option<ExecEvent>> {
        Ok(match wire::receive(&self.control)? {
            None => None,
            Some((InitReport::Started { exec }, _)) => Some(ExecEvent::Started { exec }),
            Some((InitReport::NotStarted { exec, errno }, _)) => Some(ExecEvent::NotStarted { exec, errno }),
            Some((InitReport::Exited { exec, code, signal, cpu_micros, peak_rss_bytes }, _)) => {
                Some(ExecEvent::Exited { exec, code, signal, cpu_micros, peak_rss_bytes })
            }
            Some((InitReport::Ready | InitReport::Failed(_), _)) => {
                return Err(io::Error::other("a report of the set-up came twice"));
            }
        })
    }

    /// A second handle to the socket that news come on, to wait for without blocking. From here on
    /// [`Jail::news`] fails with `WouldBlock` when there is none.
    pub fn control(&self) -> io::Result<UnixStream> {
        let socket = UnixStream::from(self.control.try_clone()?);
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Returns when every process inside is gone, with the code that its init ended with: none where it was killed, or is
    /// not a child of this process. Blocks.
    pub fn wait(&self) -> io::Result<Option<i32>> {
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut ended, None))?;
        // A child of this process is ours to bury; that of another is not, and the kernel says so.
        let buried = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        Ok(buried.ok().flatten().and_then(|status| status.exit_status()))
    }

    /// Kills everything inside. The kernel ends every process of the PID namespace with its init.
    pub fn kill(&self) {
        let signalled = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        if signalled == Err(rustix::io::Errno::PERM) {
            // The init of an engine that is somebody else ends by itself when nobody listens any more.
            let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        }
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        self.kill();
    }
}
