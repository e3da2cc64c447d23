//! The Inspector: its packages, its build and its stories in a real browser.
//!
//! `cargo build` embeds `web/dist/ui` if it exists, so the build comes before it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::SystemTime;

use anyhow::{Context, Result};

use crate::{step, workspace};

/// Installs the pinned packages and builds the Inspector.
pub(crate) fn build() -> Result<String> {
    let folder = folder();
    // npm writes its own lock file into the folder of the packages when it has installed all of them.
    if changed(&folder.join("node_modules/.package-lock.json")) < changed(&folder.join("package-lock.json")) {
        step::quietly(&mut npm(&["ci", "--no-audit", "--no-fund"]))?;
    }
    step::quietly(&mut npm(&["run", "build"]))?;
    Ok(String::new())
}

/// Runs the stories against `viv` in Chromium.
pub(crate) fn test(viv: &Path) -> Result<String> {
    let output = workspace::output(npm(&["run", "--silent", "test"]).env("VIV", viv))?;
    output.lines().last().map(str::to_owned).context("the stories printed nothing")
}

fn npm(arguments: &[&str]) -> Command {
    let mut command = Command::new("npm");
    command.args(arguments).current_dir(folder());
    command
}

fn folder() -> PathBuf {
    workspace::root().join("web")
}

fn changed(path: &Path) -> Option<SystemTime> {
    path.metadata().and_then(|metadata| metadata.modified()).ok()
}
