//! Many inputs for everything that reads what others wrote: vendors' streams, callers' requests, agents' lines, journals.
//!
//! The rules and the corpus are those of the targets in `fuzz/`. libFuzzer looks for inputs that reach new code, with the
//! address sanitizer on; it needs a nightly compiler and `cargo-fuzz`, which are installed when they are missing.
//! `--steady` tries inputs like those of the corpus instead, the same ones every time, with the compiler of the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::step::{Steps, quietly};
use crate::workspace::{cargo, root, target_directory};

/// How many inputs a target gets when nobody says.
const RUNS: u64 = 1_000_000;
const CARGO_FUZZ: &str = "0.13.1";
/// What the sanitizer can be built for.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// An input that keeps a reader busy for longer is a defect, too,
const SLOWEST_SECONDS: u64 = 10;
/// and so is one that makes it ask for more memory than this.
const MOST_MEBIBYTES: u64 = 2048;
/// Inputs are no longer, so that a million of them take minutes.
const LONGEST_BYTES: u64 = 16 << 10;

/// Where the rule of a target is tried; all others are rules of the gateway.
const TESTS: &[(&str, &[&str])] = &[
    ("journal", &["-p", "store", "--test", "journal_any_bytes"]),
    ("agent_lines", &["-p", "agents", "--test", "it", "any_lines"]),
    ("request_bodies", &["-p", "server", "--test", "it", "any_body"]),
];
const GATEWAY: &[&str] = &["-p", "gateway", "--lib", "probe::"];

/// Carries out `cargo xtask fuzz [TARGET] [--runs=N] [--steady]`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let wanted = Wanted::read(arguments)?;
    let mut steps = Steps::start();
    let known = targets()?;
    let chosen = known.iter().filter(|target| wanted.target.as_ref().is_none_or(|only| only == *target));
    if wanted.steady {
        for target in chosen {
            steps.command(&format!("{} inputs for {target}", wanted.runs), steady(target, wanted.runs))?;
        }
    } else {
        let build = target_directory()?.join("fuzz");
        steps.step("cargo-fuzz and a nightly compiler", install)?;
        steps.command("build the targets", compile(wanted.target.as_deref(), &build))?;
        for target in chosen {
            steps.step(target, || guided(target, wanted.runs, &build))?;
        }
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

/// Builds one target, or all of them.
fn compile(target: Option<&str>, build: &Path) -> Command {
    let mut fuzz = Command::new("cargo");
    // The rustup of the checkout's compiler would choose that one for the fuzzer, too.
    fuzz.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("CARGO_TARGET_DIR").current_dir(root());
    fuzz.args(["+nightly", "fuzz", "build"]).args(target).arg("--target").arg(PLATFORM).arg("--target-dir").arg(build);
    fuzz
}

/// Inputs that reach new code. What is found stays out of the corpus, which is ours.
fn guided(target: &str, runs: u64, build: &Path) -> Result<String> {
    let (found, broken) = (folder(build, "found", target)?, folder(build, "broken", target)?);
    let mut fuzzer = Command::new(build.join(PLATFORM).join("release").join(target));
    fuzzer.arg(&found).arg(root().join("fuzz/corpus").join(target)).current_dir(root());
    fuzzer.arg(format!("-dict={}", root().join("fuzz/words.dict").display()));
    fuzzer.arg(format!("-artifact_prefix={}/", broken.display()));
    fuzzer.arg(format!("-runs={runs}")).arg(format!("-timeout={SLOWEST_SECONDS}"));
    fuzzer.arg(format!("-rss_limit_mb={MOST_MEBIBYTES}")).arg(format!("-max_len={LONGEST_BYTES}"));
    // The sanitizer takes two tables inside functions of SQLite, which have the same name, for one that is there twice.
    fuzzer.env("ASAN_OPTIONS", "detect_odr_violation=0");
    summary(&quietly(&mut fuzzer)?, runs)
}

fn folder(build: &Path, what: &str, target: &str) -> Result<PathBuf> {
    let folder = build.join(what).join(target);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// What libFuzzer says at its end: `#1000 DONE cov: 812 ft: 2402 corp: 73/11Kb …`.
fn summary(said: &str, runs: u64) -> Result<String> {
    // Words that it found useful follow, and may be the same.
    let last = |line: &&str| line.starts_with('#') && line.split_whitespace().nth(1) == Some("DONE");
    let line = said.lines().rev().find(last).context("the fuzzer did not say how it ended")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |name: &str| words.iter().skip_while(|word| **word != name).nth(1).copied();
    let inputs = words.first().and_then(|word| word.strip_prefix('#')?.parse::<u64>().ok());
    let (Some(inputs), Some(edges)) = (inputs, after("cov:")) else { bail!("the fuzzer ended with `{line}`") };
    ensure!(inputs >= runs, "only {inputs} inputs were tried");
    Ok(format!("{inputs} inputs, {edges} edges reached"))
}

/// Installs what the fuzzer needs.
fn install() -> Result<String> {
    if quietly(Command::new("rustc").env_remove("RUSTUP_TOOLCHAIN").args(["+nightly", "--version"])).is_err() {
        quietly(Command::new("rustup").args(["toolchain", "install", "nightly", "--profile=minimal"]))?;
    }
    if quietly(Command::new("cargo").args(["fuzz", "--version"])).is_err() {
        quietly(&mut cargo(&["install", "--locked", "cargo-fuzz", "--version", CARGO_FUZZ]))?;
    }
    Ok(String::new())
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    target: Option<String>,
    runs: u64,
    steady: bool,
}

impl Wanted {
    fn read(arguments: &[String]) -> Result<Self> {
        let mut wanted = Self { target: None, runs: RUNS, steady: false };
        for argument in arguments {
            match argument.strip_prefix("--runs=") {
                Some(runs) => wanted.runs = runs.parse().with_context(|| format!("`{runs}` is no number"))?,
                None if argument == "--steady" => wanted.steady = true,
                None if wanted.target.is_none() && !argument.starts_with('-') => wanted.target = Some(argument.clone()),
                None => bail!("usage: cargo xtask fuzz [TARGET] [--runs=N] [--steady]"),
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
    fn what_was_tried_is_read_off_the_last_line() {
        let said = "#5\tINITED cov: 2 ft: 3\n#900\tDONE   cov: 812 ft: 2402 corp: 73/11Kb\n\"[DONE]\" # Uses: 2\nDone 900 runs";
        assert_eq!(summary(said, 900).unwrap(), "900 inputs, 812 edges reached");
        assert!(summary(said, 901).is_err(), "fewer than was asked for");
        assert!(summary("ERROR: libFuzzer: deadly signal", 1).is_err());
    }

    #[test]
    fn a_target_and_a_number_are_read_and_nothing_else() {
        let read = |words: &[&str]| Wanted::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&[]).unwrap(), Wanted { target: None, runs: RUNS, steady: false });
        let sse = Wanted { target: Some("sse".to_owned()), runs: 5, steady: true };
        assert_eq!(read(&["sse", "--runs=5", "--steady"]).unwrap(), sse);
        for bad in [&["nothing"][..], &["--fast"], &["sse", "usage"], &["--runs=x"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
