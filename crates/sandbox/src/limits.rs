//! What all processes of a sandbox together may use, and how that is kept here.

use jail::{CgroupLimits, Controller, Hierarchy, Limiter, ProcessLimits};
use serde_json::{Map, Value, json};

use crate::SandboxError;

/// A limit that can be kept by a weaker means, when the policy says so for that key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LimitKey {
    /// `proc.memory`.
    Memory,
    /// `proc.pids`.
    Pids,
    /// `proc.cpus`.
    Cpus,
}

impl LimitKey {
    fn controller(self) -> Controller {
        match self {
            Self::Memory => Controller::Memory,
            Self::Pids => Controller::Pids,
            Self::Cpus => Controller::Cpu,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpus => "cpus",
        }
    }

    /// What a weaker means is called here, if there is any.
    fn weaker(self) -> &'static str {
        match self {
            Self::Memory | Self::Pids => "rlimit",
            Self::Cpus => "none",
        }
    }
}

/// What a sandbox may use.
#[derive(Debug, Clone, PartialEq)]
pub struct Limits {
    /// Bytes of memory.
    pub memory_bytes: u64,
    /// Processes and threads.
    pub pids: u64,
    /// Thousandths of a processor.
    pub cpu_millis: u64,
    /// Bytes that can be written, everywhere together.
    pub disk_bytes: u64,
    /// Files and directories that can be made.
    pub disk_inodes: u64,
    /// Open files of a process.
    pub nofile: u64,
    /// Keys for which a weaker means is accepted, by name.
    pub degrade: Vec<LimitKey>,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            memory_bytes: 2 << 30,
            pids: 256,
            cpu_millis: 2000,
            disk_bytes: 4 << 30,
            disk_inodes: 1_000_000,
            nofile: 1024,
            degrade: Vec::new(),
        }
    }
}

/// How limits are kept on this machine.
pub(crate) struct Kept {
    /// By cgroups.
    pub(crate) group: CgroupLimits,
    /// By each process apart.
    pub(crate) process: ProcessLimits,
    /// Rows of `policy.effective`.
    pub(crate) effective: Map<String, Value>,
}

impl Limits {
    /// Chooses a means for each limit; without one, and without leave to take a weaker one, it refuses.
    pub(crate) fn keep(&self, limiter: &Limiter) -> Result<Kept, SandboxError> {
        let mut kept = Kept {
            group: CgroupLimits::default(),
            process: ProcessLimits { nofile: self.nofile, ..ProcessLimits::default() },
            effective: Map::new(),
        };
        let row = |state: &str, by: &str, value: u64| json!({"state": state, "by": by, "value": value});
        for (key, value) in
            [(LimitKey::Memory, self.memory_bytes), (LimitKey::Pids, self.pids), (LimitKey::Cpus, self.cpu_millis)]
        {
            let shown = match limiter.hierarchy(key.controller()) {
                Some(hierarchy) => {
                    match key {
                        LimitKey::Memory => kept.group.memory_bytes = Some(value),
                        LimitKey::Pids => kept.group.pids = Some(value),
                        LimitKey::Cpus => kept.group.cpu_millis = Some(value),
                    }
                    row("enforced", if hierarchy == Hierarchy::V1 { "cgroup1" } else { "cgroup2" }, value)
                }
                None if self.degrade.contains(&key) => {
                    match key {
                        LimitKey::Memory => kept.process.data_bytes = Some(value),
                        LimitKey::Pids => kept.process.processes = Some(value),
                        LimitKey::Cpus => {}
                    }
                    let state = if key == LimitKey::Cpus { "absent" } else { "weaker" };
                    row(state, key.weaker(), value)
                }
                None => return Err(refused(key)),
            };
            kept.effective.insert(format!("proc.{}", key.name()), shown);
        }
        kept.effective.insert("proc.disk".into(), row("enforced", "tmpfs", self.disk_bytes));
        kept.effective.insert("proc.nofile".into(), row("enforced", "rlimit", self.nofile));
        Ok(kept)
    }
}

fn refused(key: LimitKey) -> SandboxError {
    let (name, weaker) = (key.name(), key.weaker());
    SandboxError::Unavailable {
        missing: format!("`proc.{name}` cannot be enforced here: there is no cgroup this user may limit {name} with"),
        fix: format!("add `degrade: {{{name}: {weaker}}}` to the policy, or run as root, or delegate a cgroup"),
    }
}
