//! The jail backend, the default: sandboxes made in milliseconds, without a daemon and without an image.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use jail::{CgroupRoot, Jail, JailPlan, Spawner};
use policy::{EffectivePolicy, EnforcementMeans, WorkspaceMode};
use protocol::{EnforcedValue, EnforcementState, KeyEnforcement, KeyEnforcements};

use crate::blocking::BlockingRunner;
use crate::host_paths::HostPaths;
use crate::limits::LimitEnforcer;
use crate::plan::{SandboxPlan, plan};
use crate::refusal;
use crate::running::{NewSandbox, RunningSandbox};
use crate::system_files::SystemFiles;
use crate::workspace_path::workspace_path;
use crate::{OverlayLayers, Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxSpec, limits};

/// Makes sandboxes with the jail.
#[derive(Debug, Clone)]
pub struct JailBackend {
    spawner: Arc<Spawner>,
    runner: BlockingRunner,
    cgroups: Arc<CgroupRoot>,
}

impl JailBackend {
    /// Makes a backend with a spawner forked from this process, which must have one thread. Call it first in `main`.
    pub fn fork() -> Result<Self, SandboxError> {
        Self::new(Arc::new(Spawner::fork().map_err(refusal::explain)?))
    }

    /// Makes a backend that uses `spawner`.
    pub fn new(spawner: Arc<Spawner>) -> Result<Self, SandboxError> {
        let cgroups =
            CgroupRoot::probe().map_err(|source| SandboxError::Create { step: "look for cgroups".into(), source })?;
        Ok(Self { runner: BlockingRunner::for_spawner(&spawner), spawner, cgroups: Arc::new(cgroups) })
    }
}

impl SandboxBackend for JailBackend {
    fn name(&self) -> &'static str {
        "jail"
    }

    fn workspace_path(&self, path: &Path, policy: &EffectivePolicy) -> PathBuf {
        workspace_path(path, &policy.fs())
    }

    fn create(&self, spec: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>> {
        let this = self.clone();
        Box::pin(async move {
            let new = self.runner.run(move || this.make(&spec)).await??;
            Ok(Box::new(RunningSandbox::watch(new)?) as Box<dyn Sandbox>)
        })
    }
}

impl JailBackend {
    fn make(&self, spec: &SandboxSpec) -> Result<NewSandbox, SandboxError> {
        let cgroup = |controller| self.cgroups.hierarchy(controller).map(limits::version_name);
        let missing = "this user has no cgroup to";
        let enforcer = LimitEnforcer { cgroup: &cgroup, missing, wraps_own_kernel: false };
        let limits = limits::choose(&spec.policy, &enforcer)?;
        let create = |step: &str| {
            let step = step.to_owned();
            move |source| SandboxError::Create { step, source }
        };
        let group = self.cgroups.create(&limits.group).map_err(create("set the limits"))?;
        let fs = spec.policy.fs();
        let landlock = use_landlock(jail::landlock_version(), spec.policy.degrade().landlock)?;
        let host_paths = HostPaths::new(spec.workspace.as_deref(), &fs.write_paths)?;
        let system = SystemFiles::with_paths(&fs.read_paths, &host_paths)?;
        let SandboxPlan { jail, denials, special } = plan(spec, &fs, limits.process, &host_paths, system)?;
        let plan = JailPlan { landlock, ..jail };
        let since = SystemTime::now();
        let mut made = Jail::make(&self.spawner, &plan, Some(&group)).map_err(refusal::explain)?;
        let lower = plan.workspace.directory().cloned();
        let layers = made.upper.take().zip(lower);
        let layers = layers.map(|(upper, lower)| OverlayLayers::new(upper, lower, since, denials));
        let mut effective = limits.effective;
        let files = if landlock { FILES_WITH_LANDLOCK } else { "private root" };
        describe_enforcement(&mut effective, fs.workspace_mode, files, NETWORK);
        let terminals = EnforcedValue::Number(u64::from(jail::MAX_TERMINALS));
        effective.set("terminals", KeyEnforcement::enforced("devpts").with_value(terminals));
        special.describe(&mut effective);
        effective.set("toolchains", spec.toolchains.effective_row());
        if !landlock {
            effective.set("landlock", KeyEnforcement::new(EnforcementState::Absent, "this kernel has none"));
        }
        let (spawner, policy) = (Arc::clone(&self.spawner), Arc::clone(&spec.policy));
        let (id, runner, resources) = (spec.id.clone(), self.runner, Box::new(group));
        let (workspace_at, toolchains) = (plan.workspace_at, spec.toolchains.clone());
        Ok(NewSandbox { id, workspace_at, toolchains, spawner, runner, made, resources, layers, effective, policy })
    }
}

/// Returns whether Landlock is used. Fails when this kernel has no Landlock and the policy does not accept that.
fn use_landlock(version: Option<u32>, accepted: EnforcementMeans) -> Result<bool, SandboxError> {
    if version.is_some() || accepted == EnforcementMeans::None {
        return Ok(version.is_some());
    }
    Err(SandboxError::Unavailable {
        missing: "this kernel has no Landlock, which restricts file access in addition to the mounts".to_owned(),
        fix: "boot with `lsm=landlock,…`, or add `degrade: {landlock: none}` to the policy".to_owned(),
    })
}

const FILES_WITH_LANDLOCK: &str = "private root + landlock";
const NETWORK: &str = "network namespace + seccomp + egress proxy";

/// Adds the rows of `policy.effective` for everything but limits. `files` and `network` name the means that enforce them.
pub(crate) fn describe_enforcement(effective: &mut KeyEnforcements, mode: WorkspaceMode, files: &str, network: &str) {
    let (workspace, deny_read, deny_write) = match mode {
        WorkspaceMode::Overlay => ("overlayfs", Some("whiteout layer"), Some("refused when changes are applied")),
        WorkspaceMode::Readonly => ("read-only mount", Some("whiteout layer"), Some("read-only mount")),
        // Writes go to the host at once, so there is no layer that could hide or refuse new files.
        WorkspaceMode::Bind => ("bind mount", None, None),
    };
    for (key, by) in [
        ("fs.workspace", Some(workspace)),
        ("fs.read", Some(files)),
        ("fs.write", Some(files)),
        ("fs.deny_read", deny_read),
        ("fs.deny_write", deny_write),
        ("net", Some(network)),
        ("env.pass", Some("explicit environment")),
        ("models", Some("gateway")),
    ] {
        let row = match by {
            Some(by) => KeyEnforcement::enforced(by),
            None => KeyEnforcement::new(EnforcementState::Weaker, "mounts over the files that existed at the start"),
        };
        effective.set(key, row);
    }
}

#[cfg(test)]
mod tests {
    use policy::EnforcementMeans;

    use super::{SandboxError, use_landlock};

    #[test]
    fn kernel_without_landlock_is_refused_unless_the_policy_accepts_it() {
        assert!(use_landlock(Some(6), EnforcementMeans::None).unwrap(), "Landlock is used where it exists");
        assert!(use_landlock(Some(1), EnforcementMeans::Enforced).unwrap());
        assert!(!use_landlock(None, EnforcementMeans::None).unwrap());
        let Err(SandboxError::Unavailable { missing, fix }) = use_landlock(None, EnforcementMeans::Enforced) else {
            panic!("a kernel without Landlock was accepted");
        };
        assert!(missing.contains("Landlock") && fix.contains("degrade: {landlock: none}"), "{missing}: {fix}");
    }
}
