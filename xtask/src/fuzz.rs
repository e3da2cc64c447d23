//! Fuzzing of every parser of foreign input: vendors' streams, callers' requests, agents' lines, journals.
//!
//! Targets, rules and corpus are in `fuzz/`. libFuzzer searches for inputs that reach new code, with the address
//! sanitizer on. It needs a nightly compiler and `cargo-fuzz`, which are installed when they are missing. `--steady`
//! instead tries a fixed sequence of inputs derived from the corpus, with the compiler of the checkout.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::step::{Steps, quietly};
use crate::workspace::{cargo, root, target_directory};

/// The default number of inputs for a target.
const RUNS: u64 = 1_000_000;
const CARGO_FUZZ: &str = "0.13.1";
/// The compilation target that supports the sanitizer.
const PLATFORM: &str = "x86_64-unknown-linux-gnu";
/// An input that takes longer to parse is a defect.
const SLOWEST_SECONDS: u64 = 10;
/// An input that needs more memory to parse is a defect.
const MOST_MEBIBYTES: u64 = 2048;
/// The longest input. With longer ones, a million inputs would take hours.
const LONGEST_BYTES: u64 = 16 << 10;

/// The test that runs the rule of a target. All other targets belong to the gateway.
const TESTS: &[(&str, &[&str])] = &[
    ("journal", &["-p", "store", "--test", "journal_any_bytes"]),
    ("agent_lines", &["-p", "agents", "--test", "it", "any_lines"]),
    ("request_bodies", &["-p", "server", "--test", "it", "any_body"]),
];
const GATEWAY: &[&str] = &["-p", "gateway", "--lib", "probe::"];

/// Runs `cargo xtask fuzz [TARGET] [--runs=N] [--steady]`.
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

/// Returns the command that tries the fixed sequence of inputs.
fn steady(target: &str, runs: u64) -> Command {
    let place = TESTS.iter().find(|(name, _)| *name == target).map_or(GATEWAY, |(_, place)| place);
    let mut test = cargo(&["test", "--locked", "--release"]);
    test.args(place).env("VIV_FUZZ_RUNS", runs.to_string()).env("VIV_FUZZ_TARGET", target);
    test
}

/// Builds one target, or all of them.
fn compile(target: Option<&str>, build: &Path) -> Command {
    let mut fuzz = Command::new("cargo");
    // Without this, rustup would choose the compiler of the checkout for the fuzzer too.
    fuzz.env_remove("RUSTUP_TOOLCHAIN").env_remove("CARGO").env_remove("CARGO_TARGET_DIR").current_dir(root());
    fuzz.args(["+nightly", "fuzz", "build"]).args(target).arg("--target").arg(PLATFORM).arg("--target-dir").arg(build);
    fuzz
}

/// Returns the command that searches for inputs that reach new code. It does not add them to the corpus.
fn guided(target: &str, runs: u64, build: &Path) -> Result<String> {
    let (found, broken) = (folder(build, "found", target)?, folder(build, "broken", target)?);
    let mut fuzzer = Command::new(build.join(PLATFORM).join("release").join(target));
    fuzzer.arg(&found).arg(root().join("fuzz/corpus").join(target)).current_dir(root());
    fuzzer.arg(format!("-dict={}", root().join("fuzz/words.dict").display()));
    fuzzer.arg(format!("-artifact_prefix={}/", broken.display()));
    fuzzer.arg(format!("-runs={runs}")).arg(format!("-timeout={SLOWEST_SECONDS}"));
    fuzzer.arg(format!("-rss_limit_mb={MOST_MEBIBYTES}")).arg(format!("-max_len={LONGEST_BYTES}"));
    // SQLite has two function-local tables with the same name, which the sanitizer reports as one defined twice.
    fuzzer.env("ASAN_OPTIONS", "detect_odr_violation=0");
    summary(&quietly(&mut fuzzer)?, runs)
}

fn folder(build: &Path, what: &str, target: &str) -> Result<PathBuf> {
    let folder = build.join(what).join(target);
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(folder)
}

/// Returns a summary of libFuzzer's last line: `#1000 DONE cov: 812 ft: 2402 corp: 73/11Kb …`.
fn summary(output: &str, runs: u64) -> Result<String> {
    // A list of recommended words follows, which may look the same.
    let last = |line: &&str| line.starts_with('#') && line.split_whitespace().nth(1) == Some("DONE");
    let line = output.lines().rev().find(last).context("the fuzzer printed no summary")?;
    let words: Vec<&str> = line.split_whitespace().collect();
    let after = |name: &str| words.iter().skip_while(|word| **word != name).nth(1).copied();
    let inputs = words.first().and_then(|word| word.strip_prefix('#')?.parse::<u64>().ok());
    let (Some(inputs), Some(edges)) = (inputs, after("cov:")) else { bail!("the fuzzer ended with `{line}`") };
    ensure!(inputs >= runs, "only {inputs} inputs were tried");
    Ok(format!("{inputs} inputs, {edges} edges reached"))
}

/// Installs the nightly compiler and `cargo-fuzz`.
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
                Some(runs) => wanted.runs = runs.parse().with_context(|| format!("invalid number `{runs}`"))?,
                None if argument == "--steady" => wanted.steady = true,
                None if wanted.target.is_none() && !argument.starts_with('-') => wanted.target = Some(argument.clone()),
                None => bail!("usage: cargo xtask fuzz [TARGET] [--runs=N] [--steady]"),
            }
        }
        let known = targets()?;
        match &wanted.target {
            Some(target) if !known.contains(target) => {
                bail!("unknown fuzz target `{target}`; known targets: {}", known.join(", "))
            }
            _ => Ok(wanted),
        }
    }
}

/// Returns every target that has a corpus.
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
    fn every_listed_target_exists() {
        let known = targets().unwrap();
        assert!(TESTS.iter().all(|(target, _)| known.iter().any(|name| name == target)), "{known:?}");
    }

    #[test]
    fn summary_is_read_from_the_last_line() {
        let output = "#5\tINITED cov: 2 ft: 3\n#900\tDONE   cov: 812 ft: 2402 corp: 73/11Kb\n\"[DONE]\" # Uses: 2\nDone 900 runs";
        assert_eq!(summary(output, 900).unwrap(), "900 inputs, 812 edges reached");
        assert!(summary(output, 901).is_err(), "fewer than was asked for");
        assert!(summary("ERROR: libFuzzer: deadly signal", 1).is_err());
    }

    #[test]
    fn only_a_target_and_a_number_are_accepted() {
        let read = |words: &[&str]| Wanted::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&[]).unwrap(), Wanted { target: None, runs: RUNS, steady: false });
        let sse = Wanted { target: Some("sse".to_owned()), runs: 5, steady: true };
        assert_eq!(read(&["sse", "--runs=5", "--steady"]).unwrap(), sse);
        for bad in [&["nothing"][..], &["--fast"], &["sse", "usage"], &["--runs=x"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
