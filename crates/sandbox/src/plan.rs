//! The plan of a sandbox, made from the spec of a session and its policy.

use std::path::{Path, PathBuf};

use base::{DEPENDENCIES, WORKSPACE};
use jail::{BindMount, JailPlan, ProcessLimits, WorkspacePlan};
use policy::{DnsMode, FileDenials, WorkspaceMode};
use protocol::{CopiedLinks, KeyEnforcements};

use crate::hard_links::{self, SeparatedLinks};
use crate::hidden_files::HiddenFiles;
use crate::host_paths::HostPaths;
use crate::mask::denied_paths;
use crate::system_files::SystemFiles;
use crate::workspace_path::workspace_path;
use crate::{SandboxError, SandboxSpec};

/// The most denied files of a bind workspace. Each needs a mount.
const MAX_GUARDED: usize = 4096;
/// The size of the writable space for each file that it may hold; the default of ext4.
const BYTES_PER_INODE: u64 = 16 * 1024;

/// The plan of a sandbox, and the files of its workspace that are treated specially.
pub(crate) struct SandboxPlan {
    pub(crate) jail: JailPlan,
    /// The file denials of the policy, with the files that are hidden in this workspace.
    pub(crate) denials: FileDenials,
    pub(crate) special: SpecialFiles,
}

/// Files of a workspace that are treated specially, as numbers for `policy.effective`.
#[derive(Debug, Clone, Default)]
pub(crate) struct SpecialFiles {
    /// Hidden files and directories.
    pub(crate) hidden: usize,
    /// Git configurations without their credentials.
    pub(crate) masked_configs: Vec<PathBuf>,
    /// Files of a bind workspace that were replaced by private copies.
    pub(crate) separated: SeparatedLinks,
}

impl SpecialFiles {
    /// Adds the numbers to the rows of `policy.effective`.
    pub(crate) fn describe(&self, effective: &mut KeyEnforcements) {
        if let Some(row) = effective.get_mut("fs.deny_read") {
            row.hidden = (self.hidden > 0).then_some(self.hidden as u64);
            row.without_credentials =
                self.masked_configs.iter().map(|path| path.to_string_lossy().into_owned()).collect();
        }
        let SeparatedLinks { files, bytes } = self.separated;
        if let Some(row) = effective.get_mut("fs.workspace") {
            row.copied_links = (files > 0).then_some(CopiedLinks { files: files as u64, bytes });
        }
    }
}

/// Returns the plan of one sandbox. Its host paths contain no links, because the jail follows none.
pub(crate) fn plan(
    spec: &SandboxSpec,
    fs: &policy::FsPolicy,
    process: ProcessLimits,
    host_paths: &HostPaths,
    mut system: SystemFiles,
) -> Result<SandboxPlan, SandboxError> {
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
    system.binds.extend(spec.toolchains.binds());
    system.links.extend(spec.toolchains.links());
    if spec.policy.dns_mode() == DnsMode::Stub {
        system.use_name_server();
    }
    system.files.extend(spec.files.iter().cloned());
    let (workspace, hidden, separated) = workspace_plan(host_paths.workspace(), fs)?;
    // The caller may name a path of another host, such as that of an imported session.
    let workspace_at = match workspace {
        WorkspacePlan::Empty => PathBuf::from(WORKSPACE),
        _ => workspace_path(&spec.workspace_at, fs),
    };
    let jail = JailPlan {
        workspace_at,
        id: spec.id.clone(),
        binds: system.binds,
        layers: spec.toolchains.layers(),
        links: system.links,
        files: system.files,
        dns: spec.policy.dns_mode() == DnsMode::Stub,
        workspace,
        disk_bytes: limits.disk_bytes,
        disk_inodes: (limits.disk_bytes / BYTES_PER_INODE).max(1024),
        process,
        landlock: true,
    };
    let denials = hidden.recorded_in(spec.policy.file_denials());
    let special = SpecialFiles { hidden: hidden.count(), masked_configs: hidden.masked_configs, separated };
    Ok(SandboxPlan { jail, denials, special })
}

fn workspace_plan(
    directory: Option<&Path>,
    fs: &policy::FsPolicy,
) -> Result<(WorkspacePlan, HiddenFiles, SeparatedLinks), SandboxError> {
    let Some(directory) = directory.map(Path::to_owned) else {
        return Ok((WorkspacePlan::Empty, HiddenFiles::default(), SeparatedLinks::default()));
    };
    let failed =
        |source| SandboxError::Create { step: format!("look for denied files in `{}`", directory.display()), source };
    let mut hidden = HiddenFiles::find(&directory, &fs.deny_read).map_err(failed)?;
    check_tracked(&hidden, fs.workspace_mode)?;
    let (masks, covers) = (hidden.paths(), std::mem::take(&mut hidden.covers));
    let mut separated = SeparatedLinks::default();
    let plan = match fs.workspace_mode {
        WorkspaceMode::Overlay => WorkspacePlan::Overlay { masks, covers, directory },
        WorkspaceMode::Readonly => WorkspacePlan::ReadOnly { masks, covers, directory },
        WorkspaceMode::Bind => {
            let protected = denied_paths(&directory, &fs.deny_write).map_err(failed)?;
            check_guarded_count(masks.len() + covers.len() + protected.len())?;
            separated = hard_links::separate(&directory)?;
            WorkspacePlan::Bind { hidden: masks, covers, protected, directory }
        }
    };
    Ok((plan, hidden, separated))
}

/// Fails when git inside would take a hidden file for deleted or changed.
fn check_tracked(hidden: &HiddenFiles, mode: WorkspaceMode) -> Result<(), SandboxError> {
    let Some(tracked) = hidden.tracked.first() else { return Ok(()) };
    let tracked = tracked.display();
    if mode == WorkspaceMode::Bind {
        return Err(SandboxError::Unavailable {
            missing: format!(
                "`fs.deny_read` names `{tracked}`, which git tracks: with `fs.workspace: bind` a commit inside would \
                 record it as changed"
            ),
            fix: "set `fs.workspace: overlay`, or remove the file from `fs.deny_read`".to_owned(),
        });
    }
    match &hidden.unmarked_index {
        None => Ok(()),
        Some(index) => Err(SandboxError::Unavailable {
            missing: format!(
                "`fs.deny_read` names `{tracked}`, which git tracks, and the split index `{}` cannot be marked: a commit \
                 inside would delete it",
                index.display()
            ),
            fix: "run `git update-index --no-split-index`, or remove the file from `fs.deny_read`".to_owned(),
        }),
    }
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
