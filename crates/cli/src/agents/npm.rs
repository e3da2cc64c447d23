//! The npm program of this machine, which downloads and verifies packages.
//!
//! Install scripts of packages are never run. Registry, proxy and certificates come from the user's npm
//! configuration.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use protocol::ProblemCode;

use super::progress::InstallProgress;
use crate::failure::Failure;

/// Lines of npm's output that are shown when npm fails.
const SHOWN_LINES: usize = 12;

/// Installs `package`, as `name@version`, into the empty `folder`.
pub(super) fn install(
    folder: &Path,
    package: &str,
    cache: Option<&Path>,
    progress: InstallProgress,
) -> Result<(), Failure> {
    // Without a package.json here npm would look for one in the parent folders.
    std::fs::write(folder.join("package.json"), "{\"private\":true}\n")
        .map_err(|error| Failure::new(ProblemCode::InstallFailed, "cannot write the installation").because(&error))?;
    let mut command = command(folder, package, cache);
    let missing = |error: std::io::Error| {
        Failure::new(ProblemCode::InstallFailed, "cannot run npm: installing agents needs Node.js with npm 10 or newer")
            .because(&error)
            .help("npm --version")
    };
    let (mut reader, writer) = std::io::pipe().map_err(missing)?;
    command.stdout(writer.try_clone().map_err(missing)?).stderr(writer);
    let mut child = command.spawn().map_err(missing)?;
    // The command holds our copies of the writing end. Reading ends only after they are closed.
    drop(command);
    let output = progress.during(folder, || {
        let mut output = Vec::new();
        // The exit code tells whether npm failed; unreadable output is not shown.
        let _ = reader.read_to_end(&mut output);
        String::from_utf8_lossy(&output).into_owned()
    });
    let status = child.wait().map_err(missing)?;
    if status.success() {
        return Ok(());
    }
    if status.code() == Some(127) {
        return Err(missing(std::io::ErrorKind::NotFound.into()));
    }
    let lines: Vec<&str> = output.lines().collect();
    Err(Failure::new(ProblemCode::InstallFailed, format!("npm could not install `{package}`"))
        .detail(lines[lines.len().saturating_sub(SHOWN_LINES)..].join("\n"))
        .help(format!("npm view {package}")))
}

fn command(folder: &Path, package: &str, cache: Option<&Path>) -> Command {
    let mut command = Command::new("sh");
    // The sandbox user is another user, so the files must be readable by everybody.
    command.args(["-c", "umask 022 && exec npm \"$@\"", "npm", "install", package]);
    command.args(["--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--package-lock=true"]);
    command.args(["--global=false", "--engine-strict=false", "--loglevel=error", "--prefix"]).arg(folder);
    if let Some(cache) = cache {
        command.arg("--cache").arg(cache).arg("--prefer-offline");
    }
    command.current_dir(folder).stdin(Stdio::null());
    command
}
