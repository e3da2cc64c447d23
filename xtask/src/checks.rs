//! All checks that must pass before a change lands, fastest first.

use std::path::PathBuf;
use std::process::Command;

use anyhow::Result;

use crate::step::Steps;
use crate::workspace::cargo;
use crate::{identity, install, load, session_api, tidy, transcript, venv, viv, web, workspace};

/// Installs what the checks need, and runs every check.
pub(crate) fn run_all() -> Result<()> {
    let mut steps = Steps::start();
    steps.step("install", || install::run_all().map(|()| install::note(install::TESTS)))?;
    steps.step("build the Inspector", web::build)?;
    without_running(&mut steps)?;
    steps.command("build viv", cargo(&["build", "--locked", "--bin", "viv"]))?;
    steps.step("install agents", || install::agents(&built_viv()?))?;
    steps.command("run tests", with_agents(cargo(&["test", "--locked", "--workspace", "--no-fail-fast"]))?)?;
    steps.step("run tests as the other user", || identity::run_tests_as_other(identity::BOTH))?;
    let program = built_viv()?;
    steps.step("check the session API against its document", || session_api::check(&program))?;
    steps.step("run 64 clients at a time", || load::brief(&program))?;
    steps.step("use the Inspector in a browser", || web::test(&program))?;
    steps.step("check commands in documents", || viv::check_documents(&program))?;
    steps.step("run transcripts in documents", || transcript::run_documents(&program))?;
    steps.finish();
    Ok(())
}

/// Runs only the conformance tests, with every real agent.
pub(crate) fn run_agents() -> Result<()> {
    let mut steps = Steps::start();
    steps.step("install", || install::run(install::AGENTS).map(|()| install::note(install::AGENTS)))?;
    steps.command("build viv", cargo(&["build", "--locked", "--bin", "viv"]))?;
    steps.step("install agents", || install::agents(&built_viv()?))?;
    steps.command(
        "run conformance tests of every agent",
        with_agents(cargo(&["test", "--locked", "-p", "conformance"]))?,
    )?;
    steps.finish();
    Ok(())
}

/// Runs only the checks of the session API.
pub(crate) fn run_api() -> Result<()> {
    let mut steps = Steps::start();
    steps.step("install", || venv::API.install().map(|()| String::new()))?;
    steps.command("build viv", cargo(&["build", "--locked", "--bin", "viv"]))?;
    steps.step("check the session API against its document", || session_api::check(&built_viv()?))?;
    steps.finish();
    Ok(())
}

/// Runs the fast checks: format, tidy, clippy, unit tests.
pub(crate) fn run_fast() -> Result<()> {
    let mut steps = Steps::start();
    without_running(&mut steps)?;
    steps.command("run unit tests", cargo(&["test", "--workspace", "--lib"]))?;
    steps.finish();
    Ok(())
}

/// Runs the checks that execute no product code.
fn without_running(steps: &mut Steps) -> Result<()> {
    steps.command("format", cargo(&["fmt", "--all", "--check"]))?;
    steps.step("tidy", || tidy::run().map(|()| String::new()))?;
    steps.command("clippy", cargo(&["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"]))
}

/// Returns `tests` with every real agent enabled.
fn with_agents(mut tests: Command) -> Result<Command> {
    tests.env("VIV_TEST_AGENTS", "all").env("VIV_TEST_AGENTS_DIR", install::agents_folder()?);
    Ok(tests)
}

fn built_viv() -> Result<PathBuf> {
    Ok(workspace::target_directory()?.join("debug/viv"))
}
