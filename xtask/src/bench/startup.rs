//! The start-up time of `viv`, which every command pays.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use super::{Report, Sample};
use crate::step::quietly;
use crate::workspace;

const ROUNDS: usize = 200;

/// Times `viv --version` and a program that does nothing.
pub(super) fn run() -> Result<Report> {
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "--bin", "viv"]))?;
    let viv = workspace::target_directory()?.join("release/viv");
    let mut nothing = || start(Path::new("/bin/true"));
    let mut version = || start(&viv);
    let samples = Sample::in_turns(ROUNDS, &mut [("/bin/true", &mut nothing), ("viv --version", &mut version)])?;
    Ok(samples.into())
}

fn start(program: &Path) -> Result<()> {
    let status = Command::new(program).arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    ensure!(status.success(), "{} --version: {status}", program.display());
    Ok(())
}
