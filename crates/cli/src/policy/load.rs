//! Finding and reading policies: files, presets, the organisation's rules, the project's own file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::policy::{
    BaseLayer, CeilingLayer, EffectivePolicy, FileTrust, GrantContext, NarrowingLayer, PolicySource, Preset,
    TrustedFiles, effective, resolve,
};

use super::{PolicyCommandError, PolicyContext, trust};

/// The name of a project's own policy.
pub(super) const PROJECT_FILE: &str = "sandbox.policy.yaml";

/// The policy of a person who chose nothing.
const DEFAULT_PRESET: Preset = Preset::Balanced;

/// More than any policy is long; the rest of an endless file is not read, and what was read is refused.
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads a policy text; its name is the path as it was given.
pub(super) fn read(path: &Path) -> Result<PolicySource, PolicyCommandError> {
    let text = File::open(path).and_then(read_bounded);
    let text = text.map_err(|source| PolicyCommandError::Read { path: path.to_owned(), source })?;
    Ok(PolicySource::new(path.display().to_string(), text))
}

fn read_bounded(file: File) -> io::Result<String> {
    let mut text = String::new();
    file.take(MAX_BYTES).read_to_string(&mut text)?;
    Ok(text)
}

/// Reads a file nobody trusts: it may be a pipe without an end, put there to make us wait.
pub(super) fn read_untrusted(path: &Path) -> io::Result<String> {
    let nonblocking = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(nonblocking).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file"));
    }
    read_bounded(file)
}

/// A base by `FILE` or `PRESET`. The name of a preset always means the preset: the file would be `./strict`.
pub(super) fn base(name: &str) -> Result<BaseLayer, PolicyCommandError> {
    match name.parse::<Preset>() {
        Ok(preset) => Ok(BaseLayer::preset(preset)?),
        Err(_) if Path::new(name).exists() || name.contains(['/', '.']) => {
            Ok(BaseLayer::read(&read(Path::new(name))?)?)
        }
        Err(source) => Err(PolicyCommandError::NoPolicy { name: name.to_owned(), source }),
    }
}

/// The built-in rules, with the organisation's on top where there are any.
pub(crate) fn ceiling(setting: &PolicyContext) -> Result<CeilingLayer, PolicyCommandError> {
    let built_in = CeilingLayer::built_in()?;
    match fs::read_to_string(&setting.organisation_file) {
        Ok(text) => Ok(built_in.and(&PolicySource::new(setting.organisation_file.display().to_string(), text))?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(built_in),
        // A rule that is there and cannot be read must not be taken for one that is not there.
        Err(source) => Err(PolicyCommandError::Read { path: setting.organisation_file.clone(), source }),
    }
}

/// What a session under the policy `name` may do.
pub(super) fn named_policy(name: &str, setting: &PolicyContext) -> Result<EffectivePolicy, PolicyCommandError> {
    Ok(effective(&ceiling(setting)?, &base(name)?, &[]))
}

/// The same in a project, whose file narrows it as long as nobody trusts it.
pub(super) fn named_policy_in_project(
    name: &str,
    setting: &PolicyContext,
) -> Result<EffectivePolicy, PolicyCommandError> {
    let policy = named_policy(name, setting)?;
    match project_file(setting)? {
        // Whoever names the project's file has chosen it: it is the base, and narrows nothing beside itself.
        Some((path, _)) if fs::canonicalize(name).is_ok_and(|named| named == path) => Ok(policy),
        Some((path, source)) if trust_in(setting, &path, &source)? != FileTrust::Trusted => {
            Ok(policy.narrowed(&[NarrowingLayer::read(&source)?])?)
        }
        _ => Ok(policy),
    }
}

/// What the project's file leaves of a policy that somebody else chose, whoever trusts the file: it is wider in nothing.
pub(crate) fn narrowed_by_project(
    policy: &Arc<EffectivePolicy>,
    setting: &PolicyContext,
) -> Result<Arc<EffectivePolicy>, PolicyCommandError> {
    let Some((path, source)) = project_file(setting)? else { return Ok(policy.clone()) };
    let narrowing = NarrowingLayer::read(&source)?;
    Ok(Arc::new(match trust_in(setting, &path, &source)? {
        // It was written as a base, and asks for what this one may not have.
        FileTrust::Trusted => policy.met(&narrowing),
        _ => policy.narrowed(&[narrowing])?,
    }))
}

fn trust_in(setting: &PolicyContext, path: &Path, source: &PolicySource) -> Result<FileTrust, PolicyCommandError> {
    let trusted: TrustedFiles = trust::stored(&setting.data_dir)?;
    Ok(trusted.check(path, source.text().as_bytes()))
}

/// What a session in this workspace may do when nothing is chosen, and how the project's file was taken.
pub(super) fn default_policy(setting: &PolicyContext) -> Result<(EffectivePolicy, String), PolicyCommandError> {
    let ceiling = ceiling(setting)?;
    let Some((path, source)) = project_file(setting)? else {
        let base = BaseLayer::preset(DEFAULT_PRESET)?;
        let note = format!("no {PROJECT_FILE} here: the preset `{DEFAULT_PRESET}`");
        return Ok((effective(&ceiling, &base, &[]), note));
    };
    if trust_in(setting, &path, &source)? == FileTrust::Trusted {
        let note = format!("{PROJECT_FILE}, which you trusted");
        return Ok((effective(&ceiling, &BaseLayer::read(&source)?, &[]), note));
    }
    let narrowing = NarrowingLayer::read(&source)?;
    let nobody = GrantContext { session_id: None, call: None, now_unix_secs: setting.now_unix_secs };
    let session = resolve(&ceiling, &BaseLayer::preset(DEFAULT_PRESET)?, &[narrowing], &[], &nobody)?;
    let note = format!("the preset `{DEFAULT_PRESET}`, narrowed by {PROJECT_FILE}, which is not trusted");
    Ok((session, note))
}

/// The project's file under its real path, if there is one.
fn project_file(setting: &PolicyContext) -> Result<Option<(PathBuf, PolicySource)>, PolicyCommandError> {
    let Some(workspace) = &setting.workspace else { return Ok(None) };
    let path = &workspace.join(PROJECT_FILE);
    match fs::canonicalize(path) {
        Ok(real) => {
            let text =
                read_untrusted(&real).map_err(|source| PolicyCommandError::Read { path: real.clone(), source })?;
            Ok(Some((real, PolicySource::new(PROJECT_FILE, text))))
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(source) => Err(PolicyCommandError::Read { path: path.to_owned(), source }),
    }
}
