//! The init of a container: the first process in a sandbox that a container engine made.
//!
//! The engine provides namespaces, a root, limits and a user without capabilities. The init then works as in a jail: it
//! connects to the host over the one mounted socket, passes the listeners and the workspace out, installs the same system
//! call filters, and starts commands until the host disconnects.
//!
//! A container with its own kernel, such as gVisor, cannot pass descriptors out. There the init relays instead: ports to
//! sockets beside its own (`relay`), and terminals through pipes (`console`).
//!
//! Not here: the engine's own work, and any step that needs a capability.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use base::{EGRESS_PORT, MODEL_PORT, WORKSPACE};
use rustix::fs::{AtFlags, Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Resource};
use serde::{Deserialize, Serialize};

use crate::error::{During, SetupFailure, SetupStep};
use crate::init::{self, CommandRules, InitLifetime, InitReport};
use crate::plan::ProcessLimits;
use crate::process_tag::ProcessTag;
use crate::seccomp::Filters;
use crate::setup::{listen, silence_standard_streams};
use crate::{relay, sys, wire};

/// The kernel that handles the system calls of commands inside the sandbox.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum ContainerKernel {
    /// The host's kernel, as in most containers.
    Host,
    /// The container's own kernel, such as gVisor. Descriptors can be sent in but not out.
    Own,
}

/// The settings that the host sends when the init has connected.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct InitSettings {
    /// The kernel that the container runs on.
    pub kernel: ContainerKernel,
    /// The limits of each process.
    pub process: ProcessLimits,
}

/// The sockets of one container. The init connects once, before the first command runs.
#[derive(Debug)]
pub struct InitSocket;

impl InitSocket {
    /// The name of the socket in its directory.
    pub const SOCKET: &str = "control";
    /// The name of the socket to which the model port is relayed, when its listener cannot be passed out.
    pub const MODELS: &str = "models";
    /// The name of the socket to which the egress port is relayed.
    pub const EGRESS: &str = "egress";

    /// Opens the control socket in `directory`, which is mounted inside and must hold only sockets. The listener does not
    /// block and keeps message boundaries. Pass the accepted connection to [`crate::Jail::adopt`].
    pub fn open(directory: &Path) -> io::Result<UnixListener> {
        Self::listen(directory, Self::SOCKET, SocketType::SEQPACKET, 1)
    }

    /// Opens the sockets to which the two ports are relayed: models, then egress.
    pub fn open_port_sockets(directory: &Path) -> io::Result<[UnixListener; 2]> {
        let open = |name| Self::listen(directory, name, SocketType::STREAM, 1024);
        Ok([open(Self::MODELS)?, open(Self::EGRESS)?])
    }

    fn listen(directory: &Path, name: &str, kind: SocketType, backlog: i32) -> io::Result<UnixListener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        // Bound through a descriptor: a socket's path is limited to 108 bytes, a directory's is not.
        let parent = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = format!("/proc/self/fd/{}/{}", parent.as_raw_fd(), name);
        rustix::net::bind(&listener, &SocketAddrUnix::new(path.as_str())?)?;
        // The sandbox user owns nothing on the host. Only the container in which the directory is mounted can get here.
        rustix::fs::chmodat(&parent, name, Mode::from_raw_mode(0o666), AtFlags::empty())?;
        rustix::net::listen(&listener, backlog)?;
        Ok(listener.into())
    }
}

/// Runs the init of a container: connects to `socket` and serves until the host disconnects. Returns the exit code.
pub fn serve_container_init(socket: &Path) -> i32 {
    let Ok(control) = connect(socket) else { return 1 };
    let Ok(Some((settings, _))) = wire::receive::<InitSettings>(&control) else { return 1 };
    let tag =
        if settings.kernel == ContainerKernel::Own { ProcessTag::ResidentLimit } else { ProcessTag::RealtimeLimit };
    let filters = Filters::compile(tag);
    let prepared = match settings.kernel {
        ContainerKernel::Host => pass_listeners_out(&control, &filters),
        ContainerKernel::Own => relay_ports(&control, &filters, socket),
    };
    if let Err(failure) = prepared {
        let _ = wire::send(&control, &InitReport::Failed(failure), &[]);
        return 1;
    }
    let rules =
        CommandRules { limits: settings.process, lifetime: InitLifetime::UntilDisconnected, filters: &filters, tag };
    i32::from(init::serve(&control, &rules).is_err())
}

/// Opens the listeners, the workspace and the terminals, and passes them to the host.
fn pass_listeners_out(control: &OwnedFd, filters: &Filters) -> Result<(), SetupFailure> {
    let directory = |path: &str| open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let models = listen(MODEL_PORT).during(SetupStep::BindListeners, MODEL_PORT)?;
    let egress = listen(EGRESS_PORT).during(SetupStep::BindListeners, EGRESS_PORT)?;
    let workspace = directory(WORKSPACE).during(SetupStep::MountWorkspace, WORKSPACE)?;
    let terminals = directory("/dev/pts").during(SetupStep::MountDevices, "pts")?;
    confine(filters)?;
    let fds = [models.as_fd(), egress.as_fd(), workspace.as_fd(), terminals.as_fd()];
    wire::send(control, &InitReport::Ready, &fds).during(SetupStep::Report, "descriptors")?;
    drop((models, egress, workspace, terminals));
    sys::close_all_but(control.as_fd()).during(SetupStep::Report, "other descriptors")
}

/// Relays connections to the two ports to the sockets beside `socket`, because no descriptor can be passed out.
fn relay_ports(control: &OwnedFd, filters: &Filters, socket: &Path) -> Result<(), SetupFailure> {
    sys::close_all_but(control.as_fd()).during(SetupStep::Report, "other descriptors")?;
    confine(filters)?;
    // Blocked before the relay's threads start, so that only init's thread receives SIGCHLD.
    sys::block_signals(true);
    let directory = socket.parent().unwrap_or(socket);
    relay::start(directory).during(SetupStep::BindListeners, MODEL_PORT)?;
    wire::send(control, &InitReport::Ready, &[]).during(SetupStep::Report, "ready")
}

fn connect(socket: &Path) -> io::Result<OwnedFd> {
    let control = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&control, &SocketAddrUnix::new(socket)?)?;
    Ok(control)
}

/// Restricts this process and everything it starts.
fn confine(filters: &Filters) -> Result<(), SetupFailure> {
    silence_standard_streams().during(SetupStep::DropCapabilities, "standard streams")?;
    // One and not zero: with zero the kernel still runs the host's core dump handler, as the host's root.
    sys::lower_limit(Resource::Core, 1).during(SetupStep::DropCapabilities, "core dumps")?;
    // The host verifies this process through /proc. Init hides itself before the first command runs.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).during(SetupStep::Report, "dumpable")?;
    rustix::thread::set_no_new_privs(true).during(SetupStep::NoNewPrivileges, "")?;
    filters.install().during(SetupStep::Seccomp, "")
}
