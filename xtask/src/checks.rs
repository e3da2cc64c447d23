//! Everything that must be green before a change lands, in the order in which it fails soonest.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::step::Steps;
use crate::workspace::cargo;
use crate::{identity, install, load, session_api, tidy, transcript, venv, viv, workspace};

/// Every check, after installing what they need.
pub(crate) fn run_all() -> Result<()> {
    let mut steps = Steps::start();
    steps.step("install", || install::run_all().map(|()| install::note(install::TESTS)))?;
    without_running(&mut steps)?;
    steps.command("build viv", cargo(&["build", "--locked", "--bin", "viv"]))?;
    steps.step("agents", || install::agents(&built_viv()?))?;
    steps.command("tests", with_agents(cargo(&["test", "--locked", "--workspace", "--no-fail-fast"]))?)?;
    steps.step("tests as the other user", || identity::run_tests_as_other(identity::BOTH))?;
    let program = built_viv()?;
    steps.step("the session API as its document says", || session_api::check(&program))?;
    steps.step("64 clients at a time", || load::brief(&program))?;
    steps.step("commands that documents name", || viv::check_documents(&program))?;
    steps.step("transcripts in documents", || transcript::run_documents(&program))?;
    steps.finish();
    Ok(())
}

/// Only the conformance tests, with every real agent, for who works on agents.
pub(crate) fn run_agents() -> Result<()> {
    let mut steps = Steps::start();
    steps.step("install", || install::run(install::AGENTS).map(|()| install::note(install::AGENTS)))?;
    steps.command("build viv", cargo(&["build", "--locked", "--bin", "viv"]))?;
    steps.step("agents", || install::agents(&built_viv()?))?;
    steps.command("conformance of every agent", with_agents(cargo(&["test", "--locked", "-p", "conformance"]))?)?;
    steps.finish();
    Ok(())
}

/// Only the session API, for who works on it.
pub(crate) fn run_api() -> Result<()> {
    let mut steps = Steps::start();
    steps.step("install", || venv::API.install().map(|()| String::new()))?;
    steps.command("build viv", cargo(&["build", "--locked", "--bin", "viv"]))?;
    steps.step("the session API as its document says", || session_api::check(&built_viv()?))?;
    steps.finish();
    Ok(())
}

/// What is worth running after every edit.
pub(crate) fn run_fast() -> Result<()> {
    let mut steps = Steps::start();
    without_running(&mut steps)?;
    steps.command("unit tests", cargo(&["test", "--workspace", "--lib"]))?;
    steps.finish();
    Ok(())
}

/// The checks that only read.
fn without_running(steps: &mut Steps) -> Result<()> {
    steps.command("format", cargo(&["fmt", "--all", "--check"]))?;
    steps.step("tidy", || tidy::run().map(|()| String::new()))?;
    steps.command("clippy", cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// With every real agent on the stage.
fn with_agents(mut tests: Command) -> Result<Command> {
    tests.env("VIV_TEST_AGENTS", "all").env("VIV_TEST_AGENTS_DIR", install::agents_folder()?);
    Ok(tests)
}

fn built_viv() -> Result<PathBuf> {
    Ok(workspace::target_directory()?.join("debug/viv"))
}
