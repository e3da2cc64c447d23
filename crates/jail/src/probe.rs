//! What this kernel lets this user do, tried one feature at a time.
//!
//! Each is tried in a process of its own that ends at once, so nothing is left behind and one that fails
//! says nothing of the others. A sandbox needs them all; here they are told apart.

use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use rustix::fs::{Mode, OFlags, mkdirat};
use rustix::process::{WaitId, WaitIdOptions, waitid};

use crate::cgroup::{Cgroup, CgroupController, CgroupLimits, CgroupRoot};
use crate::host_user::HostUser;
use crate::root;
use crate::seccomp::Filters;
use crate::setup;
use crate::source::clone_tree;
use crate::sys::{self, Side, attr};

/// One feature that was tried.
#[derive(Debug)]
pub struct FeatureProbe {
    /// What it is, in a word or two.
    pub name: &'static str,
    /// What it was found to be, or what the kernel said.
    pub outcome: io::Result<String>,
}

/// Tries every kernel feature a sandbox is made of. This process must have one thread.
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

/// Makes a group, sets each limit, reads it back, and has a process join.
pub fn probe_limits() -> Vec<FeatureProbe> {
    let limiter = CgroupRoot::probe();
    let limits = [
        (
            "memory limit",
            CgroupController::Memory,
            CgroupLimits { memory_bytes: Some(64 << 20), ..CgroupLimits::default() },
        ),
        ("pids limit", CgroupController::Pids, CgroupLimits { pids: Some(16), ..CgroupLimits::default() }),
        ("cpu limit", CgroupController::Cpu, CgroupLimits { cpu_millis: Some(500), ..CgroupLimits::default() }),
    ];
    let attempt = |controller, limits: &CgroupLimits| {
        let limiter = limiter.as_ref().map_err(|error| io::Error::new(error.kind(), error.to_string()))?;
        let Some(hierarchy) = limiter.hierarchy(controller) else {
            return Err(io::Error::other("no cgroup this user may use"));
        };
        let group = limiter.create(limits)?;
        group.read_back(controller, limits)?;
        join(&group)?;
        Ok(format!("{hierarchy}, set, read back and joined"))
    };
    limits.map(|(name, controller, limits)| FeatureProbe { name, outcome: attempt(controller, &limits) }).into()
}

/// An overlay with a writable layer on a tmpfs, as the workspace has one.
fn overlay() -> io::Result<String> {
    in_child(libc::CLONE_NEWUSER | libc::CLONE_NEWNS, || {
        let privileged = HostUser::of_our_sandboxes().is_somebody_else();
        setup::become_inside_user(privileged).map_err(|failure| io::Error::from_raw_os_error(failure.errno))?;
        root::part_from_host()?;
        let space = root::tmpfs(1 << 20, 64, 0o700)?;
        root::attach(&space, rustix::fs::CWD, "/tmp")?;
        for name in ["lower", "upper", "work"] {
            mkdirat(&space, name, Mode::from_raw_mode(0o755))?;
        }
        let options = [("lowerdir", "/tmp/lower"), ("upperdir", "/tmp/upper"), ("workdir", "/tmp/work")];
        let merged = root::new_fs("overlay", &["userxattr"], &options)?;
        root::attach(&merged, &space, "lower")?;
        let file =
            rustix::fs::openat(&space, "lower/new", OFlags::CREATE | OFlags::WRONLY, Mode::from_raw_mode(0o600))?;
        drop(file);
        rustix::fs::statat(&space, "upper/new", rustix::fs::AtFlags::empty()).map(drop)?;
        Ok(())
    })
    .map(|()| "mounted without root, and written through".to_owned())
}

/// Showing a directory's owner as the user inside; anybody but root is that owner already.
fn idmap() -> io::Result<String> {
    if !HostUser::of_our_sandboxes().is_somebody_else() {
        return Ok("not needed: files are the caller's own".to_owned());
    }
    let (ready, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let (wait, hold) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::clone_process(libc::CLONE_NEWUSER.cast_unsigned().into(), None)? {
        Side::Child => {
            drop((hold, ready, tell));
            let _ = rustix::io::read(&wait, &mut [0; 1]);
            sys::exit_now(0)
        }
        Side::Parent { pidfd, pid } => {
            let mapped =
                HostUser::of_our_sandboxes().map(pid).map_err(|failure| io::Error::from_raw_os_error(failure.errno));
            let attempt = mapped.and_then(|()| {
                let path = format!("/proc/{}/ns/user", pid.as_raw_nonzero());
                let owners = rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
                let tree = clone_tree(Path::new("/tmp"))?;
                sys::mount_setattr(tree.as_fd(), attr::IDMAP, false, Some(owners.as_fd()))
            });
            drop(hold);
            waited(&pidfd)?;
            attempt.map(|()| "a directory's owner is shown as the user inside".to_owned())
        }
    }
}

/// The filter itself, and that it answers.
fn seccomp() -> io::Result<String> {
    in_child(0, || {
        rustix::thread::set_no_new_privs(true)?;
        Filters::compile(crate::mark::Mark::OfTheHost).install()?;
        match rustix::fs::openat2(
            rustix::fs::CWD,
            Path::new("/"),
            OFlags::PATH | OFlags::CLOEXEC,
            Mode::empty(),
            rustix::fs::ResolveFlags::empty(),
        ) {
            Err(rustix::io::Errno::NOSYS) => Ok(()),
            _ => Err(io::Error::other("a filtered call went through")),
        }
    })
    .map(|()| "installed, and it answers".to_owned())
}

/// Whether a process can be in `group`.
fn join(group: &Cgroup) -> io::Result<()> {
    let entrance = group.entrance()?;
    let into = entrance.v2.as_ref().map(AsFd::as_fd);
    match sys::clone_process(0, into)? {
        Side::Child => {
            let joined = entrance.tasks.iter().try_for_each(|tasks| rustix::io::write(tasks, b"0").map(drop));
            sys::exit_now(joined.map_or_else(rustix::io::Errno::raw_os_error, |()| 0))
        }
        Side::Parent { pidfd, .. } => waited(&pidfd),
    }
}

/// Runs `body` as the user inside, in a process with new `namespaces`.
fn in_child(namespaces: i32, body: impl FnOnce() -> io::Result<()>) -> io::Result<()> {
    let (go, tell) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    match sys::clone_process(namespaces.cast_unsigned().into(), None)? {
        Side::Child => {
            drop(tell);
            let told = std::fs::File::from(go).read_exact(&mut [0]);
            let outcome = told.and_then(|()| body());
            sys::exit_now(outcome.map_or_else(|error| error.raw_os_error().unwrap_or(libc::EIO), |()| 0))
        }
        Side::Parent { pidfd, pid } => {
            let mapped =
                if namespaces & libc::CLONE_NEWUSER == 0 { Ok(()) } else { HostUser::of_our_sandboxes().map(pid) };
            if mapped.is_ok() {
                rustix::io::write(&tell, b"g")?;
            }
            drop(tell);
            let ended = waited(&pidfd);
            mapped.map_err(|failure| io::Error::from_raw_os_error(failure.errno)).and(ended)
        }
    }
}

/// Waits for a child; its exit code is an error number.
fn waited(pidfd: &OwnedFd) -> io::Result<()> {
    let status = waitid(WaitId::PidFd(pidfd.as_fd()), WaitIdOptions::EXITED)?;
    match status.and_then(|status| status.exit_status()) {
        Some(0) => Ok(()),
        Some(errno) => Err(io::Error::from_raw_os_error(errno)),
        None => Err(io::Error::other("the attempt was killed")),
    }
}
