//! A server that runs for as long as the bench.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// The slowest of them takes half a minute to start.
const PATIENCE: Duration = Duration::from_secs(120);
const LEAVE: Duration = Duration::from_secs(5);
const PAUSE: Duration = Duration::from_millis(50);

/// A server; dropped, it is told to end, and ended if it does not.
pub(crate) struct Service {
    child: Child,
    line: String,
}

impl Service {
    /// Starts a server whose first line is awaited; its standard input stays open as long as it may run.
    pub(crate) fn start(command: &mut Command) -> Result<Self> {
        command.stdin(Stdio::piped()).stdout(Stdio::piped());
        let shown = format!("{command:?}");
        let child = command.spawn().with_context(|| format!("cannot start {shown}"))?;
        let mut service = Self { child, line: String::new() };
        let stdout = service.child.stdout.take().context("it has no output")?;
        BufReader::new(stdout).read_line(&mut service.line)?;
        ensure!(!service.line.is_empty(), "{shown} said nothing");
        Ok(service)
    }

    /// Starts a server that says nothing; it is there when it takes connections.
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
            ensure!(started.elapsed() < PATIENCE, "{shown} does not take connections");
            std::thread::sleep(PAUSE);
        }
        Ok(service)
    }

    pub(crate) fn first_line(&self) -> Result<String> {
        ensure!(!self.line.is_empty(), "it said nothing");
        Ok(self.line.trim().to_owned())
    }

    /// Where it listens, when its first line says so in JSON.
    pub(crate) fn listening(&self) -> Result<String> {
        let said: serde_json::Value = serde_json::from_str(&self.line).context("its first line is no JSON")?;
        let url = said["listening"].as_str().context("it does not say where it listens")?;
        Ok(url.trim_start_matches("http://").to_owned())
    }

    pub(crate) fn id(&self) -> u32 {
        self.child.id()
    }

    /// What the kernel says of its memory, under this name.
    pub(crate) fn kib(&self, field: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.id()))?;
        let line = status.lines().find_map(|line| line.strip_prefix(field)?.strip_prefix(':'));
        let kib = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
        kib.with_context(|| format!("the kernel tells no {field}"))
    }
}

impl Drop for Service {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        // A server with children of its own takes them along only when it is asked to leave.
        let _ = Command::new("kill").args(["-TERM", &self.id().to_string()]).status();
        let asked = Instant::now();
        while asked.elapsed() < LEAVE && matches!(self.child.try_wait(), Ok(None)) {
            std::thread::sleep(PAUSE);
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// An address that was free a moment ago, for servers that cannot choose one themselves.
pub(crate) fn free_address() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0").context("cannot listen")?;
    Ok(listener.local_addr()?.to_string())
}
