//! Our init in a sandbox that an engine has made: a container, whatever runs it.
//!
//! The engine gives namespaces, a root, limits and a user without capabilities. From there it is as in a jail: the
//! init calls the host over the one socket that is mounted, passes the listeners and the workspace out, puts itself
//! under the same filters of system calls, and starts commands until the host lets go.
//!
//! Not here: anything an engine does, and any step that needs a capability.

use std::io;
use std::net::{TcpListener, UdpSocket};
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::net::UnixListener;
use std::path::Path;

use rustix::fs::{AtFlags, Mode, OFlags, open};
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Resource};
use serde::{Deserialize, Serialize};

use crate::error::{During, Failure, Step};
use crate::init::{self, HouseRules, InitReport, Stay};
use crate::plan::{EGRESS_PORT, MODEL_PORT, NAMES_PORT, ProcessLimits, WORKSPACE};
use crate::seccomp::Filters;
use crate::setup::{listen, name_sockets, silence_standard_streams};
use crate::{sys, wire};

/// What the init is told when it has called.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct GuestOrder {
    /// Limits of each process.
    pub process: ProcessLimits,
    /// Whether names are asked for inside.
    pub names: bool,
}

/// Where the init of one sandbox calls: once, and nobody after it.
#[derive(Debug)]
pub struct Door;

impl Door {
    /// The name of the socket in its directory.
    pub const SOCKET: &str = "control";

    /// Opens a door in `directory`, which holds nothing else and is all of it that is mounted. It does not block,
    /// and keeps the borders of messages: what is accepted is for [`crate::Jail::adopt`].
    pub fn open(directory: &Path) -> io::Result<UnixListener> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let listener = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None)?;
        // By descriptor: the name of a socket may have a hundred letters, that of a directory many more.
        let held = open(directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
        let path = format!("/proc/self/fd/{}/{}", held.as_raw_fd(), Self::SOCKET);
        rustix::net::bind(&listener, &SocketAddrUnix::new(path.as_str())?)?;
        // Who may come here is who the directory is mounted for: the user inside is nobody's owner.
        rustix::fs::chmodat(&held, Self::SOCKET, Mode::from_raw_mode(0o666), AtFlags::empty())?;
        rustix::net::listen(&listener, 1)?;
        Ok(listener.into())
    }
}

/// The life of the init in a container: calls at `socket`, and serves until nobody listens. The exit code.
pub fn serve_guest(socket: &Path) -> i32 {
    let Ok(control) = call(socket) else { return 1 };
    let Ok(Some((order, _))) = wire::receive::<GuestOrder>(&control) else { return 1 };
    let filters = Filters::compile();
    let opened = match prepare(&filters, order.names) {
        Ok(opened) => opened,
        Err(failure) => {
            let _ = wire::send(&control, &InitReport::Failed(failure), &[]);
            return 1;
        }
    };
    let mut fds =
        vec![opened.models.as_fd(), opened.egress.as_fd(), opened.workspace.as_fd(), opened.terminals.as_fd()];
    fds.extend(opened.names.iter().flat_map(|(streams, datagrams)| [streams.as_fd(), datagrams.as_fd()]));
    if wire::send(&control, &InitReport::Ready, &fds).is_err() {
        return 1;
    }
    drop(opened);
    if sys::close_all_but(control.as_fd()).is_err() {
        return 1;
    }
    let house = HouseRules { limits: order.process, stay: Stay::UntilLetGo, filters: &filters };
    i32::from(init::serve(&control, &house).is_err())
}

fn call(socket: &Path) -> io::Result<OwnedFd> {
    let control = rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&control, &SocketAddrUnix::new(socket)?)?;
    Ok(control)
}

/// What goes out to the host.
struct Opened {
    models: TcpListener,
    egress: TcpListener,
    names: Option<(TcpListener, UdpSocket)>,
    workspace: OwnedFd,
    terminals: OwnedFd,
}

fn prepare(filters: &Filters, names: bool) -> Result<Opened, Failure> {
    let place = |path: &str| open(path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
    let opened = Opened {
        models: listen(MODEL_PORT).during(Step::BindListeners, MODEL_PORT)?,
        egress: listen(EGRESS_PORT).during(Step::BindListeners, EGRESS_PORT)?,
        // Engines let every user inside bind a low port; one that does not cannot have this.
        names: names.then(name_sockets).transpose().during(Step::BindListeners, NAMES_PORT)?,
        workspace: place(WORKSPACE).during(Step::MountWorkspace, WORKSPACE)?,
        terminals: place("/dev/pts").during(Step::MountDevices, "pts")?,
    };
    silence_standard_streams().during(Step::DropCapabilities, "standard streams")?;
    // One and not zero: a host's handler of core dumps is given those of zero too, and runs as the host's root.
    sys::lower_limit(Resource::Core, 1).during(Step::DropCapabilities, "core dumps")?;
    // The host looks whether everything is as planned. Init hides itself before the first command runs.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).during(Step::Report, "dumpable")?;
    rustix::thread::set_no_new_privs(true).during(Step::NoNewPrivileges, "")?;
    filters.install().during(Step::Seccomp, "")?;
    Ok(opened)
}
