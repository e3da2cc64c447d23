//! The choice of how the limits of a policy are enforced on this machine.

use jail::{CgroupController, CgroupLimits, CgroupVersion, ProcessLimits};
use policy::{EffectivePolicy, EnforcementMeans};
use protocol::{EnforcedValue, EnforcementState, KeyEnforcement, KeyEnforcements};

use crate::SandboxError;

/// A limit that only a cgroup enforces in full.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LimitKey {
    Memory,
    Pids,
    Cpus,
}

impl LimitKey {
    fn controller(self) -> CgroupController {
        match self {
            Self::Memory => CgroupController::Memory,
            Self::Pids => CgroupController::Pids,
            Self::Cpus => CgroupController::Cpu,
        }
    }

    /// Returns the weaker means without a cgroup.
    fn weaker(self) -> EnforcementMeans {
        match self {
            Self::Memory | Self::Pids => EnforcementMeans::Rlimit,
            Self::Cpus => EnforcementMeans::None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Memory => "memory",
            Self::Pids => "pids",
            Self::Cpus => "cpus",
        }
    }
}

/// The cgroups that enforce limits on a machine or in a container engine.
pub(crate) struct LimitEnforcer<'a> {
    /// Returns the name of the cgroup that enforces a limit; `None` without one.
    pub(crate) cgroup: &'a dyn Fn(CgroupController) -> Option<String>,
    /// The beginning of the sentence for a missing cgroup, which ends in "limit memory".
    pub(crate) missing: &'a str,
    /// Whether the cgroup contains the container's own kernel, and counts that kernel's memory and threads too.
    pub(crate) wraps_own_kernel: bool,
}

/// Memory that such a kernel may need for itself.
const KERNEL_BYTES: u64 = 64 << 20;
/// Threads that such a kernel has for itself.
const KERNEL_THREADS: u64 = 384;
/// Threads that such a kernel has for each process, on average.
const THREADS_PER_PROCESS: u64 = 8;

/// The limits of a sandbox, by the means that enforces them.
pub(crate) struct ChosenLimits {
    /// Limits enforced by cgroups.
    pub(crate) group: CgroupLimits,
    /// Limits enforced for each process.
    pub(crate) process: ProcessLimits,
    /// Rows of `policy.effective`.
    pub(crate) effective: KeyEnforcements,
}

/// Returns the name of a cgroup version in events.
pub(crate) fn version_name(hierarchy: CgroupVersion) -> String {
    if hierarchy == CgroupVersion::V1 { "cgroup1".to_owned() } else { "cgroup2".to_owned() }
}

/// Chooses a means for each limit: a cgroup where there is one, else the weaker means if the policy accepts it. Fails
/// when the policy does not.
pub(crate) fn choose(policy: &EffectivePolicy, enforcer: &LimitEnforcer<'_>) -> Result<ChosenLimits, SandboxError> {
    let (limits, degrade) = (policy.limits(), policy.degrade());
    let mut chosen = ChosenLimits {
        group: CgroupLimits::default(),
        process: ProcessLimits { nofile: limits.nofile, ..ProcessLimits::default() },
        effective: KeyEnforcements::default(),
    };
    for (key, value, accepted) in [
        (LimitKey::Memory, limits.memory_bytes, degrade.memory),
        (LimitKey::Pids, limits.pids, degrade.pids),
        (LimitKey::Cpus, limits.cpu_millis, degrade.cpus),
    ] {
        let description = match (enforcer.cgroup)(key.controller()) {
            Some(means) if enforcer.wraps_own_kernel && key == LimitKey::Pids => {
                chosen.limit_pids_in_own_kernel(value, &means)
            }
            Some(means) => {
                let allowance = if enforcer.wraps_own_kernel && key == LimitKey::Memory { KERNEL_BYTES } else { 0 };
                chosen.limit_by_group(key, value, allowance, &means)
            }
            None if key.weaker() <= accepted => chosen.limit_by_process(key, value),
            None => return Err(refused(key, enforcer.missing)),
        };
        chosen.effective.set(format!("proc.{}", key.name()), description);
    }
    chosen.limit_sockets(limits.socket_bytes, enforcer);
    chosen.effective.set("proc.disk", enforced("tmpfs", limits.disk_bytes));
    chosen.effective.set("proc.nofile", enforced("rlimit", limits.nofile));
    chosen.effective.set("proc.timeout", enforced("host", limits.timeout.as_secs()));
    chosen.effective.set("proc.output", enforced("host", limits.output_bytes));
    Ok(chosen)
}

impl ChosenLimits {
    fn limit_by_group(&mut self, key: LimitKey, value: u64, allowance: u64, means: &str) -> KeyEnforcement {
        match key {
            LimitKey::Memory => self.group.memory_bytes = Some(value.saturating_add(allowance)),
            LimitKey::Pids => self.group.pids = Some(value),
            LimitKey::Cpus => self.group.cpu_millis = Some(value),
        }
        enforced(means, value)
    }

    /// Limits processes in a container with its own kernel, which counts processes and threads of the one user inside. The
    /// cgroup counts that kernel's own threads: exceeding its limit would end the whole sandbox, so it gets more.
    fn limit_pids_in_own_kernel(&mut self, value: u64, means: &str) -> KeyEnforcement {
        self.process.processes = Some(value);
        self.group.pids = Some(value.saturating_mul(THREADS_PER_PROCESS).saturating_add(KERNEL_THREADS));
        enforced(&format!("rlimit in the container's own kernel, and {means} around it"), value)
    }

    /// Limits socket buffers. Version 1 of cgroups has a separate counter; version 2 and a container's own kernel count
    /// them as memory. Without a memory cgroup there is no limit, which the policy has accepted for `proc.memory`.
    fn limit_sockets(&mut self, value: u64, enforcer: &LimitEnforcer<'_>) {
        let description = match (enforcer.cgroup)(CgroupController::Memory) {
            None => row(EnforcementState::Absent, "none", value),
            Some(means) if enforcer.wraps_own_kernel => {
                enforced(&format!("the container's own kernel, as memory of {means}"), value)
            }
            Some(means) if means.contains("cgroup1") => {
                self.group.socket_bytes = Some(value);
                enforced(&means, value)
            }
            Some(means) => enforced(&format!("{means}, as a part of proc.memory"), value),
        };
        self.effective.set("proc.sockets", description);
    }

    fn limit_by_process(&mut self, key: LimitKey, value: u64) -> KeyEnforcement {
        match key {
            LimitKey::Memory => self.process.data_bytes = Some(value),
            LimitKey::Pids => self.process.processes = Some(value),
            LimitKey::Cpus => {}
        }
        let state = match key.weaker() {
            EnforcementMeans::None => EnforcementState::Absent,
            _ => EnforcementState::Weaker,
        };
        row(state, key.weaker().as_str(), value)
    }
}

fn enforced(by: &str, value: u64) -> KeyEnforcement {
    row(EnforcementState::Enforced, by, value)
}

fn row(state: EnforcementState, by: &str, value: u64) -> KeyEnforcement {
    KeyEnforcement::new(state, by).with_value(EnforcedValue::Number(value))
}

fn refused(key: LimitKey, missing: &str) -> SandboxError {
    let (name, weaker) = (key.name(), key.weaker().as_str());
    SandboxError::Unavailable {
        missing: format!("`proc.{name}` cannot be enforced here: {missing} limit {name}"),
        fix: format!("add `degrade: {{{name}: {weaker}}}` to the policy, or run as root, or delegate a cgroup"),
    }
}
