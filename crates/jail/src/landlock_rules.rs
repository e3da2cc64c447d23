//! Landlock rules: a second restriction of file access that does not depend on mounts.
//!
//! The private root already contains nothing else. Landlock also protects files if an attacker finds a way around the mounts. It also denies every
//! change of mounts, and confines signals and abstract sockets to the sandbox.

use std::io;

use base::HOME;
use landlock::{
    ABI, Access, AccessFs, BitFlags, CompatLevel, Compatible, PathBeneath, Ruleset, RulesetAttr, RulesetCreatedAttr,
    RulesetStatus, Scope,
};

use crate::plan::{JailPlan, WorkspacePlan};
use crate::private_root::open_path;
use crate::sys;

/// The rules need the first version of Landlock. Rights of later versions are added where the kernel has them.
const NEEDED: ABI = ABI::V1;
const WANTED: ABI = ABI::V6;

/// Returns the version of Landlock that this kernel offers; `None` without Landlock.
pub fn landlock_version() -> Option<u32> {
    sys::landlock_version().ok().and_then(|version| u32::try_from(version).ok()).filter(|version| *version > 0)
}

/// Restricts this process and everything it starts to the paths of `plan`.
pub(crate) fn restrict(plan: &JailPlan) -> io::Result<()> {
    let all = AccessFs::from_all(WANTED);
    let read = AccessFs::from_read(WANTED);
    let ruleset = Ruleset::default()
        .set_compatibility(CompatLevel::HardRequirement)
        .handle_access(AccessFs::from_all(NEEDED))
        .and_then(|ruleset| {
            ruleset
                .set_compatibility(CompatLevel::BestEffort)
                .handle_access(all)?
                .scope(Scope::AbstractUnixSocket | Scope::Signal)?
                .create()
        })
        .map_err(io::Error::other)?;

    let mut rules: Vec<(String, BitFlags<AccessFs>)> = vec![
        ("/".into(), AccessFs::ReadDir.into()),
        ("/proc".into(), read | AccessFs::WriteFile),
        ("/dev".into(), read | AccessFs::WriteFile | AccessFs::IoctlDev | AccessFs::Truncate),
        ("/dev/shm".into(), all),
        ("/tmp".into(), all),
        (HOME.into(), all),
    ];
    let read_only = matches!(plan.workspace, WorkspacePlan::ReadOnly { .. });
    rules.push((plan.workspace_at.to_string_lossy().into_owned(), if read_only { read } else { all }));
    for bind in &plan.binds {
        rules.push((bind.target.to_string_lossy().into_owned(), if bind.writable { all } else { read }));
    }
    for layer in &plan.layers {
        rules.push((layer.target.to_string_lossy().into_owned(), if layer.writable { all } else { read }));
    }
    for (path, _) in &plan.files {
        rules.push((path.to_string_lossy().into_owned(), AccessFs::ReadFile.into()));
    }
    let mut ruleset = ruleset.set_compatibility(CompatLevel::BestEffort);
    for (path, access) in rules {
        let descriptor = open_path(&path)?;
        let is_dir = rustix::fs::FileType::from_raw_mode(rustix::fs::fstat(&descriptor)?.st_mode).is_dir();
        let access = if is_dir { access } else { access & AccessFs::from_file(WANTED) };
        ruleset = ruleset.add_rule(PathBeneath::new(descriptor, access)).map_err(io::Error::other)?;
    }
    let status = ruleset.restrict_self().map_err(io::Error::other)?;
    if status.ruleset == RulesetStatus::NotEnforced {
        return Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP));
    }
    Ok(())
}
