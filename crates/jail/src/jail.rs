//! The host's handle to one running sandbox.
//!
//! Dropping a `Jail` kills everything in it. The kernel does the same when the host dies.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;

use rustix::event::{PollFd, PollFlags};
use rustix::process::{PidfdFlags, Signal, WaitId, WaitIdOptions};

use crate::cgroup::{Cgroup, CgroupHandles};
use crate::container_init::InitSettings;
use crate::error::JailError;
use crate::init::{InitReport, InitRequest};
use crate::inside_port;
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

/// A sandbox that was just made, with the descriptors that it passed out.
#[derive(Debug)]
pub struct NewJail {
    /// The sandbox.
    pub jail: Jail,
    /// Accepts connections to the model port inside the sandbox.
    pub models: TcpListener,
    /// Accepts connections to the egress port inside the sandbox.
    pub egress: TcpListener,
    /// The sockets of the name server inside, if the plan has one.
    pub dns: Option<(TcpListener, UdpSocket)>,
    /// The workspace as commands inside see it. Its mounts stay while this is open.
    pub workspace: OwnedFd,
    /// The sandbox's own instance of devpts, to make terminals in. `None` when init makes terminals inside.
    pub terminals: Option<OwnedFd>,
    /// The directory that holds the changes of an overlay workspace; it outlives the sandbox.
    pub upper: Option<OwnedFd>,
}

/// Replacements for the descriptors that a container with its own kernel cannot pass out.
#[derive(Debug)]
pub struct OwnKernelChannels {
    /// The process id of the container's kernel. Everything inside ends with it.
    pub kernel: i32,
    /// Accepts the relayed connections to the model port.
    pub models: TcpListener,
    /// Accepts the relayed connections to the egress port.
    pub egress: TcpListener,
    /// The workspace, opened on the host.
    pub workspace: OwnedFd,
}

/// An event of a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExecEvent {
    /// The command runs.
    Started {
        /// The number of the command.
        exec: u64,
    },
    /// The command could not be started.
    NotStarted {
        /// The number of the command.
        exec: u64,
        /// The error number.
        errno: i32,
    },
    /// The command ended.
    Exited {
        /// The number of the command.
        exec: u64,
        /// The exit code, unless a signal ended the command.
        code: Option<i32>,
        /// The signal that ended the command.
        signal: Option<i32>,
        /// Processor time of the command and its children.
        cpu_micros: u64,
        /// The largest resident size of the command.
        peak_rss_bytes: u64,
    },
}

/// An event of a sandbox.
#[derive(Debug)]
pub enum JailEvent {
    /// An event of a command.
    Exec(ExecEvent),
    /// The answer to [`Jail::connect`].
    Connection(ConnectionOutcome),
}

/// The answer of init to a request for a connection.
#[derive(Debug)]
pub struct ConnectionOutcome {
    /// The number of the request.
    pub request: u64,
    /// The socket, which may still be connecting, or the error number.
    pub socket: Result<OwnedFd, i32>,
}

impl ConnectionOutcome {
    /// Returns the socket if it is a TCP socket. The other end is known when the socket is connected.
    pub fn checked(self) -> Result<OwnedFd, i32> {
        let socket = self.socket?;
        if inside_port::is_tcp(&socket) { Ok(socket) } else { Err(libc::EPROTO) }
    }
}

impl Jail {
    /// Makes a sandbox; returns when it is ready for its first command. Blocks for some milliseconds.
    ///
    /// With `group`, the limits hold from the first instruction on. Fails with [`JailError::NotAsPlanned`] when the result
    /// does not pass the checks from outside.
    pub fn make(spawner: &Spawner, plan: &JailPlan, group: Option<&Cgroup>) -> Result<NewJail, JailError> {
        let (control, theirs) = wire::socket_pair().map_err(|error| JailError::Spawner("connect", error))?;
        let handles = match group {
            Some(group) => group.open_handles().map_err(|error| JailError::Spawner("limit", error))?,
            None => CgroupHandles::default(),
        };
        let request = CloneRequest { plan: plan.clone(), tasks: handles.tasks.len(), v2: handles.v2.is_some() };
        let fds = std::iter::once(theirs).chain(handles.tasks).chain(handles.v2).collect();
        let (pidfd, pid) = spawner.clone_one(request, fds)?;
        let jail = Self { control, pidfd, pid };
        verify::load_host_namespaces();
        let made = jail.wait_until_ready()?;
        verify::check(pid, group).map_err(JailError::NotAsPlanned)?;
        Ok(made)
    }

    /// Takes over a container whose init has just connected on `control`.
    ///
    /// The container is checked from outside for the properties that all engines provide.
    pub fn adopt(control: OwnedFd, settings: &InitSettings) -> Result<NewJail, JailError> {
        let failed = |error: rustix::io::Errno| JailError::Control(error.into());
        let peer = rustix::net::sockopt::socket_peercred(&control).map_err(failed)?;
        let pidfd = rustix::process::pidfd_open(peer.pid, PidfdFlags::empty()).map_err(failed)?;
        wire::send(&control, settings, &[]).map_err(|_| JailError::Ended)?;
        let jail = Self { control, pidfd, pid: peer.pid.as_raw_nonzero().get() };
        let made = jail.wait_until_ready()?;
        verify::check_container_init(made.jail.pid).map_err(JailError::NotAsPlanned)?;
        Ok(made)
    }

    /// Takes over a container with its own kernel, whose init has just connected on `control`.
    pub fn adopt_with_own_kernel(
        control: OwnedFd,
        settings: &InitSettings,
        channels: OwnKernelChannels,
    ) -> Result<NewJail, JailError> {
        let failed = |error: rustix::io::Errno| JailError::Control(error.into());
        let kernel = rustix::process::Pid::from_raw(channels.kernel).ok_or(JailError::Ended)?;
        let pidfd = rustix::process::pidfd_open(kernel, PidfdFlags::empty()).map_err(failed)?;
        wire::send(&control, settings, &[]).map_err(|_| JailError::Ended)?;
        let jail = Self { control, pidfd, pid: channels.kernel };
        match wire::receive(&jail.control).map_err(JailError::Control)? {
            Some((InitReport::Ready, _)) => {}
            Some((InitReport::Failed(failure), _)) => return Err(failure.into()),
            _ => return Err(JailError::Ended),
        }
        verify::check_own_kernel(jail.pid).map_err(JailError::NotAsPlanned)?;
        let OwnKernelChannels { models, egress, workspace, .. } = channels;
        Ok(NewJail { jail, models, egress, dns: None, workspace, terminals: None, upper: None })
    }

    /// Waits until the set-up is done.
    fn wait_until_ready(self) -> Result<NewJail, JailError> {
        let jail = self;
        let report = wire::receive(&jail.control).map_err(JailError::Control)?;
        match report {
            Some((InitReport::Ready, mut fds)) if fds.len() >= 4 => {
                // The first four are always sent; the upper layer and the two sockets of the name server may follow.
                let dns = (fds.len() >= 6).then(|| fds.split_off(fds.len() - 2));
                let dns = dns.and_then(|fds| <[OwnedFd; 2]>::try_from(fds).ok());
                let dns = dns.map(|[streams, datagrams]| (streams.into(), datagrams.into()));
                let upper = (fds.len() == 5).then(|| fds.remove(4));
                let terminals = Some(fds.remove(3));
                let workspace = fds.remove(2);
                let egress = TcpListener::from(fds.remove(1));
                let models = TcpListener::from(fds.remove(0));
                Ok(NewJail { jail, models, egress, dns, workspace, terminals, upper })
            }
            Some((InitReport::Failed(failure), _)) => Err(failure.into()),
            _ => Err(JailError::Ended),
        }
    }

    /// Returns the process id of init in the host's PID namespace.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Returns whether processes inside see the names of the host's cgroups. With some engines they do.
    pub fn sees_cgroups(&self) -> bool {
        verify::sees_cgroups(self.pid)
    }

    /// Requests a command; [`Jail::next_event`] returns its events.
    pub fn exec(&self, plan: ExecPlan, stdio: [BorrowedFd<'_>; 3]) -> Result<(), JailError> {
        wire::send(&self.control, &InitRequest::Exec(plan), &stdio).map_err(|_| JailError::Ended)
    }

    /// Kills a command and all its descendants.
    pub fn kill_exec(&self, exec: u64) -> Result<(), JailError> {
        wire::send(&self.control, &InitRequest::Kill { exec }, &[]).map_err(|_| JailError::Ended)
    }

    /// Resizes a terminal that init made inside the sandbox.
    pub fn resize(&self, exec: u64, window: (u16, u16)) -> Result<(), JailError> {
        wire::send(&self.control, &InitRequest::Resize { exec, window }, &[]).map_err(|_| JailError::Ended)
    }

    /// Requests a connection to a port on the loopback inside; [`Jail::next_report`] returns the answer.
    pub fn connect(&self, request: u64, port: u16) -> Result<(), JailError> {
        wire::send(&self.control, &InitRequest::Connect { request, port }, &[]).map_err(|_| JailError::Ended)
    }

    /// Returns the next event of a command; `None` when the sandbox has ended. Blocks like [`Jail::next_report`].
    pub fn next_event(&self) -> io::Result<Option<ExecEvent>> {
        loop {
            match self.next_report()? {
                None => return Ok(None),
                Some(JailEvent::Exec(event)) => return Ok(Some(event)),
                Some(JailEvent::Connection(_)) => {}
            }
        }
    }

    /// Returns the next event; `None` when the sandbox has ended. Blocks, unless [`Jail::control`] was called.
    pub fn next_report(&self) -> io::Result<Option<JailEvent>> {
        let Some((report, mut fds)) = wire::receive(&self.control)? else { return Ok(None) };
        Ok(Some(match report {
            InitReport::Started { exec } => JailEvent::Exec(ExecEvent::Started { exec }),
            InitReport::NotStarted { exec, errno } => JailEvent::Exec(ExecEvent::NotStarted { exec, errno }),
            InitReport::Exited { exec, code, signal, cpu_micros, peak_rss_bytes } => {
                JailEvent::Exec(ExecEvent::Exited { exec, code, signal, cpu_micros, peak_rss_bytes })
            }
            InitReport::Connecting { request } => {
                let socket = fds.pop().ok_or(libc::EPROTO);
                JailEvent::Connection(ConnectionOutcome { request, socket })
            }
            InitReport::NotConnected { request, errno } => {
                JailEvent::Connection(ConnectionOutcome { request, socket: Err(errno) })
            }
            InitReport::Ready | InitReport::Failed(_) => {
                return Err(io::Error::other("init reported its set-up twice"));
            }
        }))
    }

    /// Returns a second handle to the control socket, on which a task can wait for events. From then on
    /// [`Jail::next_report`] fails with `WouldBlock` when there is no event.
    pub fn control(&self) -> io::Result<UnixStream> {
        let socket = UnixStream::from(self.control.try_clone()?);
        socket.set_nonblocking(true)?;
        Ok(socket)
    }

    /// Waits until every process inside has ended; returns the exit code of init. The code is `None` when init was killed
    /// or is not a child of this process. Blocks.
    pub fn wait(&self) -> io::Result<Option<i32>> {
        let mut ended = [PollFd::new(&self.pidfd, PollFlags::IN)];
        rustix::io::retry_on_intr(|| rustix::event::poll(&mut ended, None))?;
        // waitid fails when init is not a child of this process.
        let reaped = rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED);
        Ok(reaped.ok().flatten().and_then(|status| status.exit_status()))
    }

    /// Kills every process of the sandbox. The kernel ends every process of the PID namespace with its init.
    pub fn kill(&self) {
        let signalled = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        if signalled == Err(rustix::io::Errno::PERM) {
            // The init of another user's container cannot be signalled; it exits when its control socket closes.
            let _ = rustix::net::shutdown(&self.control, rustix::net::Shutdown::Both);
        }
    }
}

impl Drop for Jail {
    fn drop(&mut self) {
        self.kill();
    }
}
