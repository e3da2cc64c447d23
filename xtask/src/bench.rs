//! Measurements against a peer in the same run: what counts is the ratio, not this machine's speed.
//!
//! Each bench is a row of the table. Its figures are printed and appended to bench/RESULTS.md with the day,
//! the processor, the kernel and the commit they were taken on.

mod sample;
mod sandbox;
mod startup;

use std::fmt::Write as _;
use std::io::Write as _;
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::install::{self, Package};
use crate::workspace;

pub(crate) use sample::Sample;

/// One bench.
pub(crate) struct Bench {
    pub(crate) name: &'static str,
    about: &'static str,
    /// The peers it measures against.
    packages: &'static [Package],
    /// The first sample is the one the others are compared with.
    run: fn() -> Result<Vec<Sample>>,
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
];

const SANDBOX_PEERS: &[Package] = &[
    Package { name: "bubblewrap", reason: "the sandbox most agents are run in" },
    Package { name: "util-linux", reason: "the bare namespaces" },
];

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
    let samples = (bench.run)()?;
    let table = table(&samples)?;
    print!("{table}");
    let entry = format!("\n## {}: {}\n\n{}\n\n{table}", machine("date", &["-u", "+%Y-%m-%d"])?, bench.name, ground()?);
    let path = workspace::root().join(RESULTS);
    let mut file =
        std::fs::OpenOptions::new().append(true).open(&path).with_context(|| format!("cannot open {RESULTS}"))?;
    file.write_all(entry.as_bytes()).with_context(|| format!("cannot write {RESULTS}"))
}

/// The samples as a table, each with its ratio to the first.
fn table(samples: &[Sample]) -> Result<String> {
    let base = samples.first().context("the bench measured nothing")?;
    let mut text = String::from("| what | n | median | p90 | ratio |\n| --- | ---: | ---: | ---: | ---: |\n");
    for sample in samples {
        let ratio = sample.median().as_secs_f64() / base.median().as_secs_f64();
        let (name, count) = (sample.name(), sample.count());
        let (median, p90) = (milliseconds(sample.median()), milliseconds(sample.percentile(90)));
        writeln!(text, "| {name} | {count} | {median} ms | {p90} ms | {ratio:.2} |")?;
    }
    Ok(text)
}

fn milliseconds(time: std::time::Duration) -> String {
    format!("{:.3}", time.as_secs_f64() * 1000.0)
}

/// On what the figures were taken.
fn ground() -> Result<String> {
    let processors = std::fs::read_to_string("/proc/cpuinfo").context("cannot read the processor's name")?;
    let model = processors.lines().find_map(|line| line.strip_prefix("model name")?.split_once(": "));
    let model = model.map_or("unknown processor", |(_, model)| model);
    let cores = std::thread::available_parallelism()?;
    let kernel = machine("uname", &["-sr"])?;
    let commit = machine("git", &["-c", "safe.directory=*", "describe", "--always", "--dirty"])?;
    Ok(format!("{cores} × {model}, {kernel}, commit {commit}"))
}

fn machine(program: &str, arguments: &[&str]) -> Result<String> {
    let said = workspace::output(Command::new(program).args(arguments).current_dir(workspace::root()))?;
    Ok(said.trim().to_owned())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn ratios_are_to_the_first_sample() {
        let sample = |name, millis: u64| Sample::new(name, vec![Duration::from_millis(millis); 3]).unwrap();
        let text = table(&[sample("peer", 2), sample("viv", 3)]).unwrap();
        assert!(
            text.ends_with("| peer | 3 | 2.000 ms | 2.000 ms | 1.00 |\n| viv | 3 | 3.000 ms | 3.000 ms | 1.50 |\n")
        );
        assert!(table(&[]).is_err());
    }

    #[test]
    fn an_unknown_bench_is_refused_before_anything_is_measured() {
        assert!(run("none").unwrap_err().to_string().starts_with("there is no bench `none`"));
    }
}
