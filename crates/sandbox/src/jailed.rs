//! The default backend: a sandbox of our own, in milliseconds, with no daemon and no image.

use std::sync::Arc;
use std::time::SystemTime;

use jail::{CgroupRoot, Jail, JailPlan, Spawner};
use policy::{EnforcementMeans, WorkspaceMode};
use serde_json::{Map, Value, json};

use crate::limits::Keeper;
use crate::plan::plan;
use crate::refusal;
use crate::source::Sources;
use crate::system::System;
use crate::walled::{Built, Walled};
use crate::{OverlayLayers, Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxSpec, limits};

/// Makes sandboxes with the kernel's own means.
#[derive(Debug, Clone)]
pub struct JailBackend {
    spawner: Arc<Spawner>,
    limiter: Arc<CgroupRoot>,
}

impl JailBackend {
    /// Forks a spawner of its own from this process, which must have one thread: first thing in `main`.
    pub fn fork() -> Result<Self, SandboxError> {
        Self::new(Arc::new(Spawner::fork().map_err(refusal::explain)?))
    }

    /// Uses `spawner`, which must have been started before the host had threads.
    pub fn new(spawner: Arc<Spawner>) -> Result<Self, SandboxError> {
        let limiter =
            CgroupRoot::probe().map_err(|source| SandboxError::Create { step: "look for cgroups".into(), source })?;
        Ok(Self { spawner, limiter: Arc::new(limiter) })
    }
}

impl SandboxBackend for JailBackend {
    fn name(&self) -> &'static str {
        "jail"
    }

    fn create(&self, spec: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>> {
        let this = self.clone();
        Box::pin(async move {
            let made = if self.spawner.is_here() {
                // Who clones in this process must not have a thread for it.
                self.make(&spec)?
            } else {
                tokio::task::spawn_blocking(move || this.make(&spec)).await.map_err(|_| SandboxError::Gone)??
            };
            Ok(Box::new(Walled::watch(made)?) as Box<dyn Sandbox>)
        })
    }
}

impl JailBackend {
    fn make(&self, spec: &SandboxSpec) -> Result<Built, SandboxError> {
        let by = |controller| self.limiter.hierarchy(controller).map(limits::word);
        let keeper = Keeper { by: &by, why: "there is no cgroup this user may", around_kernel: false };
        let kept = limits::keep(&spec.policy, &keeper)?;
        let create = |step: &str| {
            let step = step.to_owned();
            move |source| SandboxError::Create { step, source }
        };
        let group = self.limiter.create(&kept.group).map_err(create("set the limits"))?;
        let fs = spec.policy.fs();
        let landlock = guards_files(jail::landlock_version(), spec.policy.degrade().landlock)?;
        let sources = Sources::beside(spec.workspace.as_deref(), &fs.write_paths)?;
        let system = System::showing(&fs.read_paths, &sources)?;
        let plan = JailPlan { landlock, ..plan(spec, &fs, kept.process, &sources, system)? };
        let since = SystemTime::now();
        let mut made = Jail::make(&self.spawner, &plan, Some(&group)).map_err(refusal::explain)?;
        let lower = plan.workspace.directory().cloned();
        let denials = spec.policy.file_denials();
        let layers = made.upper.take().zip(lower);
        let layers = layers.map(|(upper, lower)| OverlayLayers { upper: Arc::new(upper), lower, since, denials });
        let mut effective = kept.effective;
        describe(&mut effective, fs.workspace_mode, if landlock { WALL } else { "private root" }, NETWORK);
        if !landlock {
            effective.insert("landlock".to_owned(), json!({"state": "absent", "by": "this kernel has none"}));
        }
        let (spawner, policy) = (Arc::clone(&self.spawner), Arc::clone(&spec.policy));
        Ok(Built { id: spec.id.clone(), spawner, made, remains: Box::new(group), layers, effective, policy })
    }
}

/// Whether Landlock guards files beside the mounts. A kernel that has none must have been accepted by name.
fn guards_files(version: Option<u32>, accepted: EnforcementMeans) -> Result<bool, SandboxError> {
    if version.is_some() || accepted == EnforcementMeans::None {
        return Ok(version.is_some());
    }
    Err(SandboxError::Unavailable {
        missing: "this kernel has no Landlock to guard files with beside the mounts".to_owned(),
        fix: "boot with `lsm=landlock,…`, or add `degrade: {landlock: none}` to the policy".to_owned(),
    })
}

const WALL: &str = "private root + landlock";
const NETWORK: &str = "network namespace + seccomp + egress proxy";

/// Rows of `policy.effective` for everything but limits, by what keeps files apart and what the network.
pub(crate) fn describe(effective: &mut Map<String, Value>, mode: WorkspaceMode, wall: &str, network: &str) {
    let (workspace, hiding, keeping) = match mode {
        WorkspaceMode::Overlay => ("overlayfs", Some("whiteout layer"), Some("refused when changes are applied")),
        WorkspaceMode::Readonly => ("read-only mount", Some("whiteout layer"), Some("read-only mount")),
        // Names are written on the host at once: there is no layer to hide or to refuse new ones in.
        WorkspaceMode::Bind => ("bind mount", None, None),
    };
    for (key, by) in [
        ("fs.workspace", Some(workspace)),
        ("fs.read", Some(wall)),
        ("fs.write", Some(wall)),
        ("fs.deny_read", hiding),
        ("fs.deny_write", keeping),
        ("net", Some(network)),
        ("env.pass", Some("explicit environment")),
        ("models", Some("gateway")),
    ] {
        let row = match by {
            Some(by) => json!({"state": "enforced", "by": by}),
            None => json!({"state": "weaker", "by": "mounts over the files that were there at the start"}),
        };
        effective.insert(key.to_owned(), row);
    }
}

#[cfg(test)]
mod tests {
    use policy::EnforcementMeans;

    use super::{SandboxError, guards_files};

    #[test]
    fn a_kernel_without_landlock_is_taken_only_where_a_policy_accepts_it() {
        assert!(guards_files(Some(6), EnforcementMeans::None).unwrap(), "what is there is used");
        assert!(guards_files(Some(1), EnforcementMeans::Enforced).unwrap());
        assert!(!guards_files(None, EnforcementMeans::None).unwrap());
        let Err(SandboxError::Unavailable { missing, fix }) = guards_files(None, EnforcementMeans::Enforced) else {
            panic!("it is refused");
        };
        assert!(missing.contains("Landlock") && fix.contains("degrade: {landlock: none}"), "{missing}: {fix}");
    }
}
