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
pub(crate) mod proposal;
mod test;
mod trust;

use std::io::{ErrorKind, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use ::policy::{EffectivePolicy, NarrowingLayer};
use clap::Subcommand;
use session::{ProjectPolicy, SessionError};

use crate::config::Config;

pub(crate) use failure::PolicyCommandError;

/// What `viv policy` can do.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check policy files; what is wrong is shown with its line
    Check(check::CheckArguments),
    /// Say in sentences what a session may do, and which rule says so
    Explain(explain::ExplainArguments),
    /// Ask whether something would be allowed; exit code 5 when not
    Test(test::TestArguments),
    /// Show what one policy allows more or less than another
    Diff(diff::DiffArguments),
    /// List the built-in policies, or print one
    Presets(preset::PresetArguments),
    /// Print the JSON Schema of the policy file
    Schema,
    /// Trust a project's policy file as it is now, so that it can be a base
    Trust(trust::TrustArguments),
    /// What a session tried to reach over the network, and which rule decided
    Log(LogArguments),
    /// A policy that would have allowed what a session was refused, to read and to choose from
    Suggest(SuggestArguments),
    /// Take away from what a running session may reach, at once and for the rest of its life
    Narrow(NarrowArguments),
    /// Let a running session reach more, for a time; nothing passes the ceiling
    Grant(GrantArguments),
}

/// Arguments of `narrow`.
#[derive(Debug, clap::Args)]
pub(crate) struct NarrowArguments {
    /// Its id, its name, the beginning of its id, or @last
    pub(crate) session: String,
    /// What it may reach at most, as net.allowlist=HOST:PORT,… or net.enabled=false, or never, as net.denylist=HOST
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub(crate) rules: Vec<String>,
}

/// Arguments of `grant`.
#[derive(Debug, clap::Args)]
pub(crate) struct GrantArguments {
    /// Its id, its name, the beginning of its id, or @last
    pub(crate) session: String,
    /// What it may reach beside what it may, as net.allowlist=HOST:PORT
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub(crate) rules: Vec<String>,
    /// How long, in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) seconds: u64,
}

/// Arguments of `log`.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArguments {
    /// Its id, its name, the beginning of its id, or @last
    pub(crate) session: String,
    /// Only what was refused
    #[arg(long)]
    pub(crate) denied: bool,
    /// Go on until the session has ended
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// Arguments of `suggest`.
#[derive(Debug, clap::Args)]
pub(crate) struct SuggestArguments {
    /// Its id, its name, the beginning of its id, or @last
    pub(crate) session: String,
}

/// What the command line and the environment say, read by `main` alone.
#[derive(Debug)]
pub(crate) struct PolicyContext {
    /// Whether the answer is one JSON document.
    pub(crate) json: bool,
    /// Where the list of trusted files is kept.
    pub(crate) data_dir: PathBuf,
    /// The organisation's rules, if the file exists.
    pub(crate) organisation_file: PathBuf,
    /// Where a project's own policy is looked for; nowhere when there is none.
    pub(crate) workspace: Option<PathBuf>,
    /// Seconds since 1970.
    pub(crate) now_unix_secs: u64,
}

impl PolicyContext {
    /// As configured, for what belongs to no project.
    pub(crate) fn of(config: &Config, json: bool) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            json,
            data_dir: config.data_dir.clone(),
            organisation_file: config.organisation_policy.clone(),
            workspace: None,
            now_unix_secs: now.map_or(0, |since| since.as_secs()),
        }
    }

    /// The same for the project in `workspace`; without one, the current directory is the project.
    pub(crate) fn in_project(mut self, workspace: Option<&Path>) -> Self {
        self.workspace = Some(workspace.unwrap_or(Path::new(".")).to_owned());
        self
    }
}

/// The policy of one run: what was named, else what holds in this project; then narrowed.
pub(crate) fn choose(
    setting: &PolicyContext,
    named: Option<&str>,
    narrow: &[String],
) -> Result<EffectivePolicy, PolicyCommandError> {
    let above = match named {
        Some(name) => load::named_policy_in_project(name, setting)?,
        None => load::default_policy(setting)?.0,
    };
    let narrowings = narrow.iter().map(|argument| NarrowingLayer::assign(argument)).collect::<Result<Vec<_>, _>>()?;
    let policy = above.narrowed(&narrowings).map_err(PolicyCommandError::Asked)?;
    match data_inside(setting)? {
        Some(inside) => Ok(policy.narrowed(&[NarrowingLayer::hiding(&inside)?])?),
        None => Ok(policy),
    }
}

/// Where the data directory lies in the project, if it does: there are the tokens and records of this host.
fn data_inside(setting: &PolicyContext) -> Result<Option<String>, PolicyCommandError> {
    let workspace = setting.workspace.as_deref().and_then(|workspace| workspace.canonicalize().ok());
    let (Some(workspace), Ok(data)) = (workspace, setting.data_dir.canonicalize()) else { return Ok(None) };
    match data.strip_prefix(workspace) {
        Ok(inside) if !inside.as_os_str().is_empty() => {
            let unnameable =
                || PolicyCommandError::Read { path: data.clone(), source: ErrorKind::InvalidFilename.into() };
            Ok(Some(inside.to_str().ok_or_else(unnameable)?.to_owned()))
        }
        _ => Ok(None),
    }
}

/// What a session's own directory makes of the policy of a host, for sessions that nobody chose a policy for.
pub(crate) fn project(config: &Config) -> ProjectPolicy {
    let config = config.clone();
    ProjectPolicy(Arc::new(move |policy: &Arc<EffectivePolicy>, directory: &Path| {
        let setting = PolicyContext::of(&config, false).in_project(Some(directory));
        load::narrowed_by_project(policy, &setting).map_err(|failure| match failure {
            PolicyCommandError::Read { path, source } | PolicyCommandError::Trust { path, source } => {
                SessionError::ProjectPolicy { path, source }
            }
            PolicyCommandError::Invalid(error) => error.into(),
            PolicyCommandError::Widening(error) => error.into(),
            other => SessionError::ProjectPolicy { path: directory.to_owned(), source: std::io::Error::other(other) },
        })
    }))
}

/// Runs one command. `out` gets data, `people` gets words.
pub(crate) fn run(
    command: PolicyCommand,
    setting: &PolicyContext,
    out: &mut dyn Write,
    people: &mut dyn Write,
) -> Result<ExitCode, PolicyCommandError> {
    match command {
        PolicyCommand::Check(args) => check::run(&args, setting, out, people),
        PolicyCommand::Explain(args) => explain::run(&args, setting, out, people),
        PolicyCommand::Test(args) => test::run(args, setting, out),
        PolicyCommand::Diff(args) => diff::run(&args, setting, out),
        PolicyCommand::Presets(args) => preset::run(&args, setting, out),
        PolicyCommand::Schema => print_json(out, &::policy::schema()),
        PolicyCommand::Trust(args) => trust::run(&args, setting, out, people),
        // About sessions, and so carried out where journals are read.
        PolicyCommand::Log(_) | PolicyCommand::Suggest(_) | PolicyCommand::Narrow(_) | PolicyCommand::Grant(_) => {
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Writes one JSON document and a line end.
fn print_json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<ExitCode, PolicyCommandError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| PolicyCommandError::Output(error.into()))?;
    writeln!(out, "{text}").map_err(PolicyCommandError::Output)?;
    Ok(ExitCode::SUCCESS)
}
