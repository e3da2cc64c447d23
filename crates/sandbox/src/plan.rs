//! The plan of a sandbox, made from the spec of a session and its policy.

use std::path::Path;

use base::DEPENDENCIES;
use jail::{BindMount, JailPlan, ProcessLimits, WorkspacePlan};
use policy::{DenyGlobs, DnsMode, WorkspaceMode};

use crate::host_paths::HostPaths;
use crate::mask::denied_paths;
use crate::system_files::SystemFiles;
use crate::{SandboxError, SandboxSpec};

/// The most denied files of a bind workspace. Each needs a mount.
const MAX_GUARDED: usize = 4096;
/// The size of the writable space for each file that it may hold; the default of ext4.
const BYTES_PER_INODE: u64 = 16 * 1024;

/// Returns the plan of one sandbox. Its host paths contain no links, because the jail follows none.
pub(crate) fn plan(
    spec: &SandboxSpec,
    fs: &policy::FsPolicy,
    process: ProcessLimits,
    host_paths: &HostPaths,
    mut system: SystemFiles,
) -> Result<JailPlan, SandboxError> {
    let limits = spec.policy.limits();
    for path in &fs.write_paths {
        system.binds.push(BindMount {
            source: host_paths.find("`fs.write`", path)?,
            target: path.clone(),
            writable: true,
        });
    }
    for (source, target) in &spec.mounts {
        let key = if target == Path::new(DEPENDENCIES) { "`--deps`" } else { "a mount of the agent" };
        system.binds.push(BindMount { source: host_paths.find(key, source)?, target: target.clone(), writable: false });
    }
    if spec.policy.dns_mode() == DnsMode::Stub {
        system.use_name_server();
    }
    system.files.extend(spec.files.iter().cloned());
    Ok(JailPlan {
        id: spec.id.clone(),
        binds: system.binds,
        links: system.links,
        files: system.files,
        dns: spec.policy.dns_mode() == DnsMode::Stub,
        workspace: workspace_plan(host_paths.workspace(), fs)?,
        disk_bytes: limits.disk_bytes,
        disk_inodes: (limits.disk_bytes / BYTES_PER_INODE).max(1024),
        process,
        landlock: true,
    })
}

fn workspace_plan(directory: Option<&Path>, fs: &policy::FsPolicy) -> Result<WorkspacePlan, SandboxError> {
    let Some(directory) = directory else { return Ok(WorkspacePlan::Empty) };
    let directory = directory.to_owned();
    let find = |denied: &DenyGlobs| {
        denied_paths(&directory, denied).map_err(|source| SandboxError::Create {
            step: format!("look for denied files in `{}`", directory.display()),
            source,
        })
    };
    let hidden = find(&fs.deny_read)?;
    Ok(match fs.workspace_mode {
        WorkspaceMode::Overlay => WorkspacePlan::Overlay { masks: hidden, directory },
        WorkspaceMode::Readonly => WorkspacePlan::ReadOnly { masks: hidden, directory },
        WorkspaceMode::Bind => {
            let protected = find(&fs.deny_write)?;
            check_guarded_count(hidden.len() + protected.len())?;
            WorkspacePlan::Bind { hidden, protected, directory }
        }
    })
}

/// Fails when more files are denied than can have a mount.
fn check_guarded_count(files: usize) -> Result<(), SandboxError> {
    if files <= MAX_GUARDED {
        return Ok(());
    }
    Err(SandboxError::Unavailable {
        missing: format!(
            "`fs.workspace: bind` needs a mount for each file that `fs.deny_read` and `fs.deny_write` name: {files} \
             files are denied, the limit is {MAX_GUARDED}"
        ),
        fix: "set `fs.workspace: overlay`, or deny whole directories".to_owned(),
    })
}
