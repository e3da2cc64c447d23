//! New namespaces, foreign namespaces and other identities.

use std::fs;
use std::os::fd::AsRawFd;

use crate::attack::{Attack, Control, Group::Proc, Verdict, program};
use crate::lead::Lead;
use crate::raw::{self, Arg};

pub(crate) fn attacks() -> Vec<Attack> {
    let alone = |attack: Attack| attack.shown(Control::Namespaced);
    vec![
        program(Proc, "proc_userns_unshare", "a user namespace by unshare", |_| {
            Verdict::of("unshare", raw::unshare(libc::CLONE_NEWUSER))
        }),
        program(Proc, "proc_userns_clone", "a user namespace by clone", |_| {
            Verdict::of("clone", raw::clone_with(libc::CLONE_NEWUSER))
        }),
        program(Proc, "proc_userns_clone3", "a user namespace by clone3", |_| {
            Verdict::of("clone3", raw::clone3_with(libc::CLONE_NEWUSER))
        }),
        alone(program(Proc, "proc_namespaces", "any other namespace, each by unshare and by clone", namespaces)),
        alone(program(Proc, "proc_setns", "enter a namespace of another process", setns)),
        alone(program(Proc, "proc_setns_pidfd", "the same by a descriptor of that process", setns_pidfd)),
        alone(program(Proc, "proc_identity", "become another user", identity)),
        alone(program(Proc, "proc_capabilities", "take capabilities back", capabilities)),
        program(Proc, "proc_sysctl", "write settings of the whole machine: core_pattern and others", sysctl)
            .shown(Control::Root),
        alone(program(Proc, "proc_sysctl_own", "write settings of the own namespaces", sysctl_own)),
        program(Proc, "proc_cgroup", "leave one's cgroup", cgroup).shown(Control::Root),
        program(Proc, "proc_cgroup_names", "learn the host's names of cgroups", cgroup_names).shown(Control::Probe(
            cgroup_probe,
            "the suite's user may be in the root group; the file that shows groups exists",
        )),
    ]
}

fn namespaces(_: &Lead) -> Verdict {
    let kinds = [
        libc::CLONE_NEWNS,
        libc::CLONE_NEWNET,
        libc::CLONE_NEWPID,
        libc::CLONE_NEWIPC,
        libc::CLONE_NEWUTS,
        libc::CLONE_NEWCGROUP,
        0x80, // CLONE_NEWTIME
    ];
    Verdict::any(kinds.into_iter().flat_map(|kind| {
        // CLONE_NEWTIME means something else to clone.
        let cloned = if kind == 0x80 { raw::clone3_with(kind) } else { raw::clone_with(kind) };
        [Verdict::of("unshare", raw::unshare(kind)), Verdict::of("clone", cloned)]
    }))
}

fn setns(lead: &Lead) -> Verdict {
    let own = || fs::File::open("/proc/self/ns/net");
    // The control enters its own namespace, which needs the same privilege.
    let targets: Vec<std::io::Result<fs::File>> = if lead.inside {
        let others = lead.processes().into_iter().map(|pid| fs::File::open(format!("/proc/{pid}/ns/net")));
        others.chain([own()]).collect()
    } else {
        vec![own()]
    };
    Verdict::any(targets.into_iter().map(|target| {
        let entered = target
            .and_then(|file| raw::call(libc::SYS_setns, &mut [Arg::Number(file.as_raw_fd().into()), Arg::Number(0)]));
        Verdict::of("setns", entered)
    }))
}

fn setns_pidfd(lead: &Lead) -> Verdict {
    let targets = if lead.inside { lead.processes() } else { vec![std::process::id().cast_signed()] };
    Verdict::any(targets.into_iter().map(|pid| {
        let entered = pidfd(pid).and_then(|fd| {
            let kinds = i64::from(libc::CLONE_NEWNET | libc::CLONE_NEWUTS);
            raw::call(libc::SYS_setns, &mut [Arg::Number(fd), Arg::Number(kinds)])
        });
        Verdict::of("setns", entered)
    }))
}

/// A descriptor of a process.
pub(super) fn pidfd(pid: i32) -> std::io::Result<i64> {
    raw::call(libc::SYS_pidfd_open, &mut [Arg::Number(pid.into()), Arg::Number(0)])
}

fn identity(_: &Lead) -> Verdict {
    let set =
        |call, id| Verdict::of("set id", raw::call(call, &mut [Arg::Number(id), Arg::Number(id), Arg::Number(id)]));
    Verdict::any([set(libc::SYS_setresuid, 0), set(libc::SYS_setresgid, 0), set(libc::SYS_setuid, 0)])
}

fn capabilities(_: &Lead) -> Verdict {
    use rustix::thread::{CapabilitySet, CapabilitySets};
    let wanted = CapabilitySet::SYS_ADMIN;
    let sets = CapabilitySets { effective: wanted, permitted: wanted, inheritable: wanted };
    Verdict::of("capset", rustix::thread::set_capabilities(None, sets))
}

/// Opens the files for writing, and writes nothing.
fn writable(path: &str) -> Verdict {
    Verdict::of(path, fs::OpenOptions::new().write(true).open(path))
}

fn sysctl(_: &Lead) -> Verdict {
    Verdict::any(
        [
            "/proc/sys/kernel/core_pattern",
            "/proc/sys/kernel/modprobe",
            "/proc/sys/kernel/hotplug",
            "/proc/sys/kernel/randomize_va_space",
            "/proc/sys/kernel/panic",
            "/proc/sys/vm/overcommit_memory",
            "/proc/sys/vm/drop_caches",
            "/proc/sys/fs/file-max",
            "/proc/sys/fs/binfmt_misc/register",
            "/proc/sysrq-trigger",
            "/proc/irq/default_smp_affinity",
        ]
        .map(writable),
    )
}

fn sysctl_own(_: &Lead) -> Verdict {
    Verdict::any(
        [
            "/proc/sys/user/max_user_namespaces",
            "/proc/sys/kernel/hostname",
            "/proc/sys/kernel/shmmax",
            "/proc/sys/net/ipv4/ip_forward",
            "/proc/sys/net/ipv4/ip_unprivileged_port_start",
        ]
        .map(writable),
    )
}

/// Every file through which a process could leave its cgroup.
fn cgroup(_: &Lead) -> Verdict {
    let mounts = fs::read_to_string("/proc/self/mountinfo").expect("mounts");
    let trees = mounts.lines().filter(|line| line.contains(" - cgroup")).filter_map(|line| line.split(' ').nth(4));
    let found = trees.map(str::to_owned).chain(["/sys/fs/cgroup".into(), "/sys/fs/cgroup/memory".into()]);
    Verdict::any(found.flat_map(|tree| [writable(&format!("{tree}/cgroup.procs")), writable(&format!("{tree}/tasks"))]))
}

fn cgroup_names(_: &Lead) -> Verdict {
    let text = fs::read_to_string("/proc/self/cgroup").expect("cgroup");
    let named = text.lines().any(|line| line.splitn(3, ':').nth(2).is_some_and(|path| path != "/"));
    Verdict::when(named, text)
}

fn cgroup_probe(_: &Lead) -> Verdict {
    Verdict::of("read", fs::read_to_string("/proc/self/cgroup"))
}
