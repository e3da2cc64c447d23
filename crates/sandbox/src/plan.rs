//! What a sandbox is made of, from what a session asks for and its policy allows.

use std::path::Path;

use base::DEPENDENCIES;
use jail::{BindMount, JailPlan, ProcessLimits, WorkspacePlan};
use policy::{DenyGlobs, DnsMode, WorkspaceMode};

use crate::source::Sources;
use crate::system::System;
use crate::{SandboxError, SandboxSpec, masks};

/// So many files of a bind workspace are held, each by a mount of its own.
const MAX_GUARDED: usize = 4096;
/// One file for so many bytes that can be written: what ext4 gives.
const BYTES_PER_INODE: u64 = 16 * 1024;

/// The plan of one sandbox. Every host path in it is without links: the jail follows none.
pub(crate) fn plan(
    spec: &SandboxSpec,
    fs: &policy::FsPolicy,
    process: ProcessLimits,
    sources: &Sources,
    mut system: System,
) -> Result<JailPlan, SandboxError> {
    let limits = spec.policy.limits();
    for path in &fs.write_paths {
        system.binds.push(BindMount {
            source: sources.find("`fs.write`", path)?,
            target: path.clone(),
            writable: true,
        });
    }
    for (source, target) in &spec.mounts {
        let key = if target == Path::new(DEPENDENCIES) { "`--deps`" } else { "what an agent needs" };
        system.binds.push(BindMount { source: sources.find(key, source)?, target: target.clone(), writable: false });
    }
    if spec.policy.dns_mode() == DnsMode::Stub {
        system.ask_for_names();
    }
    system.files.extend(spec.files.iter().cloned());
    Ok(JailPlan {
        id: spec.id.clone(),
        binds: system.binds,
        links: system.links,
        files: system.files,
        names: spec.policy.dns_mode() == DnsMode::Stub,
        workspace: workspace_plan(sources.workspace(), fs)?,
        disk_bytes: limits.disk_bytes,
        disk_inodes: (limits.disk_bytes / BYTES_PER_INODE).max(1024),
        process,
        landlock: true,
    })
}

fn workspace_plan(directory: Option<&Path>, fs: &policy::FsPolicy) -> Result<WorkspacePlan, SandboxError> {
    let Some(directory) = directory else { return Ok(WorkspacePlan::Empty) };
    let directory = directory.to_owned();
    let found = |denied: &DenyGlobs| {
        masks(&directory, denied).map_err(|source| SandboxError::Create {
            step: format!("look for what is denied in `{}`", directory.display()),
            source,
        })
    };
    let hidden = found(&fs.deny_read)?;
    Ok(match fs.workspace_mode {
        WorkspaceMode::Overlay => WorkspacePlan::Overlay { masks: hidden, directory },
        WorkspaceMode::Readonly => WorkspacePlan::ReadOnly { masks: hidden, directory },
        WorkspaceMode::Bind => {
            let kept = found(&fs.deny_write)?;
            guardable(hidden.len() + kept.len())?;
            WorkspacePlan::Bind { hidden, kept, directory }
        }
    })
}

/// Fails where more is denied than can be held, file by file.
fn guardable(files: usize) -> Result<(), SandboxError> {
    if files <= MAX_GUARDED {
        return Ok(());
    }
    Err(SandboxError::Unavailable {
        missing: format!(
            "`fs.workspace: bind` holds `fs.deny_read` and `fs.deny_write` by a mount a file, and {files} files are \
             denied: more than {MAX_GUARDED}"
        ),
        fix: "set `fs.workspace: overlay`, or deny whole directories".to_owned(),
    })
}
