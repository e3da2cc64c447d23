//! The session API of a real `viv serve`, called as its own document says.
//!
//! A tester makes requests of the document, good ones and bad ones, and holds every answer against it. The server has
//! a data directory of its own, and is gone afterwards.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::{step, venv, workspace};

/// Requests for each operation; more find more, and take longer.
const EXAMPLES: &str = "20";
/// The same requests every time: a run that fails can be looked at.
const SEED: &str = "1";
/// Streams do not end, so that no answer can be held against anything; tests of the server follow them.
const STREAMS: &str = "/sse$|/stream$";

/// Calls every route of `viv`; a word on how many there were.
pub(crate) fn check(viv: &Path) -> Result<String> {
    let server = Server::start(viv)?;
    let mut tester = Command::new(venv::API.folder()?.join("bin/schemathesis"));
    tester.arg("run").arg(format!("{}/openapi.json", server.address));
    tester.args(["--max-examples", EXAMPLES, "--seed", SEED, "--workers", "1", "--no-color"]);
    tester.args(["--exclude-path-regex", STREAMS, "--request-timeout", "30"]);
    tester.arg("--config-file").arg(workspace::root().join("crates/server/tests/contract/schemathesis.toml"));
    tester.current_dir(&server.folder);
    let said = step::quietly(&mut tester)?;
    let count = said.lines().find_map(|line| line.trim().strip_suffix(" passed").map(str::to_owned));
    Ok(count.map(|count| format!("{count} cases")).unwrap_or_default())
}

/// A server on a port nobody else has.
struct Server {
    child: Child,
    address: String,
    folder: PathBuf,
}

impl Server {
    fn start(viv: &Path) -> Result<Self> {
        let folder = std::env::temp_dir().join(format!("viv-session-api-{}", std::process::id()));
        std::fs::create_dir_all(&folder).context("cannot make a folder for the server")?;
        let mut command = Command::new(viv);
        command.args(["--json", "serve", "--no-auth", "--listen=127.0.0.1:0", "--data-dir"]).arg(folder.join("data"));
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().context("cannot run viv serve")?;
        let stdout = child.stdout.take().context("viv serve has no output")?;
        let mut server = Self { child, address: String::new(), folder };
        let line = BufReader::new(stdout).lines().next();
        let Some(Ok(line)) = line else { bail!("viv serve did not start") };
        let told: serde_json::Value = serde_json::from_str(&line).context("viv serve printed no JSON")?;
        server.address = told["listening"].as_str().context("viv serve does not say where it listens")?.to_owned();
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
