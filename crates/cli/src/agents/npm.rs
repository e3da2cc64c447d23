//! npm, as a program on this machine: it finds, downloads and checks packages.
//!
//! No package's own scripts are run: an installation is files and nothing else. Registry, proxy and
//! certificates are those the user configured for npm.

use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};

use protocol::ProblemCode;

use super::progress::InstallProgress;
use crate::failure::Failure;

/// Lines of npm's own words that are shown when it failed.
const LAST_WORDS: usize = 12;

/// Installs `package`, as `name@version`, into the empty `folder`.
pub(super) fn install(
    folder: &Path,
    package: &str,
    cache: Option<&Path>,
    progress: InstallProgress,
) -> Result<(), Failure> {
    // Without a package of its own here npm would look for one in the folders above.
    std::fs::write(folder.join("package.json"), "{\"private\":true}\n")
        .map_err(|error| Failure::new(ProblemCode::InstallFailed, "cannot write the installation").because(&error))?;
    let mut command = command(folder, package, cache);
    let missing = |error: std::io::Error| {
        Failure::new(ProblemCode::InstallFailed, "cannot run npm")
            .because(&error)
            .help("install Node.js with npm 10 or newer, then try again")
    };
    let (mut reader, writer) = std::io::pipe().map_err(missing)?;
    command.stdout(writer.try_clone().map_err(missing)?).stderr(writer);
    let mut child = command.spawn().map_err(missing)?;
    // Our own copies of the writing end are the command's; they must go, or reading would never end.
    drop(command);
    let said = progress.during(folder, || {
        let mut said = Vec::new();
        // What cannot be read is not shown; whether npm failed is told by its exit code.
        let _ = reader.read_to_end(&mut said);
        String::from_utf8_lossy(&said).into_owned()
    });
    let status = child.wait().map_err(missing)?;
    if status.success() {
        return Ok(());
    }
    if status.code() == Some(127) {
        return Err(missing(std::io::ErrorKind::NotFound.into()));
    }
    let lines: Vec<&str> = said.lines().collect();
    Err(Failure::new(ProblemCode::InstallFailed, format!("npm could not install `{package}`"))
        .detail(lines[lines.len().saturating_sub(LAST_WORDS)..].join("\n"))
        .help(format!("npm view {package}")))
}

fn command(folder: &Path, package: &str, cache: Option<&Path>) -> Command {
    let mut command = Command::new("sh");
    // The user inside a sandbox is another one: what only its owner can read, an agent could not.
    command.args(["-c", "umask 022 && exec npm \"$@\"", "npm", "install", package]);
    command.args(["--ignore-scripts", "--no-audit", "--no-fund", "--omit=dev", "--package-lock=true"]);
    command.args(["--global=false", "--engine-strict=false", "--loglevel=error", "--prefix"]).arg(folder);
    if let Some(cache) = cache {
        command.arg("--cache").arg(cache).arg("--prefer-offline");
    }
    command.current_dir(folder).stdin(Stdio::null());
    command
}
