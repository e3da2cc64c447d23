//! `viv policy trust [FILE]`: the list of trusted policy files in the data directory.
//!
//! Sandboxes never see the data directory, so no agent can trust a file on a person's behalf.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use ::policy::{BaseLayer, PolicySource, TrustedFiles};
use serde_json::json;

use super::load::{self, PROJECT_FILE};
use super::{PolicyCommandError, PolicyContext, print_json};

const LIST: &str = "trusted-policies.json";

/// Arguments of `trust`.
#[derive(Debug, clap::Args)]
pub(crate) struct TrustArguments {
    /// Policy file to trust (default: list the trusted files)
    file: Option<PathBuf>,
    /// Stop trusting the file
    #[arg(long, requires = "file")]
    forget: bool,
}

/// Pins a file, forgets it, or lists the pinned files.
pub(super) fn run(
    args: &TrustArguments,
    setting: &PolicyContext,
    out: &mut dyn Write,
    people: &mut dyn Write,
) -> Result<ExitCode, PolicyCommandError> {
    let Some(file) = &args.file else { return list(setting, out) };
    // A file that is forgotten may have been deleted.
    let path =
        fs::canonicalize(file).or_else(|source| if args.forget { std::path::absolute(file) } else { Err(source) });
    let path = path.map_err(|source| PolicyCommandError::Read { path: file.clone(), source })?;
    if args.forget {
        let known = change(&setting.data_dir, |trusted| trusted.untrust(&path))?;
        let word = if known { "no longer trusted" } else { "was not trusted" };
        writeln!(people, "{}: {word}", path.display()).map_err(PolicyCommandError::Output)?;
        return Ok(ExitCode::SUCCESS);
    }
    let text = load::read_untrusted(&path).map_err(|source| PolicyCommandError::Read { path: path.clone(), source })?;
    // Only a valid policy can be trusted.
    BaseLayer::read(&PolicySource::new(file.display().to_string(), text.as_str()))?;
    let sha256 = change(&setting.data_dir, |trusted| trusted.pin(&path, text.as_bytes(), setting.now_unix_secs))?;
    if setting.json {
        return print_json(out, &json!({"path": path, "sha256": sha256}));
    }
    writeln!(out, "{sha256}  {}", path.display()).map_err(PolicyCommandError::Output)?;
    writeln!(people, "trusted with its current content; to review it: viv policy explain {}", file.display())
        .map_err(PolicyCommandError::Output)?;
    if path.file_name().is_none_or(|name| name != PROJECT_FILE) {
        writeln!(people, "note: only a file named {PROJECT_FILE} is used without `--policy`")
            .map_err(PolicyCommandError::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn list(setting: &PolicyContext, out: &mut dyn Write) -> Result<ExitCode, PolicyCommandError> {
    let trusted = stored(&setting.data_dir)?;
    if setting.json {
        return print_json(out, &trusted);
    }
    for (path, pin) in trusted.iter() {
        writeln!(out, "{}  {}", pin.sha256, path.display()).map_err(PolicyCommandError::Output)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the stored list; empty if there is none.
pub(super) fn stored(data_dir: &Path) -> Result<TrustedFiles, PolicyCommandError> {
    let path = data_dir.join(LIST);
    read(&path).map_err(|source| PolicyCommandError::Trust { path, source })
}

fn read(path: &Path) -> io::Result<TrustedFiles> {
    match fs::read(path) {
        Ok(bytes) => Ok(serde_json::from_slice(&bytes)?),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(TrustedFiles::default()),
        Err(error) => Err(error),
    }
}

/// Changes the list under a lock, so that concurrent changes are not lost.
fn change<T>(data_dir: &Path, edit: impl FnOnce(&mut TrustedFiles) -> T) -> Result<T, PolicyCommandError> {
    let path = data_dir.join(LIST);
    let store = || -> io::Result<T> {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(data_dir)?;
        let lock = File::create(path.with_extension("lock"))?;
        lock.lock()?;
        let mut trusted = read(&path)?;
        let answer = edit(&mut trusted);
        let fresh = path.with_extension("new");
        let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&fresh)?;
        file.write_all(&serde_json::to_vec_pretty(&trusted)?)?;
        file.sync_all()?;
        fs::rename(&fresh, &path)?;
        Ok(answer)
    };
    store().map_err(|source| PolicyCommandError::Trust { path: path.clone(), source })
}
