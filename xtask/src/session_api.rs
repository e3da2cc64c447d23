//! Checks the session API of a real `viv serve` against its OpenAPI document.
//!
//! A tester derives valid and invalid requests from the document, and compares every answer with it. Then a client that
//! is generated from the reference contract drives a session. The server has its own data directory, and stops at the
//! end.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{step, venv, workspace};

/// Requests for each operation.
const EXAMPLES: &str = "8";
/// A fixed seed, so that a failed run can be repeated.
const SEED: &str = "1";
/// Excluded paths: streams do not end (tests of the server cover them), and an installation downloads from npm.
const EXCLUDED_PATHS: &str = "/sse$|/stream$|/install$";
/// Excluded check: a schema cannot say which agents exist or which cursors are valid.
const EXCLUDED_CHECKS: &str = "positive_data_acceptance";
const CONTRACT: &str = "crates/server/tests/contract";

/// Calls every route of `viv`, and returns a summary.
pub(crate) fn check(viv: &Path) -> Result<String> {
    let output = step::quietly(&mut Server::start(viv, Some("all"))?.tester()?)?;
    // A client generated from the contract must work without any option.
    Server::start(viv, None)?.drive()?;
    let cases =
        output.lines().find_map(|line| line.trim().split_once(" generated,").map(|(count, _)| count.to_owned()));
    Ok(cases.map(|count| format!("{count} cases")).unwrap_or_default())
}

/// A `viv serve` on a free port.
struct Server {
    child: Child,
    address: String,
    folder: PathBuf,
}

impl Server {
    /// Returns the command that calls every operation of the document.
    fn tester(&self) -> Result<Command> {
        let token = std::fs::read_to_string(self.folder.join("data/api.token")).context("the server has no token")?;
        // As a module: the script's first line names the folder in which it was built.
        let mut tester = Command::new(venv::API.folder()?.join("bin/python"));
        tester
            .args(["-m", "schemathesis.cli", "run"])
            .arg(format!("{}/openapi.json", self.address))
            .current_dir(&self.folder);
        tester.args(["--max-examples", EXAMPLES, "--seed", SEED, "--workers", "1", "--no-color"]);
        tester.args([
            "--exclude-path-regex",
            EXCLUDED_PATHS,
            "--exclude-checks",
            EXCLUDED_CHECKS,
            "--request-timeout",
            "30",
        ]);
        tester.arg("--header").arg(format!("Authorization: Bearer {}", token.trim()));
        Ok(tester)
    }

    /// Generates a client from the contract, and drives a session with it.
    fn drive(&self) -> Result<()> {
        let (programs, contract) = (venv::API.folder()?.join("bin"), workspace::root().join(CONTRACT));
        let path = std::env::join_paths(
            [programs.clone()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
        )?;
        let mut generator = Command::new(programs.join("python"));
        generator.args([
            "-m",
            "openapi_python_client",
            "generate",
            "--meta",
            "none",
            "--output-path",
            "theirs",
            "--path",
        ]);
        generator.arg(contract.join("openapi.json")).current_dir(&self.folder).env("PATH", path);
        step::quietly(&mut generator)?;
        let mut driver = Command::new(programs.join("python"));
        driver.arg(contract.join("drive.py")).arg(&self.address).arg(self.folder.join("data/api.token"));
        driver.env("PYTHONPATH", &self.folder).current_dir(&self.folder);
        step::quietly(&mut driver)?;
        Ok(())
    }
}

impl Server {
    /// Starts a server with the event set `events` as its default, or without that option.
    fn start(viv: &Path, events: Option<&str>) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!(
            "viv-session-api-{}-{}",
            std::process::id(),
            events.unwrap_or("default")
        ));
        std::fs::create_dir_all(&folder).context("cannot create a folder for the server")?;
        let mut command = Command::new(viv);
        command
            .args(["--json", "serve", "--listen=127.0.0.1:0"])
            .args(events.map(|events| format!("--events={events}")));
        command.arg("--data-dir").arg(folder.join("data"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run viv serve")?;
        let stdout = child.stdout.take().context("viv serve has no output")?;
        let mut server = Self { child, address: String::new(), folder };
        let line = BufReader::new(stdout).lines().next();
        let Some(Ok(line)) = line else { bail!("viv serve did not start") };
        let first_line: serde_json::Value =
            serde_json::from_str(&line).context("the first line of viv serve is not JSON")?;
        let address =
            first_line["listening"].as_str().context("the first line of viv serve has no field `listening`")?;
        address.clone_into(&mut server.address);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // The sandboxes end with the server; a leftover folder does no harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
