//! Measures the system calls of a program, for the allow-list of the sandbox.
//!
//! The program runs under strace. Its calls are written as one line of `crates/jail/src/measured_calls.txt`, and a test of
//! `jail` fails for each call without a rule. When the program is `viv`, only the processes inside the sandbox count: those
//! that have installed a filter, and their descendants.

use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install::{self, Package};
use crate::workspace;

/// The measured calls, one line for each program.
const MEASURED: &str = "crates/jail/src/measured_calls.txt";
const STRACE: &[Package] = &[Package { name: "strace", reason: "records the system calls of a program" }];

/// Runs `cargo xtask syscalls NAME -- COMMAND…`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let (name, command) = match arguments {
        [name, separator, command @ ..] if separator == "--" && !command.is_empty() => (name, command),
        _ => bail!("usage: cargo xtask syscalls NAME -- COMMAND…"),
    };
    install::run(STRACE)?;
    let trace = std::env::temp_dir().join(format!("viv-syscalls-{}", std::process::id()));
    let status = Command::new("strace")
        .args(["--follow-forks", "--quiet=all", "--decode-pids=pidns", "--output"])
        .arg(&trace)
        .args(command)
        .status()
        .context("cannot start strace")?;
    let text = std::fs::read(&trace).context("strace wrote no trace")?;
    std::fs::remove_file(&trace).context("cannot remove the trace")?;
    let text = String::from_utf8_lossy(&text);
    let calls = calls(&text, command[0].ends_with("viv"));
    if calls.is_empty() {
        bail!("`{}` made no system call that counts", command.join(" "));
    }
    println!("{name}: {} different calls ({status})", calls.len());
    record(name, &calls)
}

/// Writes the calls of one program, in place of its earlier line.
fn record(name: &str, calls: &BTreeSet<&str>) -> Result<()> {
    let path = workspace::root().join(MEASURED);
    let text = std::fs::read_to_string(&path).with_context(|| format!("cannot read {MEASURED}"))?;
    let lines = text.lines().filter_map(|line| line.split_once(": "));
    let mut programs: BTreeMap<&str, String> = lines.map(|(name, calls)| (name, calls.to_owned())).collect();
    programs.insert(name, calls.iter().copied().collect::<Vec<_>>().join(" "));
    let lines: Vec<String> = programs.iter().map(|(name, calls)| format!("{name}: {calls}\n")).collect();
    std::fs::write(&path, lines.concat()).with_context(|| format!("cannot write {MEASURED}"))
}

/// Returns the names of the calls in a trace. With `only_filtered`, only those of processes under a filter.
fn calls(trace: &str, only_filtered: bool) -> BTreeSet<&str> {
    let (mut names, mut filtered) = (BTreeSet::new(), BTreeSet::new());
    for line in trace.lines() {
        let Some((pid, rest)) = line.split_once(' ') else { continue };
        let rest = rest.trim_start();
        let pid = pid.parse::<u32>().unwrap_or(0);
        let counts = !only_filtered || filtered.contains(&pid);
        // `name(arguments…`, or `<... name resumed>` when another process interrupted the line.
        let resumed = rest.strip_prefix("<... ").and_then(|rest| rest.split_once(' '));
        let Some((name, _)) = resumed.or_else(|| rest.split_once('(')) else { continue };
        if !name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_') {
            continue;
        }
        if counts {
            names.insert(name);
        }
        if name == "seccomp" && rest.contains("SECCOMP_SET_MODE_FILTER") {
            filtered.insert(pid);
        }
        if let Some(child) = child(name, rest)
            && filtered.contains(&pid)
        {
            filtered.insert(child);
        }
    }
    names
}

/// Returns the process that a call has started, by its number outside of the sandbox.
fn child(name: &str, line: &str) -> Option<u32> {
    if !matches!(name, "clone" | "clone3" | "fork" | "vfork") {
        return None;
    }
    let (_, result) = line.rsplit_once(" = ")?;
    let number = match result.split_once("/* ") {
        Some((_, translated)) => translated.split(' ').next()?,
        None => result.split(' ').next()?,
    };
    number.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TRACE: &str = "\
10 execve(\"/usr/bin/viv\", [\"viv\"], 0x7ffd) = 0
10 mount(\"a\", \"b\", NULL, 0, NULL) = 0
11 seccomp(SECCOMP_SET_MODE_FILTER, 0, {len=9, filter=0x5}) = 0
11 clone(child_stack=NULL, flags=SIGCHLD <unfinished ...>
10 bpf(BPF_MAP_CREATE, {}, 1) = -1
11 <... clone resumed>) = 2 /* 12 in strace's PID NS */
12 execve(\"/usr/bin/node\", [\"node\"], 0x55) = 0
12 --- SIGCHLD {si_signo=SIGCHLD} ---
12 +++ exited with 0 +++
";

    #[test]
    fn all_calls_of_a_program_count() {
        let all = calls(TRACE, false);
        assert_eq!(all.into_iter().collect::<Vec<_>>(), ["bpf", "clone", "execve", "mount", "seccomp"]);
    }

    #[test]
    fn only_processes_under_a_filter_count_inside_a_sandbox() {
        let inside = calls(TRACE, true);
        assert_eq!(inside.into_iter().collect::<Vec<_>>(), ["clone", "execve"]);
    }
}
