//! From a fresh clone to a finished sandbox: the recipe, one paragraph a kernel step.
//!
//! Runs in the new process, which ends up as PID 1 inside: `prepare` while nobody waits, `finish` when there
//! is a plan. Any failure ends the process; there is no half-made sandbox to go on with.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use base::{DNS_PORT, EGRESS_PORT, MODEL_PORT};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Gid, Resource, Signal, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::error::{During, Failure, SetupStep};
use crate::landlock_rules;
use crate::plan::{INSIDE_GID, INSIDE_UID, JailPlan};
use crate::root::Root;
use crate::seccomp::Filters;
use crate::source::Sources;
use crate::sys;

/// What is the same in every sandbox, made before anybody asks for one.
pub(crate) struct Prepared {
    root: Root,
    models: TcpListener,
    egress: TcpListener,
}

/// What the new process is given with its plan.
pub(crate) struct Given<'a> {
    /// Mounts that only the host's root could open; without root they are opened here.
    pub(crate) sources: Option<Sources>,
    /// `tasks` files of v1 cgroups.
    pub(crate) tasks: Vec<OwnedFd>,
    /// Compiled once in the spawner.
    pub(crate) filters: &'a Filters,
}

/// What the host gets from a finished sandbox.
pub(crate) struct Finished {
    /// Listens on the model port inside.
    pub(crate) models: TcpListener,
    /// Listens on the egress port inside.
    pub(crate) egress: TcpListener,
    /// Where names are asked for, if they are.
    pub(crate) names: Option<(TcpListener, UdpSocket)>,
    /// The workspace as it is seen inside.
    pub(crate) workspace: OwnedFd,
    /// Its own instance of devpts.
    pub(crate) terminals: OwnedFd,
    /// The layer that holds the workspace's changes.
    pub(crate) upper: Option<OwnedFd>,
}

/// The first half of the recipe. `go` says when the id maps are written.
pub(crate) fn prepare(go: OwnedFd, privileged: bool) -> Result<Prepared, Failure> {
    // They belong to the namespace of users that this process was born into. The one of control groups follows once
    // they are joined.
    let namespaces = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    sys::unshare(namespaces).during(SetupStep::CloneNamespaces, "")?;

    // Ids inside mean nothing before the spawner has written the maps.
    std::fs::File::from(go).read_exact(&mut [0]).during(SetupStep::MapIds, "uid_map")?;
    become_inside_user(privileged)?;

    let root = Root::start()?;
    root.mount_proc()?;
    root.mount_devices()?;
    rustix::system::sethostname(b"vivarium").during(SetupStep::Hostname, "vivarium")?;

    // The listeners keep the network namespace they are made in: the host accepts on them from outside,
    // and what comes in can only be from this sandbox.
    raise_loopback().during(SetupStep::RaiseLoopback, "lo")?;
    let models = listen(MODEL_PORT).during(SetupStep::BindListeners, MODEL_PORT)?;
    let egress = listen(EGRESS_PORT).during(SetupStep::BindListeners, EGRESS_PORT)?;
    Ok(Prepared { root, models, egress })
}

/// The second half: everything that the plan decides, and the walls.
pub(crate) fn finish(prepared: Prepared, plan: &JailPlan, given: Given<'_>) -> Result<Finished, Failure> {
    let Prepared { root, models, egress } = prepared;
    // `0` in a v1 group's `tasks` moves the caller alone: 0.05 ms, where `cgroup.procs` waits for an RCU
    // period. The kernel asks who opened the file, which was the host.
    for tasks in &given.tasks {
        rustix::io::write(tasks, b"0").during(SetupStep::JoinCgroup, "tasks")?;
    }
    sys::unshare(libc::CLONE_NEWCGROUP).during(SetupStep::CgroupNamespace, "")?;

    // Root's spawner opened the sources with the host's rights. Anybody else can clone mounts only in a
    // namespace of their own, which is this one.
    let sources = match given.sources {
        Some(sources) => sources,
        None => Sources::open(plan, None)?,
    };
    root.resize(plan)?;
    root.fill(plan, &sources)?;
    let upper = root.mount_workspace(&plan.workspace, &sources)?;
    let (workspace, terminals) = (root.open_workspace()?, root.open_terminals()?);
    drop(sources);
    root.enter()?;

    let names = plan.names.then(name_sockets).transpose().during(SetupStep::BindListeners, DNS_PORT)?;

    silence_standard_streams().during(SetupStep::DropCapabilities, "standard streams")?;

    // One and not zero: a host's handler of core dumps is given those of zero too, and runs as the host's root.
    sys::lower_limit(Resource::Core, 1).during(SetupStep::DropCapabilities, "core dumps")?;

    // From here on only less: the order matters, each step needs what the next one takes away.
    drop_capabilities().during(SetupStep::DropCapabilities, "")?;
    rustix::thread::set_no_new_privs(true).during(SetupStep::NoNewPrivileges, "")?;
    if plan.landlock {
        landlock_rules::restrict(plan).during(SetupStep::Landlock, "")?;
    }
    given.filters.install().during(SetupStep::Seccomp, "")?;
    Ok(Finished { models, egress, names, workspace, terminals, upper })
}

/// Takes the ids inside, keeping capabilities in this user namespace for the mounts that follow.
pub(crate) fn become_inside_user(privileged: bool) -> Result<(), Failure> {
    if privileged {
        rustix::thread::set_thread_groups(&[]).during(SetupStep::BecomeInsideUser, "groups")?;
    }
    rustix::thread::set_keep_capabilities(true).during(SetupStep::BecomeInsideUser, "capabilities")?;
    let (uid, gid) = (Uid::from_raw(INSIDE_UID), Gid::from_raw(INSIDE_GID));
    rustix::thread::set_thread_res_gid(gid, gid, gid).during(SetupStep::BecomeInsideUser, INSIDE_GID)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).during(SetupStep::BecomeInsideUser, INSIDE_UID)?;
    // keep_capabilities keeps the permitted set; the effective one is raised again from it.
    let kept = rustix::thread::capabilities(None).during(SetupStep::BecomeInsideUser, "capabilities")?;
    rustix::thread::set_capabilities(None, CapabilitySets { effective: kept.permitted, ..kept })
        .during(SetupStep::BecomeInsideUser, "capabilities")?;
    // The change of ids has hidden this process from its own host, which will look whether everything is as
    // planned. Init hides itself before the first command runs.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
        .during(SetupStep::BecomeInsideUser, "dumpable")?;
    // It has also cleared the signal that ends us with the spawner.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .during(SetupStep::BecomeInsideUser, "death signal")
}

/// Gives the calling thread, and it alone, a network with nothing but loopback. Only root can.
pub fn leave_network() -> io::Result<()> {
    sys::unshare(libc::CLONE_NEWNET)?;
    raise_loopback()
}

fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sys::raise_loopback(socket.as_fd())
}

/// Connections that may wait to be accepted. With the 128 of the standard library, the 129th of a burst is dropped, and
/// comes again only after a second.
const BACKLOG: i32 = 4096;

/// A listener on loopback, at which many may call at once.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Where names are asked for: a port for which a capability is needed, which is still there.
pub(crate) fn name_sockets() -> io::Result<(TcpListener, UdpSocket)> {
    Ok((listen(DNS_PORT)?, UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, DNS_PORT))?))
}

/// The spawner's own streams are the host's: commands inside get theirs with each request.
pub(crate) fn silence_standard_streams() -> io::Result<()> {
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty())?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}

fn drop_capabilities() -> io::Result<()> {
    rustix::thread::clear_ambient_capability_set()?;
    for capability in CapabilitySet::all().iter() {
        match rustix::thread::remove_capability_from_bounding_set(capability) {
            // A capability this kernel does not know.
            Ok(()) | Err(rustix::io::Errno::INVAL) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let none = CapabilitySet::empty();
    rustix::thread::set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::net::TcpStream;
    use std::time::Duration;

    use super::*;

    #[test]
    fn five_hundred_can_call_at_once_and_wait() {
        let listener = listen(0).expect("listener");
        let at = listener.local_addr().expect("address");
        // Nobody accepts: who does not fit gets no answer until the call is given up.
        let calls: Vec<_> = (0..500).map(|_| TcpStream::connect_timeout(&at, Duration::from_secs(30))).collect();
        assert!(calls.iter().all(Result::is_ok), "{:?}", calls.iter().find(|call| call.is_err()));
    }
}
