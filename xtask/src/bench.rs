//! Measurements against a peer in the same run: what counts is the ratio, not this machine's speed.
//!
//! Each bench is a row of the table. Its figures are printed and take the place of the last ones in bench/RESULTS.md,
//! with the day, the processor, the kernel and the commit they were taken on.

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

/// One bench.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    about: &'static str,
    /// The peers it measures against.
    packages: &'static [Package],
    run: fn() -> Result<Report>,
}

/// Every bench there is; documents may name no other.
pub(crate) const BENCHES: &[Bench] = &[
    Bench {
        name: "startup",
        about: "from exec to exit of `viv --version`, beside /bin/true",
        packages: &[],
        run: startup::run,
    },
    Bench {
        name: "sandbox",
        about: "a new sandbox, a further command and `viv exec`, beside fork+exec, unshare and bubblewrap",
        packages: SANDBOX_PEERS,
        run: sandbox::run,
    },
    Bench {
        name: "gateway",
        about: "model calls through `viv gateway serve`, recorded and charged, beside nginx and LiteLLM",
        packages: GATEWAY_PEERS,
        run: gateway::run,
    },
    Bench {
        name: "egress",
        about: "tunnels through the egress proxy, beside tinyproxy, squid and no proxy",
        packages: EGRESS_PEERS,
        run: egress::run,
    },
    Bench {
        name: "sessions",
        about: "the session API: starting, sessions, events and their readers, beside sandbox-agent",
        packages: SESSIONS_PEERS,
        run: sessions::run,
    },
    Bench {
        name: "agents",
        about: "a turn of Claude Code with `viv run`, beside Claude Code alone",
        packages: install::AGENTS,
        run: agents::run,
    },
];

const SANDBOX_PEERS: &[Package] = &[
    Package { name: "bubblewrap", reason: "the sandbox most agents are run in" },
    Package { name: "util-linux", reason: "the bare namespaces" },
];

const GATEWAY_PEERS: &[Package] = &[Package { name: "nginx-light", reason: "the proxy that does nothing but proxy" }];

const EGRESS_PEERS: &[Package] = &[
    Package { name: "tinyproxy-bin", reason: "the small forward proxy" },
    Package { name: "squid", reason: "the forward proxy most networks have" },
];

const SESSIONS_PEERS: &[Package] = &[Package { name: "npm", reason: "the peer comes from it" }];

const RESULTS: &str = "bench/RESULTS.md";

/// The benches, as text.
pub(crate) fn list() -> String {
    let rows = BENCHES.iter().map(|bench| format!("  cargo xtask bench {:10} {}", bench.name, bench.about));
    rows.collect::<Vec<_>>().join("\n") + "\n"
}

/// Runs a bench, prints its table and keeps it.
pub(crate) fn run(name: &str) -> Result<()> {
    let Some(bench) = BENCHES.iter().find(|bench| bench.name == name) else {
        bail!("there is no bench `{name}`\n{}", list());
    };
    install::run(bench.packages)?;
    let table = (bench.run)()?.table()?;
    print!("{table}");
    keep(bench.name, &table)
}

/// Puts what was found in the place of what the bench found before, with the day and what it was found on.
pub(crate) fn keep(name: &str, table: &str) -> Result<()> {
    let entry = format!("\n## {}: {name}\n\n{}\n\n{table}", machine("date", &["-u", "+%Y-%m-%d"])?, ground()?);
    let path = workspace::root().join(RESULTS);
    let kept = std::fs::read_to_string(&path).with_context(|| format!("cannot read {RESULTS}"))?;
    std::fs::write(&path, without(&kept, name) + &entry).with_context(|| format!("cannot write {RESULTS}"))
}

/// The results, but those of the bench `name`.
fn without(results: &str, name: &str) -> String {
    let of_bench = |section: &&str| section.lines().next().is_some_and(|head| head.ends_with(&format!(": {name}")));
    let kept: Vec<&str> = results.split("\n## ").filter(|section| !of_bench(section)).collect();
    kept.join("\n## ")
}

/// On what the figures were taken.
fn ground() -> Result<String> {
    let processors = std::fs::read_to_string("/proc/cpuinfo").context("cannot read the processor's name")?;
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism()?;
    let kernel = machine("uname", &["-sr"])?;
    let commit = machine("git", &["-c", "safe.directory=*", "describe", "--always", "--dirty"])?;
    let load = std::fs::read_to_string("/proc/loadavg").context("cannot read how loaded the machine is")?;
    let load = load.split(' ').next().unwrap_or_default();
    Ok(format!("{cores} × {model}, {kernel}, commit {commit}, load {load} at the end"))
}

fn machine(program: &str, arguments: &[&str]) -> Result<String> {
    let said = workspace::output(Command::new(program).args(arguments).current_dir(workspace::root()))?;
    Ok(said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_bench_is_refused_before_anything_is_measured() {
        assert!(run("none").unwrap_err().to_string().starts_with("there is no bench `none`"));
    }

    #[test]
    fn results_take_the_place_of_the_last_ones_of_their_bench() {
        let results = "# Results\n\n## 2026-01-01: egress\n\none\n\n## 2026-01-02: sandbox\n\ntwo\n";
        assert_eq!(without(results, "sandbox"), "# Results\n\n## 2026-01-01: egress\n\none\n");
        assert_eq!(without(results, "egress"), "# Results\n\n## 2026-01-02: sandbox\n\ntwo\n");
        assert_eq!(without(results, "gateway"), results);
    }
}
