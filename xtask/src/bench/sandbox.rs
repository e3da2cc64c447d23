//! The cost of a sandbox, compared with bubblewrap, unshare and plain processes.
//!
//! From a running host process: time to execve, whole life and a further command, compared with fork+exec. From the
//! shell: `viv exec`, compared with bubblewrap and unshare.

mod bubblewrap;
mod mcp;

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::report::milliseconds;
use super::{Folder, Goal, Report, Sample};
use crate::step::quietly;
use crate::workspace;

const ROUNDS: usize = 100;

const FORK_EXEC: &str = "host: fork+exec";
const TO_EXECVE: &str = "host: new sandbox, to execve";
const WHOLE_LIFE: &str = "host: new sandbox, whole life";
const FURTHER: &str = "host: further command";
const BUBBLEWRAP: &str = "shell: bubblewrap, with limits and our filter";
const VIV: &str = "shell: viv exec";
const APPLY: &str = "host: apply of 50,000 files and 20,000 links";

/// Runs all measurements.
pub(super) fn run() -> Result<Report> {
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "--bin", "viv"]))?;
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "-p", "sandbox", "--example", "start_cost"]))?;
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "-p", "sandbox", "--example", "apply_cost"]))?;
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "-p", "jail", "--example", "filter"]))?;
    let target = workspace::target_directory()?.join("release");
    let mut samples = from_a_host(&target.join("examples/start_cost"))?;
    samples.push(of_applies(&target.join("examples/apply_cost"))?);
    let folder = Folder::make(&["data", "workspace"])?;
    // A copy, as an installation makes it. The linker's own output lies in single pages of the page cache and starts
    // more slowly.
    let viv = folder.path().join("viv");
    std::fs::copy(target.join("viv"), &viv).context("cannot copy viv")?;
    let data = folder.path().join("data").display().to_string();
    let filter = folder.path().join("filter");
    let printed = Command::new(target.join("examples/filter")).output().context("cannot run the example `filter`")?;
    ensure!(printed.status.success(), "the example `filter`: {}", printed.status);
    std::fs::write(&filter, printed.stdout).context("cannot write the filter")?;
    let mut things: [(&str, &mut dyn FnMut() -> Result<()>); 5] = [
        ("shell: /bin/true", &mut || start(Command::new("/bin/true"))),
        ("shell: unshare, six namespaces", &mut || {
            let mut command = Command::new("unshare");
            command.args([
                "--user",
                "--map-root-user",
                "--mount",
                "--pid",
                "--fork",
                "--net",
                "--ipc",
                "--uts",
                "/bin/true",
            ]);
            start(command)
        }),
        ("shell: bubblewrap alone", &mut || start(bubblewrap::alone())),
        (BUBBLEWRAP, &mut || bubblewrap::comparable(&filter, start)),
        (VIV, &mut || {
            let mut command = Command::new(&viv);
            command.args(["--data-dir", &data, "exec", "--", "/bin/true"]);
            start(command)
        }),
    ];
    samples.extend(Sample::in_turns(ROUNDS, &mut things)?);
    samples.extend(mcp::samples(&viv, &data, &folder.path().join("workspace"), ROUNDS)?);
    let goals = goals(&samples)?;
    Ok(Report { samples, goals })
}

fn goals(samples: &[Sample]) -> Result<Vec<Goal>> {
    let of = |name: &str| samples.iter().find(|sample| sample.name() == name).with_context(|| format!("no {name}"));
    let (command, start, life, further) = (of(FORK_EXEC)?, of(TO_EXECVE)?, of(WHOLE_LIFE)?, of(FURTHER)?);
    let (peer, viv, apply) = (of(BUBBLEWRAP)?.median(), of(VIV)?.median(), of(APPLY)?.median());
    let ratio = further.median().as_secs_f64() / command.median().as_secs_f64();
    let exec_ratio = viv.as_secs_f64() / peer.as_secs_f64();
    let within = |what, wanted, time: Duration, limit: f64| {
        let measured = format!("{} ms", milliseconds(time));
        Goal { what, wanted, measured, holds: time.as_secs_f64() * 1000.0 <= limit }
    };
    Ok(vec![
        within("a new sandbox to execve, p50", "≤ 3.5 ms", start.median(), 3.5),
        within("a new sandbox to execve, p90", "≤ 5 ms", start.percentile(90), 5.0),
        within("a sandbox's whole life, p50", "≤ 5 ms", life.median(), 5.0),
        within("apply of 50,000 files and 20,000 links, p50", "≤ 5 s", apply, 5000.0),
        within("MCP `run` in the sandbox of the connection, p50", "≤ 15 ms", of(mcp::WARM)?.median(), 15.0),
        within("MCP `run` in a new sandbox, p50", "≤ 25 ms", of(mcp::COLD)?.median(), 25.0),
        Goal {
            what: "a further command, p50",
            wanted: "≤ 2 × fork+exec",
            measured: format!("{ratio:.2} ×"),
            holds: ratio <= 2.0,
        },
        Goal {
            what: "`viv exec`, p50",
            wanted: "≤ 1.15 × bubblewrap with limits and filter",
            measured: format!("{} ms, bubblewrap {} ms: {exec_ratio:.2} ×", milliseconds(viv), milliseconds(peer)),
            holds: exec_ratio <= 1.15,
        },
    ])
}

fn start(mut command: Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("cannot start a peer")?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn of_applies(program: &std::path::Path) -> Result<Sample> {
    let text = workspace::output(&mut Command::new(program))?;
    let micros: Vec<u64> = serde_json::from_str(&text).context("the report is not JSON")?;
    Sample::new(APPLY, micros.into_iter().map(Duration::from_micros).collect())
}

fn from_a_host(program: &std::path::Path) -> Result<Vec<Sample>> {
    let text = workspace::output(&mut Command::new(program))?;
    let report: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).context("the report is not JSON")?;
    let left = report.get("left_behind").and_then(serde_json::Value::as_i64);
    ensure!(left == Some(0), "1,100 sandboxes left {left:?} mounts and control groups behind");
    let number = |key: &str| report.get(key).and_then(serde_json::Value::as_u64).unwrap_or_default();
    println!(
        "1,000 sandboxes one after another and 100 at once: nothing left behind; host {} KiB before, {} KiB after",
        number("resident_kib_before"),
        number("resident_kib_after")
    );
    let steps =
        [(FORK_EXEC, "fork_exec"), (TO_EXECVE, "to_execve"), (WHOLE_LIFE, "whole_life"), (FURTHER, "further_command")];
    steps
        .into_iter()
        .map(|(name, key)| {
            let times = report.get(key).and_then(serde_json::Value::as_array).context("a step is missing")?;
            let times = times.iter().filter_map(serde_json::Value::as_u64).map(Duration::from_micros).collect();
            Sample::new(name, times)
        })
        .collect()
}
