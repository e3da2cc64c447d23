//! What an attacker knows. It knows everything: hiding names is no wall.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Names and numbers of the host, and where the attacker stands.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Lead {
    /// Whether this runs in a sandbox.
    pub(crate) inside: bool,
    /// The workspace, as it is named where this runs.
    pub(crate) workspace: PathBuf,
    /// The throw-away part of the host: what is outside the workspace.
    pub(crate) outside: PathBuf,
    /// A process of the host that holds the secret in its environment, memory, arguments and descriptors.
    pub(crate) victim: i32,
    /// Where in its memory the secret lies, and how long it is.
    pub(crate) victim_memory: (u64, usize),
    /// Ports of listeners on the host's loopback: IPv4, IPv6, and datagrams.
    pub(crate) ports: [u16; 3],
    /// A listener on an address of the host that is not loopback, where it has one.
    pub(crate) address: String,
    /// Name of an abstract unix socket of the host.
    pub(crate) abstract_name: String,
    /// A System V shared memory segment of the host.
    pub(crate) segment: i32,
    /// The host's name.
    pub(crate) hostname: String,
    /// The PID namespace that must not be rebooted.
    pub(crate) pid_namespace: u64,
}

impl Lead {
    /// A host file nobody inside may read.
    pub(crate) fn secret(&self) -> PathBuf {
        self.outside.join("home/.ssh/id_ed25519")
    }

    /// A host file nobody inside may change.
    pub(crate) fn target(&self) -> PathBuf {
        self.outside.join("target")
    }

    /// A path in the workspace.
    pub(crate) fn work(&self, path: impl AsRef<Path>) -> PathBuf {
        self.workspace.join(path)
    }

    /// A writable place that is not the workspace.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        if self.inside { Path::new("/tmp").join(name) } else { self.outside.join(name) }
    }

    /// Processes worth looking into: on the host the victim, inside all there are, its init, and the
    /// number the victim has on the host.
    pub(crate) fn processes(&self) -> Vec<i32> {
        if !self.inside {
            return vec![self.victim];
        }
        let own = std::process::id().cast_signed();
        let listed = std::fs::read_dir("/proc").into_iter().flatten().flatten();
        let numbers = listed.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).filter(|pid| *pid != own);
        numbers.chain([1, self.victim]).collect()
    }
}
