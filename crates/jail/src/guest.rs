//! Our init in a sandbox that an engine has made: a container, whatever runs it.
//!
//! The engine gives namespaces, a root, limits and a user without capabilities. From there it is as in a jail: the
//! init calls the host over the one socket that is mounted, passes the listeners and the workspace out, puts itself
//! under the same filters of system calls, and starts commands until the host lets go.
//!
//! Where the sandbox has a kernel of its own, which lets no descriptor out, the init carries instead: the ports to
//! sockets beside its own (`relay`), terminals through pipes (`console`).
//!
//! Not here: anything an engine does, and any step that needs a capability.

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use base::{EGRESS_PORT, MODEL_PORT, WORKSPACE};
use rustix::fs::{AtFlags, Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Resource};
use serde::{Deserialize, Serialize};

use crate::error::{During, Failure, SetupStep};
use crate::init::{self, HouseRules, InitReport, Stay};
use crate::mark::Mark;
use crate::plan::ProcessLimits;
use crate::seccomp::Filters;
use crate::setup::{listen, silence_standard_streams};
use crate::{relay, sys, wire};

/// Whose kernel answers the calls of commands inside.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum GuestKernel {
    /// The host's, as in most containers.
    Host,
    /// One of the sandbox's own, such as gVisor: descriptors come in, but none goes out.
    Own,
}

/// What the init is told when it has called.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuestOrder {
    /// Whose kernel it will find.
    pub kernel: GuestKernel,
    /// Limits of each process.
    pub process: ProcessLimits,
}

/// Where the init of one sandbox calls: once, and nobody after it.
#[derive(Debug)]
pub struct GuestSocket;

impl GuestSocket {
    /// The name of the socket in its directory.
    pub const SOCKET: &str = "control";
    /// The name of the socket to which the port of models is carried, where it cannot be passed out.
    pub const MODELS: &str = "models";
    /// The same, of everything else that is allowed.
    pub const EGRESS: &str = "egress";

    /// Opens a door in `directory`, which holds nothing but sockets and is all of it that is mounted. It does not
    /// block, and keeps the borders of messages: what is accepted is for [`crate::Jail::adopt`].
    pub fn open(directory: &Path) -> io::Result<UnixListener> {
        Self::listen(directory, Self::SOCKET, SocketType::SEQPACKET, 1)
    }

    /// Opens the sockets beside it to which the two ports are carried: models, then everything else.
    pub fn open_ways(directory: &Path) -> io::Result<[UnixListener; 2]> {
        let open = |name| Self::listen(directory, name, SocketType::STREAM, 1024);
        Ok([open(Self::MODELS)?, open(Self::EGRESS)?])
    }

    fn listen(directory: &Path, name: &str, kind: SocketType, backlog: i32) -> io::Result<UnixListener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, kind, flags, None)?;
        // By descriptor: the name of a socket may have a hundred letters, that of a directory many more.
        let held = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = format!("/proc/self/fd/{}/{}", held.as_raw_fd(), name);
        rustix::net::bind(&listener, &SocketAddrUnix::new(path.as_str())?)?;
        // Who may come here is who the directory is mounted for: the user inside is nobody's owner.
        rustix::fs::chmodat(&held, name, Mode::from_raw_mode(0o666), AtFlags::empty())?;
        rustix::net::listen(&listener, backlog)?;
        Ok(listener.into())
    }
}

/// The life of the init in a container: calls at `socket`, and serves until nobody listens. The exit code.
pub fn serve_guest(socket: &Path) -> i32 {
    let Ok(control) = call(socket) else { return 1 };
    let Ok(Some((order, _))) = wire::receive::<GuestOrder>(&control) else { return 1 };
    let mark = if order.kernel == GuestKernel::Own { Mark::OfAnother } else { Mark::OfTheHost };
    let filters = Filters::compile(mark);
    let prepared = match order.kernel {
        GuestKernel::Host => pass_out(&control, &filters),
        GuestKernel::Own => carry_out(&control, &filters, socket),
    };
    if let Err(failure) = prepared {
        let _ = wire::send(&control, &InitReport::Failed(failure), &[]);
        return 1;
    }
    let house = HouseRules { limits: order.process, stay: Stay::UntilLetGo, filters: &filters, mark };
    i32::from(init::serve(&control, &house).is_err())
}

/// Opens what the host is to have, and passes it out.
fn pass_out(control: &OwnedFd, filters: &Filters) -> Result<(), Failure> {
    let place = |path: &str| open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let models = listen(MODEL_PORT).during(SetupStep::BindListeners, MODEL_PORT)?;
    let egress = listen(EGRESS_PORT).during(SetupStep::BindListeners, EGRESS_PORT)?;
    let workspace = place(WORKSPACE).during(SetupStep::MountWorkspace, WORKSPACE)?;
    let terminals = place("/dev/pts").during(SetupStep::MountDevices, "pts")?;
    close_in(filters)?;
    let fds = [models.as_fd(), egress.as_fd(), workspace.as_fd(), terminals.as_fd()];
    wire::send(control, &InitReport::Ready, &fds).during(SetupStep::Report, "descriptors")?;
    drop((models, egress, workspace, terminals));
    sys::close_all_but(control.as_fd()).during(SetupStep::Report, "other descriptors")
}

/// Nothing can be passed out: what comes to the ports is carried to the sockets beside `socket`.
fn carry_out(control: &OwnedFd, filters: &Filters, socket: &Path) -> Result<(), Failure> {
    sys::close_all_but(control.as_fd()).during(SetupStep::Report, "other descriptors")?;
    close_in(filters)?;
    // Children are told of to the one thread that starts them.
    sys::block_signals(true);
    let door = socket.parent().unwrap_or(socket);
    relay::start(door).during(SetupStep::BindListeners, MODEL_PORT)?;
    wire::send(control, &InitReport::Ready, &[]).during(SetupStep::Report, "ready")
}

fn call(socket: &Path) -> io::Result<OwnedFd> {
    let control = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&control, &SocketAddrUnix::new(socket)?)?;
    Ok(control)
}

/// What everything inside is under from here on.
fn close_in(filters: &Filters) -> Result<(), Failure> {
    silence_standard_streams().during(SetupStep::DropCapabilities, "standard streams")?;
    // One and not zero: a host's handler of core dumps is given those of zero too, and runs as the host's root.
    sys::lower_limit(Resource::Core, 1).during(SetupStep::DropCapabilities, "core dumps")?;
    // The host looks whether everything is as planned. Init hides itself before the first command runs.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).during(SetupStep::Report, "dumpable")?;
    rustix::thread::set_no_new_privs(true).during(SetupStep::NoNewPrivileges, "")?;
    filters.install().during(SetupStep::Seccomp, "")
}
