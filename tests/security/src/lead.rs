//! The knowledge of an attacker: everything, because hidden names are not a protection.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Names and numbers of the host, and the attacker's location.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Lead {
    /// Whether the attacker runs in a sandbox.
    pub(crate) inside: bool,
    /// The path of the workspace for the attacker.
    pub(crate) workspace: PathBuf,
    /// The disposable part of the host, outside the workspace.
    pub(crate) outside: PathBuf,
    /// A host process with the secret in its environment, memory, arguments and descriptors.
    pub(crate) victim: i32,
    /// Address and length of the secret in its memory.
    pub(crate) victim_memory: (u64, usize),
    /// Ports of listeners on the host's loopback: IPv4, IPv6, and datagrams.
    pub(crate) ports: [u16; 3],
    /// A listener on a host address other than loopback, if there is one.
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
    /// Returns a host file that the sandbox must not read.
    pub(crate) fn secret(&self) -> PathBuf {
        self.outside.join("home/.ssh/id_ed25519")
    }

    /// Returns a host file that the sandbox must not change.
    pub(crate) fn target(&self) -> PathBuf {
        self.outside.join("target")
    }

    /// Returns a path in the workspace.
    pub(crate) fn work(&self, path: impl AsRef<Path>) -> PathBuf {
        self.workspace.join(path)
    }

    /// Returns a writable directory outside the workspace.
    pub(crate) fn scratch(&self, name: &str) -> PathBuf {
        if self.inside { Path::new("/tmp").join(name) } else { self.outside.join(name) }
    }

    /// Returns process ids to inspect: on the host the victim; inside all processes, the init, and the victim's id on
    /// the host.
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
