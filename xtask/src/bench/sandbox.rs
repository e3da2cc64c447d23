//! What a sandbox costs, beside what others take for a comparable one.
//!
//! From a running host: time to execve, whole life, a further command, all beside fork+exec in the same
//! process. From the shell: `viv exec` beside bubblewrap and unshare.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use super::{Report, Sample};
use crate::step::quietly;
use crate::workspace;

const ROUNDS: usize = 100;

/// What bubblewrap is asked for: the namespaces, mounts and drops that `viv exec` has too. It sets no
/// limits, no Landlock, no system call filter and no overlay.
const BUBBLEWRAP: &[&str] = &[
    "--unshare-all",
    "--die-with-parent",
    "--new-session",
    "--cap-drop",
    "ALL",
    "--clearenv",
    "--ro-bind",
    "/usr",
    "/usr",
    "--symlink",
    "usr/bin",
    "/bin",
    "--symlink",
    "usr/lib",
    "/lib",
    "--symlink",
    "usr/lib64",
    "/lib64",
    "--proc",
    "/proc",
    "--dev",
    "/dev",
    "--tmpfs",
    "/tmp",
    "--tmpfs",
    "/home/agent",
    "--tmpfs",
    "/workspace",
    "--ro-bind",
    "/etc/ssl",
    "/etc/ssl",
    "--ro-bind",
    "/etc/alternatives",
    "/etc/alternatives",
    "--hostname",
    "sandbox",
    "--chdir",
    "/workspace",
    "/bin/true",
];

/// Measures all of it in one run.
pub(super) fn run() -> Result<Report> {
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "--bin", "viv"]))?;
    quietly(&mut workspace::cargo(&["build", "--locked", "--release", "-p", "sandbox", "--example", "start_cost"]))?;
    let target = workspace::target_directory()?.join("release");
    let mut samples = from_a_host(&target.join("examples/start_cost"))?;
    let viv = target.join("viv");
    let data = std::env::temp_dir().join(format!("viv-bench-{}", std::process::id()));
    let exec = [String::from("--data-dir"), data.display().to_string(), "exec".into(), "--".into(), "/bin/true".into()];
    let mut things: [(&str, &mut dyn FnMut() -> Result<()>); 4] = [
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
        ("shell: bubblewrap", &mut || {
            let mut command = Command::new("bwrap");
            command.args(BUBBLEWRAP);
            start(command)
        }),
        ("shell: viv exec", &mut || {
            let mut command = Command::new(&viv);
            command.args(&exec);
            start(command)
        }),
    ];
    samples.extend(Sample::in_turns(ROUNDS, &mut things)?);
    // What viv kept for the bench; absent when it kept nothing.
    let _ = std::fs::remove_dir_all(data);
    Ok(samples.into())
}

fn start(mut command: Command) -> Result<()> {
    let status = command.stdin(Stdio::null()).stdout(Stdio::null()).status().context("cannot start a peer")?;
    ensure!(status.success(), "{command:?}: {status}");
    Ok(())
}

fn from_a_host(program: &std::path::Path) -> Result<Vec<Sample>> {
    let text = workspace::output(&mut Command::new(program))?;
    let report: BTreeMap<String, serde_json::Value> = serde_json::from_str(&text).context("the report is no JSON")?;
    let left = report.get("left_behind").and_then(serde_json::Value::as_i64);
    ensure!(left == Some(0), "1,100 sandboxes left {left:?} mounts and control groups behind");
    let number = |key: &str| report.get(key).and_then(serde_json::Value::as_u64).unwrap_or_default();
    println!(
        "1,000 sandboxes one after another and 100 at once: nothing left behind; host {} KiB before, {} KiB after",
        number("resident_kib_before"),
        number("resident_kib_after")
    );
    let steps = [
        ("host: fork+exec", "fork_exec"),
        ("host: new sandbox, to execve", "to_execve"),
        ("host: new sandbox, whole life", "whole_life"),
        ("host: further command", "further_command"),
    ];
    steps
        .into_iter()
        .map(|(name, key)| {
            let times = report.get(key).and_then(serde_json::Value::as_array).context("a step is missing")?;
            let times = times.iter().filter_map(serde_json::Value::as_u64).map(Duration::from_micros).collect();
            Sample::new(name, times)
        })
        .collect()
}
