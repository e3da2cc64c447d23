//! The recipe that turns a fresh clone into a finished sandbox, with one paragraph for each kernel step.
//!
//! It runs in the new process, which becomes PID 1 inside: `prepare` before the plan is known, `finish` when it is. Any
//! failure ends the process, so a half-made sandbox is never used.

use std::io::{self, Read};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};

use base::{DNS_PORT, EGRESS_PORT, MODEL_PORT};
use rustix::fs::{Mode, OFlags};
use rustix::net::{AddressFamily, SocketFlags, SocketType};
use rustix::process::{DumpableBehavior, Gid, Resource, Signal, Uid};
use rustix::thread::{CapabilitySet, CapabilitySets};

use crate::error::{During, SetupFailure, SetupStep};
use crate::landlock_rules;
use crate::mount_sources::MountSources;
use crate::plan::{INSIDE_GID, INSIDE_UID, JailPlan};
use crate::private_root::PrivateRoot;
use crate::seccomp::Filters;
use crate::sys;

/// The parts that are the same in every sandbox, made before the plan is known.
pub(crate) struct PreparedSandbox {
    root: PrivateRoot,
    models: TcpListener,
    egress: TcpListener,
}

/// Inputs that the new process receives with its plan.
pub(crate) struct PlanInputs<'a> {
    /// Mounts that the host's root has opened; `None` without root, where this process opens them.
    pub(crate) sources: Option<MountSources>,
    /// The `tasks` files of v1 cgroups.
    pub(crate) tasks: Vec<OwnedFd>,
    /// The filters, compiled once in the spawner.
    pub(crate) filters: &'a Filters,
}

/// The descriptors that a finished sandbox passes to the host.
pub(crate) struct FinishedSandbox {
    /// Listens on the model port inside the sandbox.
    pub(crate) models: TcpListener,
    /// Listens on the egress port inside the sandbox.
    pub(crate) egress: TcpListener,
    /// The sockets of the name server inside, if the plan has one.
    pub(crate) dns: Option<(TcpListener, UdpSocket)>,
    /// The workspace as commands inside see it.
    pub(crate) workspace: OwnedFd,
    /// The sandbox's own instance of devpts.
    pub(crate) terminals: OwnedFd,
    /// The layer that holds the workspace's changes.
    pub(crate) upper: Option<OwnedFd>,
}

/// The first half of the recipe. A byte on `go` says that the id maps are written.
pub(crate) fn prepare(go: OwnedFd, privileged: bool) -> Result<PreparedSandbox, SetupFailure> {
    // These namespaces belong to the user namespace that this process was cloned into. The cgroup namespace follows once
    // the cgroups are joined.
    let namespaces = libc::CLONE_NEWNS | libc::CLONE_NEWNET | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
    sys::unshare(namespaces).during(SetupStep::CloneNamespaces, "")?;

    // Ids inside have no meaning before the spawner has written the maps.
    std::fs::File::from(go).read_exact(&mut [0]).during(SetupStep::MapIds, "uid_map")?;
    become_inside_user(privileged)?;

    let root = PrivateRoot::start()?;
    root.mount_proc()?;
    root.mount_devices()?;
    rustix::system::sethostname(b"vivarium").during(SetupStep::Hostname, "vivarium")?;

    // A listener belongs to the network namespace it was made in: the host accepts on it from outside, and every
    // connection comes from this sandbox.
    raise_loopback().during(SetupStep::RaiseLoopback, "lo")?;
    let models = listen(MODEL_PORT).during(SetupStep::BindListeners, MODEL_PORT)?;
    let egress = listen(EGRESS_PORT).during(SetupStep::BindListeners, EGRESS_PORT)?;
    Ok(PreparedSandbox { root, models, egress })
}

/// The second half: everything that depends on the plan, and the restrictions.
pub(crate) fn finish(
    prepared: PreparedSandbox,
    plan: &JailPlan,
    inputs: PlanInputs<'_>,
) -> Result<FinishedSandbox, SetupFailure> {
    let PreparedSandbox { root, models, egress } = prepared;
    // Writing `0` to a v1 group's `tasks` moves only the caller and takes 0.05 ms; `cgroup.procs` waits for an RCU grace
    // period. The kernel checks the rights of the process that opened the file, which was the host.
    for tasks in &inputs.tasks {
        rustix::io::write(tasks, b"0").during(SetupStep::JoinCgroup, "tasks")?;
    }
    sys::unshare(libc::CLONE_NEWCGROUP).during(SetupStep::CgroupNamespace, "")?;

    // A spawner of root opened the sources with the host's rights. Any other user can clone mounts only in their own
    // namespace, which is this one.
    let sources = match inputs.sources {
        Some(sources) => sources,
        None => MountSources::open(plan, None)?,
    };
    root.resize(plan)?;
    root.fill(plan, &sources)?;
    let upper = root.mount_workspace(plan, &sources)?;
    let (workspace, terminals) = (root.open_workspace(plan)?, root.open_terminals()?);
    drop(sources);
    root.enter()?;

    let dns = plan.dns.then(dns_sockets).transpose().during(SetupStep::BindListeners, DNS_PORT)?;

    silence_standard_streams().during(SetupStep::DropCapabilities, "standard streams")?;

    // One and not zero: with zero the kernel still runs the host's core dump handler, as the host's root.
    sys::lower_limit(Resource::Core, 1).during(SetupStep::DropCapabilities, "core dumps")?;

    // From here on privileges only shrink. The order matters: each step needs a right that a later one takes away.
    drop_capabilities().during(SetupStep::DropCapabilities, "")?;
    rustix::thread::set_no_new_privs(true).during(SetupStep::NoNewPrivileges, "")?;
    if plan.landlock {
        landlock_rules::restrict(plan).during(SetupStep::Landlock, "")?;
    }
    inputs.filters.install().during(SetupStep::Seccomp, "")?;
    Ok(FinishedSandbox { models, egress, dns, workspace, terminals, upper })
}

/// Switches to the sandbox user, keeping capabilities in this user namespace for the mounts that follow.
pub(crate) fn become_inside_user(privileged: bool) -> Result<(), SetupFailure> {
    if privileged {
        rustix::thread::set_thread_groups(&[]).during(SetupStep::BecomeInsideUser, "groups")?;
    }
    rustix::thread::set_keep_capabilities(true).during(SetupStep::BecomeInsideUser, "capabilities")?;
    let (uid, gid) = (Uid::from_raw(INSIDE_UID), Gid::from_raw(INSIDE_GID));
    rustix::thread::set_thread_res_gid(gid, gid, gid).during(SetupStep::BecomeInsideUser, INSIDE_GID)?;
    rustix::thread::set_thread_res_uid(uid, uid, uid).during(SetupStep::BecomeInsideUser, INSIDE_UID)?;
    // keep_capabilities keeps the permitted set; the effective set is raised again from it.
    let kept = rustix::thread::capabilities(None).during(SetupStep::BecomeInsideUser, "capabilities")?;
    rustix::thread::set_capabilities(None, CapabilitySets { effective: kept.permitted, ..kept })
        .during(SetupStep::BecomeInsideUser, "capabilities")?;
    // The change of ids has hidden this process from its host, which will verify it through /proc. Init hides itself
    // before the first command runs.
    rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable)
        .during(SetupStep::BecomeInsideUser, "dumpable")?;
    // The change of ids has also cleared the signal that ends this process with the spawner.
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .during(SetupStep::BecomeInsideUser, "death signal")
}

/// Moves only the calling thread into a new network with nothing but loopback. Needs root.
pub fn isolate_network() -> io::Result<()> {
    sys::unshare(libc::CLONE_NEWNET)?;
    raise_loopback()
}

fn raise_loopback() -> io::Result<()> {
    let socket = rustix::net::socket_with(AddressFamily::INET, SocketType::DGRAM, SocketFlags::CLOEXEC, None)?;
    sys::raise_loopback(socket.as_fd())
}

/// The number of connections that may wait to be accepted. With the standard library's 128, the 129th connection of a
/// burst is dropped, and the client retries only after a second.
const BACKLOG: i32 = 4096;

/// Returns a listener on loopback that takes bursts of connections.
pub fn listen(port: u16) -> io::Result<TcpListener> {
    let listener = TcpListener::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, port))?;
    rustix::net::listen(&listener, BACKLOG)?;
    Ok(listener)
}

/// Returns the sockets of the name server. Port 53 needs a capability, which this process still has.
pub(crate) fn dns_sockets() -> io::Result<(TcpListener, UdpSocket)> {
    Ok((listen(DNS_PORT)?, UdpSocket::bind(SocketAddrV4::new(Ipv4Addr::LOCALHOST, DNS_PORT))?))
}

/// Points the standard streams to /dev/null. The spawner's streams are the host's; each command gets its own.
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
            // `INVAL`: this kernel does not know the capability.
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
    fn backlog_holds_five_hundred_connections() {
        let listener = listen(0).expect("listener");
        let address = listener.local_addr().expect("address");
        // Nothing accepts: a connection that does not fit the backlog times out.
        let connect = |_| TcpStream::connect_timeout(&address, Duration::from_secs(30));
        let connections: Vec<_> = (0..500).map(connect).collect();
        assert!(connections.iter().all(Result::is_ok), "{:?}", connections.iter().find(|result| result.is_err()));
    }
}
