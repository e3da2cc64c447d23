//! The server of the npm package `sandbox-agent`, in a pinned version.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, ensure};

use crate::install;
use crate::step::quietly;

pub(super) const VERSION: &str = "0.4.2";

/// Installs the peer into the user's cache unless it is there, and returns the path of its program.
pub(super) fn install() -> Result<PathBuf> {
    let folder = install::cache_folder(&format!("sandbox-agent-{VERSION}"))?;
    let architecture = if cfg!(target_arch = "aarch64") { "arm64" } else { "x64" };
    let program = folder.join(format!("node_modules/@sandbox-agent/cli-linux-{architecture}/bin/sandbox-agent"));
    if !program.exists() {
        let mut npm = Command::new("npm");
        // The package contains the program; its install scripts need not run.
        npm.args(["install", "--no-audit", "--no-fund", "--ignore-scripts", "--prefix"]).arg(&folder);
        quietly(npm.arg(format!("@sandbox-agent/cli@{VERSION}")))?;
    }
    ensure!(program.exists(), "@sandbox-agent/cli {VERSION} has no {}", program.display());
    make_executable(&program)?;
    Ok(program)
}

fn make_executable(program: &Path) -> Result<()> {
    use std::os::unix::fs::PermissionsExt as _;
    let mode = std::fs::Permissions::from_mode(0o755);
    std::fs::set_permissions(program, mode).context("cannot make the peer executable")
}

/// Returns the command that serves at `address`, with `folder` as its home.
pub(super) fn command(program: &Path, folder: &Path, address: &str) -> Result<Command> {
    let (host, port) = address.split_once(':').context("the address has no port")?;
    let mut command = Command::new(program);
    command.args(["server", "--no-token", "--no-telemetry", "--host", host, "--port", port]);
    command.current_dir(folder).env("HOME", folder).env("XDG_DATA_HOME", folder.join("data"));
    Ok(command)
}
