//! The clients of the sessions bench, and the server with in-process agents.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::bench::service::Service;
use crate::workspace;

/// Runs the clients.
pub(crate) struct Load {
    program: PathBuf,
}

impl Load {
    pub(crate) fn new(program: PathBuf) -> Self {
        Self { program }
    }

    /// Starts the server with in-process agents.
    pub(super) fn serve(&self, folder: &Path) -> Result<(Service, String)> {
        let service = Service::start(Command::new(&self.program).arg("serve").arg(folder))?;
        let address = service.listening()?;
        Ok((service, address))
    }

    /// Runs the clients with the arguments `words`, and returns their report.
    pub(crate) fn ask(&self, words: &[&str]) -> Result<Value> {
        println!("  {}", words.join(" "));
        let report = workspace::output(Command::new(&self.program).args(words))?;
        serde_json::from_str(&report).context("the report of the clients is not JSON")
    }

    /// Runs the clients, and returns the times in their report.
    pub(super) fn micros(&self, words: &[&str]) -> Result<Vec<Duration>> {
        let measured = self.ask(words)?;
        let times = measured["micros"].as_array().context("no times were measured")?;
        Ok(times.iter().filter_map(Value::as_u64).map(Duration::from_micros).collect())
    }
}
