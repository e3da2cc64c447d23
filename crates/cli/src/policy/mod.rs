//! `viv policy`: check, explain, test, compare and trust policy files.
//!
//! Answers come from the evaluator that enforcement uses; nothing here decides anything. Data goes to standard
//! output, words for people to standard error.

mod check;
mod diff;
pub(crate) mod explain;
mod failure;
pub(crate) mod load;
mod preset;
mod test;
mod trust;

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use ::policy::{Effective, Narrowing};
use clap::Subcommand;

use crate::config::Config;

pub(crate) use failure::Failure;

/// What `viv policy` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check policy files; every mistake is shown with its line
    Check(check::Args),
    /// Say in sentences what a session may do, and which rule says so
    Explain(explain::Args),
    /// Ask whether something would be allowed; exit code 5 when not
    Test(test::Args),
    /// Show what one policy allows more or less than another
    Diff(diff::Args),
    /// List the built-in policies, or print one
    Presets(preset::Args),
    /// Print the JSON Schema of the policy file
    Schema,
    /// Trust a project's policy file as it is now, so that it can be a base
    Trust(trust::Args),
}

/// What the command line and the environment say, read by `main` alone.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Whether the answer is one JSON document.
    pub(crate) json: bool,
    /// Where the list of trusted files is kept.
    pub(crate) data_dir: PathBuf,
    /// The organisation's rules, if the file exists.
    pub(crate) organisation_file: PathBuf,
    /// Where a project's own policy is looked for.
    pub(crate) workspace: PathBuf,
    /// Seconds since 1970.
    pub(crate) now_unix_secs: u64,
}

impl Setting {
    /// As configured; the workspace is the current directory.
    pub(crate) fn of(config: &Config, json: bool) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            json,
            data_dir: config.data_dir.clone(),
            organisation_file: config.organisation_policy.clone(),
            workspace: PathBuf::from("."),
            now_unix_secs: now.map_or(0, |since| since.as_secs()),
        }
    }
}

/// The policy of one run: what was named, else what holds in this directory; then narrowed.
pub(crate) fn choose(setting: &Setting, named: Option<&str>, narrow: &[String]) -> Result<Effective, Failure> {
    let above = match named {
        Some(name) => load::chosen(name, setting)?,
        None => load::unchosen(setting)?.0,
    };
    let narrowings = narrow.iter().map(|argument| Narrowing::assign(argument)).collect::<Result<Vec<_>, _>>()?;
    Ok(above.narrowed(&narrowings)?)
}

/// Runs one command. `out` gets data, `people` gets words.
pub(crate) fn run(
    command: PolicyCommand,
    setting: &Setting,
    out: &mut dyn Write,
    people: &mut dyn Write,
) -> Result<ExitCode, Failure> {
    match command {
        PolicyCommand::Check(args) => check::run(&args, setting, out, people),
        PolicyCommand::Explain(args) => explain::run(&args, setting, out, people),
        PolicyCommand::Test(args) => test::run(args, setting, out),
        PolicyCommand::Diff(args) => diff::run(&args, setting, out),
        PolicyCommand::Presets(args) => preset::run(&args, setting, out),
        PolicyCommand::Schema => print_json(out, &::policy::schema()),
        PolicyCommand::Trust(args) => trust::run(&args, setting, out, people),
    }
}

/// Writes one JSON document and a line end.
fn print_json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<ExitCode, Failure> {
    let text = serde_json::to_string_pretty(value).map_err(|error| Failure::Output(error.into()))?;
    writeln!(out, "{text}").map_err(Failure::Output)?;
    Ok(ExitCode::SUCCESS)
}
