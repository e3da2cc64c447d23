//! Benchmarks. Each one measures `viv` and its peers in one run, so that ratios hold on any machine.
//!
//! A run prints its figures and replaces the last ones of that bench in bench/RESULTS.md, with date, processor, kernel
//! and commit.

mod agents;
mod egress;
mod folder;
mod gateway;
mod report;
mod sample;
mod sandbox;
mod service;
pub(crate) mod sessions;
mod settings;
mod startup;

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install::{self, Package};
use crate::workspace;

pub(crate) use folder::Folder;
pub(crate) use report::{Goal, Report};
pub(crate) use sample::Sample;
pub(crate) use service::{Service, free_address};

/// A bench with its name.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    about: &'static str,
    /// Debian packages of the peers.
    packages: &'static [Package],
    run: fn() -> Result<Report>,
}

/// All benches. Documents may name no others.
pub(crate) const BENCHES: &[Bench] = &[
    Bench { name: "startup", about: "time `viv --version` against /bin/true", packages: &[], run: startup::run },
    Bench {
        name: "sandbox",
        about: "time new sandboxes, further commands and `viv exec` against fork+exec, unshare and bubblewrap",
        packages: SANDBOX_PEERS,
        run: sandbox::run,
    },
    Bench {
        name: "gateway",
        about: "measure model calls through `viv gateway serve` against nginx and LiteLLM",
        packages: GATEWAY_PEERS,
        run: gateway::run,
    },
    Bench {
        name: "egress",
        about: "measure tunnels through the egress proxy against tinyproxy, squid and no proxy",
        packages: EGRESS_PEERS,
        run: egress::run,
    },
    Bench {
        name: "sessions",
        about: "measure the session API: start, sessions, events, readers; against sandbox-agent",
        packages: SESSIONS_PEERS,
        run: sessions::run,
    },
    Bench {
        name: "agents",
        about: "time a turn of Claude Code with `viv run` against Claude Code alone",
        packages: install::AGENTS,
        run: agents::run,
    },
];

const SANDBOX_PEERS: &[Package] = &[
    Package { name: "bubblewrap", reason: "the sandbox that most agents run in" },
    Package { name: "util-linux", reason: "unshare: namespaces without a sandbox" },
];

const GATEWAY_PEERS: &[Package] = &[Package { name: "nginx-light", reason: "a proxy that neither records nor bills" }];

const EGRESS_PEERS: &[Package] = &[
    Package { name: "tinyproxy-bin", reason: "a small forward proxy" },
    Package { name: "squid", reason: "a common forward proxy" },
];

const SESSIONS_PEERS: &[Package] = &[Package { name: "npm", reason: "installs the peer" }];

const RESULTS: &str = "bench/RESULTS.md";

/// Returns the list of benches as text.
pub(crate) fn list() -> String {
    let rows = BENCHES.iter().map(|bench| format!("  cargo xtask bench {:10} {}", bench.name, bench.about));
    rows.collect::<Vec<_>>().join("\n") + "\n"
}

/// Runs a bench, prints its table and saves it to bench/RESULTS.md.
pub(crate) fn run(name: &str) -> Result<()> {
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        bail!("unknown bench `{name}`\n{}", list());
    };
    install::run(bench.packages)?;
    let table = (bench.run)()?.table()?;
    print!("{table}");
    save(bench.name, &table)
}

/// Replaces the saved results of the bench `name` by `table`, with the date and the machine.
pub(crate) fn save(name: &str, table: &str) -> Result<()> {
    let entry =
        format!("\n## {}: {name}\n\n{}\n\n{table}", output_of("date", &["-u", "+%Y-%m-%d"])?, machine_description()?);
    let path = workspace::root().join(RESULTS);
    let saved = std::fs::read_to_string(&path).with_context(|| format!("cannot read {RESULTS}"))?;
    std::fs::write(&path, without(&saved, name) + &entry).with_context(|| format!("cannot write {RESULTS}"))
}

/// Returns the results without the section of the bench `name`.
fn without(results: &str, name: &str) -> String {
    let of_bench = |section: &&str| section.lines().next().is_some_and(|head| head.ends_with(&format!(": {name}")));
    let kept: Vec<&str> = results.split("\n## ").filter(|section| !of_bench(section)).collect();
    kept.join("\n## ")
}

/// Returns processor, kernel, commit and load of this run.
fn machine_description() -> Result<String> {
    let processors = std::fs::read_to_string("/proc/cpuinfo").context("cannot read /proc/cpuinfo")?;
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism()?;
    let kernel = output_of("uname", &["-sr"])?;
    let commit = output_of("git", &["-c", "safe.directory=*", "describe", "--always", "--dirty"])?;
    let load = std::fs::read_to_string("/proc/loadavg").context("cannot read /proc/loadavg")?;
    let load = load.split(' ').next().unwrap_or_default();
    Ok(format!("{cores} × {model}, {kernel}, commit {commit}, load {load} at the end"))
}

fn output_of(program: &str, arguments: &[&str]) -> Result<String> {
    let output = workspace::output(Command::new(program).args(arguments).current_dir(workspace::root()))?;
    Ok(output.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unknown_bench_is_refused() {
        assert!(run("none").unwrap_err().to_string().starts_with("unknown bench `none`"));
    }

    #[test]
    fn new_results_replace_those_of_the_same_bench() {
        let results = "# Results\n\n## 2026-01-01: egress\n\none\n\n## 2026-01-02: sandbox\n\ntwo\n";
        assert_eq!(without(results, "sandbox"), "# Results\n\n## 2026-01-01: egress\n\none\n");
        assert_eq!(without(results, "egress"), "# Results\n\n## 2026-01-02: sandbox\n\ntwo\n");
        assert_eq!(without(results, "gateway"), results);
    }
}
