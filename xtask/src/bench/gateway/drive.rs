//! Runs the load generator (`bench/load`) for one measurement.

use std::io::Write as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde_json::{Value, json};

use super::Target;

/// The load for each target, and its duration.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) stream: bool,
    pub(super) prompt_bytes: usize,
    pub(super) callers: usize,
    pub(super) idle_readers: usize,
    pub(super) rounds: usize,
    /// Duration of one round of one target.
    pub(super) millis: u64,
    pub(super) calls: Option<usize>,
}

impl Default for Load {
    fn default() -> Self {
        Self { stream: false, prompt_bytes: 400, callers: 1, idle_readers: 0, rounds: 1, millis: 1_000, calls: None }
    }
}

/// Runs the load generator.
pub(super) struct Driver {
    program: PathBuf,
}

impl Driver {
    pub(super) fn new(program: PathBuf) -> Self {
        Self { program }
    }

    /// Measures every target in turns, and returns the measurements of all.
    pub(super) fn drive(&self, what: &str, targets: &[&Target], load: Load) -> Result<Measured> {
        println!("  {what}");
        let targets: Vec<Value> = targets
            .iter()
            .map(|target| json!({"name": target.name, "address": target.address, "token": target.token}))
            .collect();
        let plan = json!({
            "targets": targets,
            "shape": {"stream": load.stream, "prompt_bytes": load.prompt_bytes},
            "callers": load.callers,
            "idle_readers": load.idle_readers,
            "rounds": load.rounds,
            "millis": load.millis,
            "calls": load.calls,
        });
        let mut command = Command::new(&self.program);
        command.arg("drive").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().context("cannot start the load generator")?;
        child
            .stdin
            .take()
            .context("the load generator has no standard input")?
            .write_all(plan.to_string().as_bytes())?;
        let output = child.wait_with_output().context("cannot wait for the load generator")?;
        ensure!(output.status.success(), "{what}: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Measured(serde_json::from_slice(&output.stdout).context("the report of the load generator is not JSON")?))
    }
}

/// The measurements of each target.
pub(super) struct Measured(Value);

impl Measured {
    /// Returns the times to the end of the answer.
    pub(super) fn whole(&self, target: &str) -> Result<Vec<Duration>> {
        self.times(target, "whole_micros")
    }

    /// Returns the times to the first byte of the answer.
    pub(super) fn first(&self, target: &str) -> Result<Vec<Duration>> {
        self.times(target, "first_micros")
    }

    /// Returns the calls a second of the median round.
    pub(super) fn rate(&self, target: &str) -> Result<f64> {
        let rates = self.0[target]["rates"].as_array().with_context(|| format!("`{target}` was not measured"))?;
        median(rates.iter().filter_map(Value::as_f64).collect())
    }

    fn times(&self, target: &str, field: &str) -> Result<Vec<Duration>> {
        let times = self.0[target][field].as_array().with_context(|| format!("`{target}` was not measured"))?;
        Ok(times.iter().filter_map(Value::as_u64).map(Duration::from_micros).collect())
    }
}

/// Returns the median; fails for an empty list.
pub(super) fn median(mut numbers: Vec<f64>) -> Result<f64> {
    numbers.sort_by(f64::total_cmp);
    numbers.get(numbers.len() / 2).copied().context("nothing was measured")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn measurements_are_found_by_target() {
        let measured =
            Measured(json!({"nginx": {"rates": [3.0, 1.0, 2.0], "whole_micros": [5, 6], "first_micros": []}}));
        assert!((measured.rate("nginx").unwrap() - 2.0).abs() < f64::EPSILON);
        assert_eq!(measured.whole("nginx").unwrap(), [Duration::from_micros(5), Duration::from_micros(6)]);
        assert!(measured.rate("other").is_err());
    }
}
