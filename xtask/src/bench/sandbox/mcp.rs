//! Calls of the MCP tool `run`, which prints one line: in the sandbox of the connection, and each in a new one.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Sample;

pub(super) const WARM: &str = "MCP: run, in the sandbox of the connection";
pub(super) const COLD: &str = "MCP: run, in a new sandbox";

/// A client of `viv mcp serve`.
struct Client {
    server: Child,
    input: Option<ChildStdin>,
    output: BufReader<ChildStdout>,
    number: u64,
}

/// Measures both kinds of calls in turns.
pub(super) fn samples(viv: &Path, data: &str, workspace: &Path, rounds: usize) -> Result<Vec<Sample>> {
    let mut client = Client::start(viv, data, workspace)?;
    let (mut warm, mut cold) = (Vec::new(), Vec::new());
    client.run(false)?;
    for _ in 0..rounds {
        cold.push(client.run(true)?);
        warm.push(client.run(false)?);
    }
    client.end()?;
    Ok(vec![Sample::new(WARM, warm)?, Sample::new(COLD, cold)?])
}

impl Client {
    fn start(viv: &Path, data: &str, workspace: &Path) -> Result<Self> {
        let mut command = Command::new(viv);
        command.args(["--data-dir", data, "mcp", "serve", "--workspace"]).arg(workspace);
        let mut server = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().context("cannot start viv")?;
        let input = server.stdin.take();
        let output = BufReader::new(server.stdout.take().context("viv has no output")?);
        let mut client = Self { server, input, output, number: 0 };
        let info = json!({"name": "bench", "version": "1"});
        let about = json!({"protocolVersion": "2025-11-25", "capabilities": {}, "clientInfo": info});
        client.request("initialize", &about)?;
        client.send(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))?;
        Ok(client)
    }

    /// Returns the time of one call.
    fn run(&mut self, fresh: bool) -> Result<Duration> {
        let arguments = json!({"language": "sh", "code": "echo hello", "fresh": fresh});
        let started = Instant::now();
        let answer = self.request("tools/call", &json!({"name": "run", "arguments": arguments}))?;
        let time = started.elapsed();
        ensure!(answer["result"]["structuredContent"]["stdout"] == "hello\n", "unexpected answer: {answer}");
        Ok(time)
    }

    fn request(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.number += 1;
        self.send(&json!({"jsonrpc": "2.0", "id": self.number, "method": method, "params": params}))?;
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        serde_json::from_str(&line).context("the answer is not JSON")
    }

    fn send(&mut self, message: &Value) -> Result<()> {
        let input = self.input.as_mut().context("the server has ended")?;
        writeln!(input, "{message}").context("cannot write to the server")
    }

    fn end(mut self) -> Result<()> {
        drop(self.input.take());
        let status = self.server.wait()?;
        ensure!(status.success(), "viv mcp serve: {status}");
        Ok(())
    }
}
