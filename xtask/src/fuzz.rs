//! Many inputs for everything that reads what others wrote: vendors' streams, callers' requests, agents' lines, journals.
//!
//! The rules and the corpus are those of the targets in `fuzz/`. Without more words this tries inputs like those of the
//! corpus, the same ones every time, with the compiler of the checkout. `--guided` lets `cargo fuzz` look for inputs
//! that reach new code; it needs a nightly compiler, and both are installed when they are missing.

use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::step::{Steps, quietly};
use crate::workspace::{cargo, root};

/// How many inputs a target gets when nobody says.
const RUNS: u64 = 1_000_000;
const CARGO_FUZZ: &str = "0.13.1";
/// An input that keeps a reader busy for longer is a defect, too.
const SLOWEST_SECONDS: u64 = 10;

/// Where the rule of a target is tried; all others are rules of the gateway.
const TESTS: &[(&str, &[&str])] = &[
    ("journal", &["-p", "store", "--test", "journal_any_bytes"]),
    ("agent_lines", &["-p", "agents", "--test", "it", "any_lines"]),
    ("request_bodies", &["-p", "server", "--test", "it", "any_body"]),
];
const GATEWAY: &[&str] = &["-p", "gateway", "--lib", "probe::"];

/// Carries out `cargo xtask fuzz [TARGET] [--runs=N] [--guided]`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let wanted = Wanted::read(arguments)?;
    let mut steps = Steps::start();
    if wanted.guided {
        steps.step("cargo-fuzz and a nightly compiler", install)?;
    }
    for target in targets()?.iter().filter(|target| wanted.target.as_ref().is_none_or(|only| only == *target)) {
        let command = if wanted.guided { guided(target, wanted.runs) } else { steady(target, wanted.runs) };
        steps.command(&format!("{} inputs for {target}", wanted.runs), command)?;
    }
    steps.finish();
    Ok(())
}

/// The same inputs every time.
fn steady(target: &str, runs: u64) -> Command {
    let place = TESTS.iter().find(|(name, _)| *name == target).map_or(GATEWAY, |(_, place)| place);
    let mut test = cargo(&["test", "--locked", "--release"]);
    test.args(place).env("VIV_FUZZ_RUNS", runs.to_string()).env("VIV_FUZZ_TARGET", target);
    test
}

/// Inputs that reach new code. What is found stays out of the corpus, which is ours.
fn guided(target: &str, runs: u64) -> Command {
    let corpus = root().join("fuzz/corpus").join(target);
    let found = root().join("target/fuzz-found").join(target);
    // A folder that cannot be made is told by the fuzzer.
    let _ = std::fs::create_dir_all(&found);
    let mut fuzz = Command::new("cargo");
    // The rustup of the checkout's compiler would choose that one for the fuzzer, too.
    fuzz.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").current_dir(root());
    fuzz.args(["+nightly", "fuzz", "run", target]).arg(found).arg(corpus).arg("--");
    fuzz.arg(format!("-runs={runs}")).arg(format!("-timeout={SLOWEST_SECONDS}"));
    fuzz
}

/// Installs what `--guided` needs.
fn install() -> Result<String> {
    let mut compiler = Command::new("rustup");
    quietly(compiler.args(["toolchain", "install", "nightly", "--profile=minimal"]))?;
    let there = quietly(Command::new("cargo").args(["fuzz", "--version"]));
    if there.is_err() {
        quietly(&mut cargo(&["install", "--locked", "cargo-fuzz", "--version", CARGO_FUZZ]))?;
    }
    Ok(String::new())
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    target: Option<String>,
    runs: u64,
    guided: bool,
}

impl Wanted {
    fn read(arguments: &[String]) -> Result<Self> {
        let mut wanted = Self { target: None, runs: RUNS, guided: false };
        for argument in arguments {
            match argument.strip_prefix("--runs=") {
                Some(runs) => wanted.runs = runs.parse().with_context(|| format!("`{runs}` is no number"))?,
                None if argument == "--guided" => wanted.guided = true,
                None if wanted.target.is_none() && !argument.starts_with('-') => wanted.target = Some(argument.clone()),
                None => bail!("usage: cargo xtask fuzz [TARGET] [--runs=N] [--guided]"),
            }
        }
        let known = targets()?;
        match &wanted.target {
            Some(target) if !known.contains(target) => {
                bail!("there is no fuzz target `{target}`; there are {}", known.join(", "))
            }
            _ => Ok(wanted),
        }
    }
}

/// Every target, by its corpus.
fn targets() -> Result<Vec<String>> {
    let folder = root().join("fuzz/corpus");
    let entries = std::fs::read_dir(&folder).with_context(|| format!("cannot read {}", folder.display()))?;
    let mut targets = entries
        .map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()))
        .collect::<Result<Vec<_>>>()
        .context("cannot list the fuzz targets")?;
    targets.sort();
    Ok(targets)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_place_is_of_a_target() {
        let known = targets().unwrap();
        assert!(TESTS.iter().all(|(target, _)| known.iter().any(|name| name == target)), "{known:?}");
    }

    #[test]
    fn a_target_and_a_number_are_read_and_nothing_else() {
        let read = |words: &[&str]| Wanted::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&[]).unwrap(), Wanted { target: None, runs: RUNS, guided: false });
        let sse = Wanted { target: Some("sse".to_owned()), runs: 5, guided: true };
        assert_eq!(read(&["sse", "--runs=5", "--guided"]).unwrap(), sse);
        for bad in [&["nothing"][..], &["--fast"], &["sse", "usage"], &["--runs=x"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
