//! Known exceptions: attacks that a backend does not stop, with the reason for the table.

use crate::attack::Attack;

/// The expected result instead of `stopped`.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Otherwise {
    /// The attack succeeds.
    NotHeld(&'static str),
    /// The attack cannot run there, or has no meaning.
    Meaningless(&'static str),
}

use Otherwise::{Meaningless, NotHeld};

const MOUNTED: Otherwise =
    NotHeld("the engine mounts control groups below `/sys`: covered, but named in the mount table");
const NAMED: Otherwise = NotHeld(
    "with cgroups of version 1 it makes no namespace for them; `policy.effective` says so (`cgroup names`: absent)",
);
const OWN_FILES: Otherwise =
    Meaningless("`/sys`, `/proc` and the mount table are gVisor's own, with nothing of the host in them");
const OWN_VALUE: Otherwise = Meaningless("gVisor keeps the value to itself: the host's kernel never hears of it");
const OWN_INIT: Otherwise = NotHeld(
    "gVisor does not protect the first process: a signal to it ends or stops only the own sandbox, and the host kills a sandbox that does not answer",
);

const UNCOUNTED: Otherwise = NotHeld("they count for the sandbox user, whose id is unused on the host");
const COUNTED: Otherwise = NotHeld("an engine of an ordinary user sets no such limit, and they count for that user");

/// Exceptions by backend and attack.
const ALL: [(&str, &str, Otherwise); 22] = [
    ("docker", "proc_inotify", UNCOUNTED),
    ("podman", "proc_inotify", UNCOUNTED),
    (engines::ROOTLESS, "proc_inotify", COUNTED),
    ("gvisor", "proc_inotify", OWN_VALUE),
    ("docker", "secrets_mounts_host", MOUNTED),
    ("podman", "secrets_mounts_host", MOUNTED),
    ("podman", "proc_cgroup_names", NAMED),
    (engines::ROOTLESS, "secrets_mounts_host", MOUNTED),
    (engines::ROOTLESS, "proc_cgroup_names", NAMED),
    ("gvisor", "fs_sys", OWN_FILES),
    ("gvisor", "secrets_mounts_host", OWN_FILES),
    ("gvisor", "secrets_kernel_tables", OWN_FILES),
    ("gvisor", "fs_proc_maps", NotHeld("gVisor shows where init is in memory, and under which name it is mounted")),
    ("gvisor", "fs_proc_ns", Meaningless("namespaces are gVisor's own, and it has none of the host's")),
    ("gvisor", "fs_devices", Meaningless("devices are gVisor's own: no driver of the host is behind them")),
    (
        "gvisor",
        "net_gateway_port",
        NotHeld("its network allows the port on another address; calls to 127.0.0.1 still reach the gateway"),
    ),
    ("gvisor", "net_low_port", NotHeld("its network has no such rule; the port is on the sandbox's own loopback")),
    ("gvisor", "proc_kill_init", OWN_INIT),
    ("gvisor", "proc_stop_init", OWN_INIT),
    (
        "gvisor",
        "proc_cgroup_names",
        NotHeld("gVisor's groups are named after the container; `policy.effective` says so (`cgroup names`: weaker)"),
    ),
    ("gvisor", "proc_oom_score_own", OWN_VALUE),
    ("gvisor", "proc_nice", OWN_VALUE),
];

/// Returns the exception of `attack` in `backend`, if there is one.
pub(crate) fn of(backend: &str, attack: &str) -> Option<Otherwise> {
    ALL.iter().find(|(of, name, _)| *of == backend && *name == attack).map(|(.., otherwise)| *otherwise)
}

/// Returns names in the list that no attack has.
pub(crate) fn unknown(attacks: &[Attack]) -> Vec<&'static str> {
    ALL.iter().map(|(_, name, _)| *name).filter(|name| !attacks.iter().any(|attack| attack.name == *name)).collect()
}
