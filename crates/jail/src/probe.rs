//! Probes of kernel features: tries each feature that a sandbox needs, one at a time.
//!
//! Each probe runs in its own process, which ends at once. So a probe leaves nothing behind, and its failure does not
//! affect the others.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, mkdirat};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::cgroup::{Cgroup, CgroupController, CgroupLimits, CgroupRoot};
use crate::host_user::HostUser;
use crate::mount_sources::clone_tree;
use crate::private_root;
use crate::seccomp::Filters;
use crate::setup;
use crate::sys::{self, CloneSide, attr};

/// The result of probing one feature.
#[derive(Debug)]
pub struct FeatureProbe {
    /// The name of the feature.
    pub name: &'static str,
    /// A description of what was found, or the error of the kernel.
    pub outcome: io::Result<String>,
}

/// Probes every kernel feature that a sandbox needs. This process must have one thread.
pub fn probe_kernel() -> Vec<FeatureProbe> {
    let user = libc::CLONE_NEWUSER;
    let namespaces = [
        ("user namespace", 0),
        ("mount namespace", libc::CLONE_NEWNS),
        ("pid namespace", libc::CLONE_NEWPID),
        ("network namespace", libc::CLONE_NEWNET),
        ("ipc namespace", libc::CLONE_NEWIPC),
        ("uts namespace", libc::CLONE_NEWUTS),
        ("cgroup namespace", libc::CLONE_NEWCGROUP),
    ];
    let made =
        |name, flags| FeatureProbe { name, outcome: in_child(user | flags, || Ok(())).map(|()| "made".to_owned()) };
    let mut probes: Vec<FeatureProbe> = namespaces.into_iter().map(|(name, flags)| made(name, flags)).collect();
    probes.push(FeatureProbe { name: "overlayfs", outcome: overlay() });
    probes.push(FeatureProbe { name: "idmapped mount", outcome: idmap() });
    probes.push(FeatureProbe {
        name: "landlock",
        outcome: sys::landlock_version().map(|version| format!("version {version}")),
    });
    probes.push(FeatureProbe { name: "seccomp", outcome: seccomp() });
    probes
}

/// Probes the cgroup limits: makes a group, sets each limit, reads it back, and lets a process join.
pub fn probe_limits() -> Vec<FeatureProbe> {
    let root = CgroupRoot::probe();
    let limits = [
        (
            "memory limit",
            CgroupController::Memory,
            CgroupLimits { memory_bytes: Some(64 << 20), ..CgroupLimits::default() },
        ),
        (
            "socket memory",
            CgroupController::Memory,
            CgroupLimits { memory_bytes: Some(64 << 20), socket_bytes: Some(16 << 20), ..CgroupLimits::default() },
        ),
        ("pids limit", CgroupController::Pids, CgroupLimits { pids: Some(16), ..CgroupLimits::default() }),
        ("cpu limit", CgroupController::Cpu, CgroupLimits { cpu_millis: Some(500), ..CgroupLimits::default() }),
    ];
    let attempt = |controller, limits: &CgroupLimits| {
        let root = root.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let Some(hierarchy) = root.hierarchy(controller) else {
            return Err(io::Error::other("no cgroup this user may use"));
        };
        let group = root.create(limits)?;
        group.read_back(controller, limits)?;
        join(&group)?;
        Ok(format!("{hierarchy}, set, read back and joined"))
    };
    limits.map(|(name, controller, limits)| FeatureProbe { name, outcome: attempt(controller, &limits) }).into()
}

/// Mounts an overlay with a writable layer on a tmpfs, as for a workspace, and writes to it.
fn overlay() -> io::Result<String> {
    in_child(libc::CLONE_NEWUSER | libc::CLONE_NEWNS, || {
        let privileged = HostUser::for_sandboxes().differs_from_caller();
        setup::become_inside_user(privileged).map_err(|failure| io::Error::from_raw_os_error(failure.errno))?;
        private_root::make_mounts_private()?;
        let space = private_root::tmpfs(1 << 20, 64, 0o700)?;
        private_root::attach(&space, rustix::fs::CWD, "/tmp")?;
        for name in ["lower", "upper", "work"] {
            mkdirat(&space, name, Mode::from_raw_mode(0o755))?;
        }
        let options = [("lowerdir", "/tmp/lower"), ("upperdir", "/tmp/upper"), ("workdir", "/tmp/work")];
        let merged = private_root::new_fs("overlay", &["userxattr"], &options)?;
        private_root::attach(&merged, &space, "lower")?;
        let file =
            rustix::fs::openat(&space, "lower/new", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o600))?;
        drop(file);
        rustix::fs::statat(&space, "upper/new", rustix::fs::AtFlags::empty()).map(drop)?;
        Ok(())
    })
    .map(|()| "mounted without root, and written through".to_owned())
}

/// Mounts a directory so that its owner appears as the sandbox user. Only root needs this: any other user is that owner.
fn idmap() -> io::Result<String> {
    if !HostUser::for_sandboxes().differs_from_caller() {
        return Ok("not needed: files belong to the caller".to_owned());
    }
    let (wait, hold) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::clone_process(libc::CLONE_NEWUSER.cast_unsigned().into(), None)? {
        CloneSide::Child => {
            drop(hold);
            let _ = rustix::io::read(&wait, &mut [0; 1]);
            sys::exit_now(0)
        }
        CloneSide::Parent { pidfd, pid } => {
            let mapped =
                HostUser::for_sandboxes().map(pid).map_err(|failure| io::Error::from_raw_os_error(failure.errno));
            let attempt = mapped.and_then(|()| {
                let path = format!("/proc/{}/ns/user", pid.as_raw_nonzero());
                let owners = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                let tree = clone_tree(Path::new("/tmp"))?;
                sys::mount_setattr(tree.as_fd(), attr::IDMAP, false, Some(owners.as_fd()))
            });
            drop(hold);
            wait_for(&pidfd)?;
            attempt.map(|()| "a directory's owner is shown as the sandbox user".to_owned())
        }
    }
}

/// Installs the filter and makes a call that it must refuse.
fn seccomp() -> io::Result<String> {
    in_child(0, || {
        rustix::thread::set_no_new_privs(true)?;
        Filters::compile(crate::process_tag::ProcessTag::RealtimeLimit).install()?;
        match rustix::fs::openat2(
            rustix::fs::CWD,
            Path::new("/"),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            rustix::fs::ResolveFlags::empty(),
        ) {
            Err(rustix::io::Errno::NOSYS) => Ok(()),
            _ => Err(io::Error::other("a filtered system call was not refused")),
        }
    })
    .map(|()| "installed, and refuses a filtered call".to_owned())
}

/// Lets a process join `group`.
fn join(group: &Cgroup) -> io::Result<()> {
    let handles = group.open_handles()?;
    let into = handles.v2.as_ref().map(AsFd::as_fd);
    match sys::clone_process(0, into)? {
        CloneSide::Child => {
            let joined = handles.tasks.iter().try_for_each(|tasks| rustix::io::write(tasks, b"0").map(drop));
            sys::exit_now(joined.map_or_else(rustix::io::Errno::raw_os_error, |()| 0))
        }
        CloneSide::Parent { pidfd, .. } => wait_for(&pidfd),
    }
}

/// Runs `body` in a new process with new `namespaces`; returns its error.
fn in_child(namespaces: i32, body: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (go, go_sender) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::clone_process(namespaces.cast_unsigned().into(), None)? {
        CloneSide::Child => {
            drop(go_sender);
            let mapped = std::fs::File::from(go).read_exact(&mut [0]);
            let outcome = mapped.and_then(|()| body());
            sys::exit_now(outcome.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0))
        }
        CloneSide::Parent { pidfd, pid } => {
            let mapped =
                if namespaces & libc::CLONE_NEWUSER == 0 { Ok(()) } else { HostUser::for_sandboxes().map(pid) };
            if mapped.is_ok() {
                rustix::io::write(&go_sender, b"g")?;
            }
            drop(go_sender);
            let ended = wait_for(&pidfd);
            mapped.map_err(|failure| io::Error::from_raw_os_error(failure.errno)).and(ended)
        }
    }
}

/// Waits for a child, whose exit code is an error number or zero.
fn wait_for(pidfd: &OwnedFd) -> io::Result<()> {
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)?;
    match status.and_then(|status| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other("the probe was killed")),
    }
}
