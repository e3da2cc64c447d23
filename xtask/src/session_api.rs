//! The session API of a real `viv serve`, called as its own document says.
//!
//! A tester makes requests of the document, good ones and bad ones, and holds every answer against it. Then a client that
//! is generated from the API that clients were written for drives a session. The server has a data directory of its own,
//! and is gone afterwards.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{step, venv, workspace};

/// Requests for each operation; more find more, and take longer.
const EXAMPLES: &str = "8";
/// The same requests every time: a run that fails can be looked at.
const SEED: &str = "1";
/// Streams do not end, so that no answer can be held against anything; tests of the server follow them. An
/// installation fetches from npm.
const LEFT_OUT: &str = "/sse$|/stream$|/install$";
/// A schema cannot say which agents there are, or which cursors were given out.
const UNKNOWABLE: &str = "positive_data_acceptance";
const CONTRACT: &str = "crates/server/tests/contract";

/// Calls every route of `viv`; a word on how often.
pub(crate) fn check(viv: &Path) -> Result<String> {
    let said = step::quietly(&mut Server::start(viv, "all")?.tester()?)?;
    // A client that was generated from the contract may refuse what is not in it.
    Server::start(viv, "contract")?.drive()?;
    let cases = said.lines().find_map(|line| line.trim().split_once(" generated,").map(|(count, _)| count.to_owned()));
    Ok(cases.map(|count| format!("{count} cases")).unwrap_or_default())
}

/// A server on a port nobody else has.
struct Server {
    child: Child,
    address: String,
    folder: PathBuf,
}

impl Server {
    /// What calls every operation of the document.
    fn tester(&self) -> Result<Command> {
        let token = std::fs::read_to_string(self.folder.join("data/api.token")).context("the server has no token")?;
        // By its module: the script of that name knows only the folder it was made in.
        let mut tester = Command::new(venv::API.folder()?.join("bin/python"));
        tester
            .args(["-m", "schemathesis.cli", "run"])
            .arg(format!("{}/openapi.json", self.address))
            .current_dir(&self.folder);
        tester.args(["--max-examples", EXAMPLES, "--seed", SEED, "--workers", "1", "--no-color"]);
        tester.args(["--exclude-path-regex", LEFT_OUT, "--exclude-checks", UNKNOWABLE, "--request-timeout", "30"]);
        tester.arg("--header").arg(format!("Authorization: Bearer {}", token.trim()));
        Ok(tester)
    }

    /// Makes a client of the contract, and lets it drive a session.
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
    /// Starts a server that serves the events of that vocabulary.
    fn start(viv: &Path, events: &str) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("viv-session-api-{}-{events}", std::process::id()));
        std::fs::create_dir_all(&folder).context("cannot make a folder for the server")?;
        let mut command = Command::new(viv);
        command.args(["--json", "serve", "--listen=127.0.0.1:0"]).arg(format!("--events={events}"));
        command.arg("--data-dir").arg(folder.join("data"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run viv serve")?;
        let stdout = child.stdout.take().context("viv serve has no output")?;
        let mut server = Self { child, address: String::new(), folder };
        let line = BufReader::new(stdout).lines().next();
        let Some(Ok(line)) = line else { bail!("viv serve did not start") };
        let told: serde_json::Value = serde_json::from_str(&line).context("viv serve printed no JSON")?;
        let address = told["listening"].as_str().context("viv serve does not say where it listens")?;
        address.clone_into(&mut server.address);
        Ok(server)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // Its sandboxes end with it; what is left of its folder would only be untidy.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.folder);
    }
}
