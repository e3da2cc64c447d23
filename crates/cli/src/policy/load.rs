//! Loading of policies: files, presets, the organisation's policy, the project's policy file.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ::policy::{
    Action, BaseLayer, CeilingLayer, EffectivePolicy, Endpoint, FileTrust, GrantContext, NarrowingLayer, PolicySource,
    Preset, TrustedFiles, effective, resolve,
};

use rustix::fs::OFlags;

use super::{PolicyCommandError, PolicyContext, trust};

/// Name of a project's policy file.
pub(super) const PROJECT_FILE: &str = "sandbox.policy.yaml";

/// Policy if none is chosen.
const DEFAULT_PRESET: Preset = Preset::Balanced;

/// Maximum size of a policy file. A longer file is cut here and then rejected as invalid.
const MAX_BYTES: u64 = 1024 * 1024;

/// Reads a policy file; errors name the path as given.
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

/// Reads an untrusted file; fails unless it is a regular file, because a pipe would block us.
pub(super) fn read_untrusted(path: &Path) -> io::Result<String> {
    read_regular(path, OFlags::NONBLOCK)
}

/// Reads the policy file of a project, without following a link in its place.
fn read_project_file(path: &Path) -> io::Result<String> {
    read_regular(path, OFlags::NONBLOCK | OFlags::NOFOLLOW)
}

fn read_regular(path: &Path, flags: OFlags) -> io::Result<String> {
    let flags = i32::try_from(flags.bits()).unwrap_or_default();
    let file = OpenOptions::new().read(true).custom_flags(flags).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, "not a regular file"));
    }
    read_bounded(file)
}

/// Loads a base layer from a preset or a file. The name of a preset always means the preset; write `./strict` for a file.
pub(super) fn base(name: &str) -> Result<BaseLayer, PolicyCommandError> {
    match name.parse::<Preset>() {
        Ok(preset) => Ok(BaseLayer::preset(preset)?),
        Err(_) if Path::new(name).exists() || name.contains(['/', '.']) => {
            Ok(BaseLayer::read(&read(Path::new(name))?)?)
        }
        Err(source) => Err(PolicyCommandError::NoPolicy { name: name.to_owned(), source }),
    }
}

/// Returns a base layer with the hosts that the command line and `net.packages` open.
fn opened(base: BaseLayer, setting: &PolicyContext) -> Result<BaseLayer, PolicyCommandError> {
    let Some(network) = &setting.network else { return Ok(base) };
    let base = base.allowing(&network.allow)?;
    let base = if network.packages() { base.with_packages() } else { base };
    if !base.opens_packages() {
        return Ok(base);
    }
    let found = setting.packages.find(setting.workspace.as_deref());
    Ok(base.with_registries(&found.accesses())?)
}

/// Fails if a host of `--allow` is denied by the ceiling or by the project.
pub(super) fn check_allowed(policy: &EffectivePolicy, setting: &PolicyContext) -> Result<(), PolicyCommandError> {
    for host in setting.network.iter().flat_map(|network| &network.allow) {
        let Ok(action) = Action::net(host) else { continue };
        let decision = policy.decide(&action);
        // Requests to an intercepted host are decided one by one.
        let intercepted = host.parse::<Endpoint>().is_ok_and(|endpoint| policy.intercepts(&endpoint));
        if !decision.is_allowed() && !intercepted {
            return Err(PolicyCommandError::StillDenied { host: host.clone(), rule: decision.rule.to_string() });
        }
    }
    Ok(())
}

/// Loads the ceiling layer: the built-in rules and the organisation's policy, if the file exists.
pub(crate) fn ceiling(setting: &PolicyContext) -> Result<CeilingLayer, PolicyCommandError> {
    let built_in = CeilingLayer::built_in()?;
    match fs::read_to_string(&setting.organisation_file) {
        Ok(text) => {
            Ok(built_in.with_organisation(&PolicySource::new(setting.organisation_file.display().to_string(), text))?)
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(built_in),
        // An unreadable file must not count as missing.
        Err(source) => Err(PolicyCommandError::Read { path: setting.organisation_file.clone(), source }),
    }
}

/// Returns the effective policy of the file or preset `name`.
pub(super) fn named_policy(name: &str, setting: &PolicyContext) -> Result<EffectivePolicy, PolicyCommandError> {
    Ok(effective(&ceiling(setting)?, &opened(base(name)?, setting)?, &[]))
}

/// Returns the effective policy of `name` in a project. An untrusted project file narrows it.
pub(super) fn named_policy_in_project(
    name: &str,
    setting: &PolicyContext,
) -> Result<EffectivePolicy, PolicyCommandError> {
    let policy = named_policy(name, setting)?;
    match project_file(setting)? {
        // Naming the project's own file makes it the base layer; it does not narrow itself.
        Some((path, _)) if fs::canonicalize(name).is_ok_and(|named| named == path) => Ok(policy),
        Some((path, source)) if trust_in(setting, &path, &source)? != FileTrust::Trusted => {
            Ok(policy.narrowed(&[NarrowingLayer::read(&source)?])?)
        }
        _ => Ok(policy),
    }
}

/// Returns `policy` narrowed by the project's file, trusted or not. The result never allows more.
pub(crate) fn narrowed_by_project(
    policy: &Arc<EffectivePolicy>,
    setting: &PolicyContext,
) -> Result<Arc<EffectivePolicy>, PolicyCommandError> {
    let Some((path, source)) = project_file(setting)? else { return Ok(policy.clone()) };
    let narrowing = NarrowingLayer::read(&source)?;
    Ok(Arc::new(match trust_in(setting, &path, &source)? {
        // The file was written as a base layer, so it may ask for more; only the common part counts.
        FileTrust::Trusted => policy.restricted_by(&narrowing),
        _ => policy.narrowed(&[narrowing])?,
    }))
}

fn trust_in(setting: &PolicyContext, path: &Path, source: &PolicySource) -> Result<FileTrust, PolicyCommandError> {
    let trusted: TrustedFiles = trust::stored(&setting.data_dir)?;
    Ok(trusted.check(path, source.text().as_bytes()))
}

/// Returns the default policy of this project, and a note on how the project's file was used.
pub(super) fn default_policy(setting: &PolicyContext) -> Result<(EffectivePolicy, String), PolicyCommandError> {
    let ceiling = ceiling(setting)?;
    let Some((path, source)) = project_file(setting)? else {
        let base = opened(BaseLayer::preset(DEFAULT_PRESET)?, setting)?;
        let note = format!("preset `{DEFAULT_PRESET}`: there is no {PROJECT_FILE} here");
        return Ok((effective(&ceiling, &base, &[]), note));
    };
    if trust_in(setting, &path, &source)? == FileTrust::Trusted {
        let note = format!("trusted {PROJECT_FILE}");
        return Ok((effective(&ceiling, &opened(BaseLayer::read(&source)?, setting)?, &[]), note));
    }
    let narrowing = NarrowingLayer::read(&source)?;
    let no_grants = GrantContext { session_id: None, call: None, now_unix_secs: setting.now_unix_secs };
    let base = opened(BaseLayer::preset(DEFAULT_PRESET)?, setting)?;
    let session = resolve(&ceiling, &base, &[narrowing], &[], &no_grants)?;
    let note = format!("preset `{DEFAULT_PRESET}`, narrowed by the untrusted {PROJECT_FILE}");
    Ok((session, note))
}

/// Returns the policy of a task whose file names `name`. A policy file whose content a person trusts is the base. Any other
/// policy only narrows the default one, because the task file may come from anybody.
pub(super) fn policy_of_task(name: &str, setting: &PolicyContext) -> Result<EffectivePolicy, PolicyCommandError> {
    let source = match name.parse::<Preset>() {
        Ok(preset) => preset.source(),
        Err(source) if !Path::new(name).exists() => {
            return Err(PolicyCommandError::NoPolicy { name: name.to_owned(), source });
        }
        Err(_) => {
            let failed = |source| PolicyCommandError::Read { path: name.into(), source };
            let real = fs::canonicalize(name).map_err(failed)?;
            let source = PolicySource::new(name, read_untrusted(&real).map_err(failed)?);
            if trust_in(setting, &real, &source)? == FileTrust::Trusted {
                return named_policy_in_project(name, setting);
            }
            source
        }
    };
    let narrowing = NarrowingLayer::read(&source)?;
    default_policy(setting)?.0.narrowed(&[narrowing]).map_err(PolicyCommandError::Task)
}

/// Returns the project's policy file with its real path, if it exists. A link is refused: it could name any file of the
/// host, whose text would then appear in an error.
fn project_file(setting: &PolicyContext) -> Result<Option<(PathBuf, PolicySource)>, PolicyCommandError> {
    let Some(workspace) = &setting.workspace else { return Ok(None) };
    let path = workspace.join(PROJECT_FILE);
    let kind = match fs::symlink_metadata(&path) {
        Ok(found) => found.file_type(),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(PolicyCommandError::Read { path, source }),
    };
    if !kind.is_file() {
        return Err(PolicyCommandError::NotAFile { path, is_link: kind.is_symlink() });
    }
    let text = fs::canonicalize(workspace)
        .and_then(|workspace| Ok((workspace.join(PROJECT_FILE), read_project_file(&workspace.join(PROJECT_FILE))?)));
    let (real, text) = text.map_err(|source| PolicyCommandError::Read { path, source })?;
    Ok(Some((real, PolicySource::new(PROJECT_FILE, text))))
}
