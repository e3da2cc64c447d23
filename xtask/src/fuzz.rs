//! Many inputs for the readers and translators of the gateway.
//!
//! The rules and the corpus are those of the targets in `fuzz/`, which `cargo fuzz` runs where it and a nightly
//! compiler are there. This needs neither: it tries inputs like those of the corpus, the same ones every time.

use anyhow::{Context, Result, bail};

use crate::step::Steps;
use crate::workspace::{cargo, root};

/// How many inputs a target gets when nobody says.
const RUNS: u64 = 1_000_000;

/// Carries out `cargo xtask fuzz [TARGET] [--runs=N]`.
pub(crate) fn run(arguments: &[String]) -> Result<()> {
    let wanted = Wanted::read(arguments)?;
    let mut steps = Steps::start();
    for target in targets()?.iter().filter(|target| wanted.target.as_ref().is_none_or(|only| only == *target)) {
        let mut test = cargo(&["test", "--locked", "--release", "-p", "gateway", "--lib", "probe::"]);
        test.env("VIV_FUZZ_RUNS", wanted.runs.to_string()).env("VIV_FUZZ_TARGET", target);
        steps.command(&format!("{} inputs for {target}", wanted.runs), test)?;
    }
    steps.finish();
    Ok(())
}

#[derive(Debug, PartialEq, Eq)]
struct Wanted {
    target: Option<String>,
    runs: u64,
}

impl Wanted {
    fn read(arguments: &[String]) -> Result<Self> {
        let mut wanted = Self { target: None, runs: RUNS };
        for argument in arguments {
            match argument.strip_prefix("--runs=") {
                Some(runs) => wanted.runs = runs.parse().with_context(|| format!("`{runs}` is no number"))?,
                None if wanted.target.is_none() && !argument.starts_with('-') => wanted.target = Some(argument.clone()),
                None => bail!("usage: cargo xtask fuzz [TARGET] [--runs=N]"),
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
    fn a_target_and_a_number_are_read_and_nothing_else() {
        let read = |words: &[&str]| Wanted::read(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(read(&[]).unwrap(), Wanted { target: None, runs: RUNS });
        assert_eq!(read(&["sse", "--runs=5"]).unwrap(), Wanted { target: Some("sse".to_owned()), runs: 5 });
        for bad in [&["nothing"][..], &["--fast"], &["sse", "usage"], &["--runs=x"]] {
            assert!(read(bad).is_err(), "{bad:?}");
        }
    }
}
