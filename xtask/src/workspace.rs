//! The checkout, and cargo calls in it.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};
use serde_json::Value;

/// Returns the root of the checkout.
pub(crate) fn root() -> &'static Path {
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR"));
    manifest.parent().unwrap_or(manifest)
}

/// Returns a cargo command in the checkout. The variables that cargo sets for this process are removed: some build
/// scripts depend on them, so that a call by hand would rebuild everything.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.args(arguments).current_dir(root());
    for (name, _) in std::env::vars_os() {
        if name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_")) {
            command.env_remove(name);
        }
    }
    command
}

/// Returns the target directory of the checkout.
pub(crate) fn target_directory() -> Result<PathBuf> {
    let text = output(&mut cargo(&["metadata", "--format-version=1", "--no-deps", "--offline"]))?;
    let metadata: Value = serde_json::from_str(&text).context("cannot read `cargo metadata`")?;
    let directory = metadata["target_directory"].as_str().context("`cargo metadata` names no target directory")?;
    Ok(PathBuf::from(directory))
}

/// Runs a command, and returns its standard output; fails when the command fails.
pub(crate) fn output(command: &mut Command) -> Result<String> {
    let shown = format!("{command:?}");
    let output = command.output().with_context(|| format!("cannot run {shown}"))?;
    if !output.status.success() {
        bail!("{shown} failed ({})\n{}", output.status, String::from_utf8_lossy(&output.stderr).trim_end());
    }
    Ok(String::from_utf8_lossy(&output.stdout).into_owned())
}
