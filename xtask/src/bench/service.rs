//! A server process that runs as long as a bench needs it.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

use crate::family;

/// LiteLLM takes half a minute to start.
const START_TIMEOUT: Duration = Duration::from_secs(120);
const STOP_TIMEOUT: Duration = Duration::from_secs(5);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// A running server. Dropping it sends SIGTERM, then SIGKILL after a timeout.
pub(crate) struct Service {
    child: Child,
    line: String,
}

impl Service {
    /// Starts a server and waits for its first line of output. Its standard input stays open until it is dropped.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let shown = format!("{command:?}");
        let child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
        let mut service = Self { child, line: String::new() };
        let stdout = service.child.stdout.take().context("the server has no standard output")?;
        BufReader::new(stdout).read_line(&mut service.line)?;
        ensure!(!service.line.is_empty(), "{shown} printed nothing");
        Ok(service)
    }

    /// Starts a server that prints nothing, and waits until `address` accepts connections.
    pub(crate) fn start_at(command: &mut Command, address: &str) -> Result<Self> {
        let shown = format!("{command:?}");
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
        let mut service = Self { child, line: String::new() };
        let started = Instant::now();
        while TcpStream::connect(address).is_err() {
            if let Some(status) = service.child.try_wait()? {
                bail!("{shown} ended: {status}");
            }
            ensure!(started.elapsed() < START_TIMEOUT, "{shown} accepts no connections");
            std::thread::sleep(POLL_INTERVAL);
        }
        Ok(service)
    }

    /// Returns the first line that the server printed.
    pub(crate) fn first_line(&self) -> Result<String> {
        ensure!(!self.line.is_empty(), "the server printed nothing");
        Ok(self.line.trim().to_owned())
    }

    /// Returns the address in the field `listening` of the first line, which must be JSON.
    pub(crate) fn listening(&self) -> Result<String> {
        let line: serde_json::Value =
            serde_json::from_str(&self.line).context("the first line of the server is not JSON")?;
        let url = line["listening"].as_str().context("the first line of the server has no field `listening`")?;
        Ok(url.trim_start_matches("http://").to_owned())
    }

    /// Returns the process id of the server.
    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// Returns a memory figure of /proc/PID/status in KiB, such as `VmRSS`.
    pub(crate) fn kib(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.with_context(|| format!("/proc/PID/status has no {field}"))
    }

    /// Returns the processor time that the server and its child processes have used.
    pub(crate) fn processor_time(&self) -> Result<Duration> {
        family::processor_time(self.id())
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // On SIGTERM a server also stops its child processes, on SIGKILL it cannot.
        let _ = Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        let stopping = Instant::now();
        while stopping.elapsed() < STOP_TIMEOUT && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(POLL_INTERVAL);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns a loopback address that was free a moment ago, for servers that cannot choose a port themselves.
pub(crate) fn free_address() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    Ok(listener.local_addr()?.to_string())
}
