//! What all processes of a sandbox together may use, and how that is kept here.

use jail::{CgroupController, CgroupLimits, CgroupVersion, ProcessLimits};
use policy::{EffectivePolicy, EnforcementMeans};
use serde_json::{Map, Value, json};

use crate::SandboxError;

/// A limit that needs a cgroup to be kept in full.
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

    /// The next best means where there is no cgroup.
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

/// By what limits are kept on a machine, or in an engine.
pub(crate) struct Keeper<'a> {
    /// A word for the cgroup that keeps it, where there is one.
    pub(crate) by: &'a dyn Fn(CgroupController) -> Option<String>,
    /// Why there is none.
    pub(crate) why: &'a str,
    /// Whether the cgroup is around a kernel of the sandbox's own, and counts its memory and threads too.
    pub(crate) around_kernel: bool,
}

/// What such a kernel may need for itself.
const KERNEL_BYTES: u64 = 64 << 20;
/// Threads that it has for itself, and on average for each process.
const KERNEL_THREADS: u64 = 384;
const THREADS_A_PROCESS: u64 = 8;

/// How limits are kept on this machine.
pub(crate) struct Kept {
    /// By cgroups.
    pub(crate) group: CgroupLimits,
    /// By each process apart.
    pub(crate) process: ProcessLimits,
    /// Rows of `policy.effective`.
    pub(crate) effective: Map<String, Value>,
}

/// What a version of cgroups is called in records.
pub(crate) fn word(hierarchy: CgroupVersion) -> String {
    if hierarchy == CgroupVersion::V1 { "cgroup1".to_owned() } else { "cgroup2".to_owned() }
}

/// Chooses a means for each limit: by a cgroup, where the keeper has a word for it. Without one, and without leave to
/// take a weaker one, it refuses.
pub(crate) fn keep(policy: &EffectivePolicy, keeper: &Keeper<'_>) -> Result<Kept, SandboxError> {
    let (limits, degrade) = (policy.limits(), policy.degrade());
    let mut kept = Kept {
        group: CgroupLimits::default(),
        process: ProcessLimits { nofile: limits.nofile, ..ProcessLimits::default() },
        effective: Map::new(),
    };
    for (key, value, accepted) in [
        (LimitKey::Memory, limits.memory_bytes, degrade.memory),
        (LimitKey::Pids, limits.pids, degrade.pids),
        (LimitKey::Cpus, limits.cpu_millis, degrade.cpus),
    ] {
        let shown = match (keeper.by)(key.controller()) {
            Some(means) if keeper.around_kernel && key == LimitKey::Pids => kept.within(value, &means),
            Some(means) => {
                let allowance = if keeper.around_kernel && key == LimitKey::Memory { KERNEL_BYTES } else { 0 };
                kept.by_group(key, value, allowance, &means)
            }
            None if key.weaker() <= accepted => kept.by_process(key, value),
            None => return Err(refused(key, keeper.why)),
        };
        kept.effective.insert(format!("proc.{}", key.name()), shown);
    }
    kept.effective.insert("proc.disk".into(), row("enforced", "tmpfs", limits.disk_bytes));
    kept.effective.insert("proc.nofile".into(), row("enforced", "rlimit", limits.nofile));
    kept.effective.insert("proc.timeout".into(), row("enforced", "host", limits.timeout.as_secs()));
    kept.effective.insert("proc.output".into(), row("enforced", "host", limits.output_bytes));
    Ok(kept)
}

impl Kept {
    fn by_group(&mut self, key: LimitKey, value: u64, allowance: u64, means: &str) -> Value {
        match key {
            LimitKey::Memory => self.group.memory_bytes = Some(value.saturating_add(allowance)),
            LimitKey::Pids => self.group.pids = Some(value),
            LimitKey::Cpus => self.group.cpu_millis = Some(value),
        }
        row("enforced", means, value)
    }

    /// That kernel counts processes and threads of a user, who is one and the same in all of the sandbox. Around it the
    /// group counts threads of the kernel itself: whatever else started too many would end the sandbox as a whole.
    fn within(&mut self, value: u64, means: &str) -> Value {
        self.process.processes = Some(value);
        self.group.pids = Some(value.saturating_mul(THREADS_A_PROCESS).saturating_add(KERNEL_THREADS));
        row("enforced", &format!("rlimit in its own kernel, and {means} around that"), value)
    }

    fn by_process(&mut self, key: LimitKey, value: u64) -> Value {
        match key {
            LimitKey::Memory => self.process.data_bytes = Some(value),
            LimitKey::Pids => self.process.processes = Some(value),
            LimitKey::Cpus => {}
        }
        let state = if key.weaker() == EnforcementMeans::None { "absent" } else { "weaker" };
        row(state, key.weaker().as_str(), value)
    }
}

fn row(state: &str, by: &str, value: u64) -> Value {
    json!({"state": state, "by": by, "value": value})
}

fn refused(key: LimitKey, why: &str) -> SandboxError {
    let (name, weaker) = (key.name(), key.weaker().as_str());
    SandboxError::Unavailable {
        missing: format!("`proc.{name}` cannot be enforced here: {why} limit {name} with"),
        fix: format!("add `degrade: {{{name}: {weaker}}}` to the policy, or run as root, or delegate a cgroup"),
    }
}
