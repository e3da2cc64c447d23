//! `viv policy`: check, explain, test, compare and trust policy files.
//!
//! Answers come from the evaluator that enforces policies. Data goes to standard output, messages to standard error.

mod check;
mod diff;
pub(crate) mod explain;
mod failure;
pub(crate) mod hidden;
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
use crate::network_arguments::NetworkArguments;
use crate::packages::PackageFinder;

pub(crate) use failure::PolicyCommandError;

/// Subcommands of `viv policy`.
#[derive(Debug, Subcommand)]
pub(crate) enum PolicyCommand {
    /// Check policy files and show mistakes with their line
    Check(check::CheckArguments),
    /// Explain a policy in sentences, each with its rule
    Explain(explain::ExplainArguments),
    /// Test whether a policy allows an action; exit code 5 if not
    Test(test::TestArguments),
    /// Compare two policies: list the rights that the second adds and removes
    Diff(diff::DiffArguments),
    /// List the presets, or print one
    Presets(preset::PresetArguments),
    /// Print the JSON Schema of the policy file
    Schema,
    /// Trust the current content of a project's policy file, so that it can be the base layer
    Trust(trust::TrustArguments),
    /// List the network connections of a session, each with the rule that decided
    Log(LogArguments),
    /// Suggest a policy that allows the connections that a session was denied, for review
    Suggest(SuggestArguments),
    /// Narrow the network access of a running session, from now until it ends
    Narrow(NarrowArguments),
    /// Grant a running session more network access for a time; cannot exceed the organisation policy
    Grant(GrantArguments),
}

/// Arguments of `narrow`.
#[derive(Debug, clap::Args)]
pub(crate) struct NarrowArguments {
    /// Session: id, name, prefix of an id, or @last
    pub(crate) session: String,
    /// Remaining access: net.allowlist=HOST:PORT,…, net.denylist=HOST or net.enabled=false
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub(crate) rules: Vec<String>,
}

/// Arguments of `grant`.
#[derive(Debug, clap::Args)]
pub(crate) struct GrantArguments {
    /// Session: id, name, prefix of an id, or @last
    pub(crate) session: String,
    /// Additional hosts to allow: net.allowlist=HOST:PORT
    #[arg(required = true, value_name = "KEY=VALUE")]
    pub(crate) rules: Vec<String>,
    /// Duration of the grant in seconds
    #[arg(long, value_name = "SECONDS", default_value_t = 3600)]
    pub(crate) seconds: u64,
}

/// Arguments of `log`.
#[derive(Debug, clap::Args)]
pub(crate) struct LogArguments {
    /// Session: id, name, prefix of an id, or @last
    pub(crate) session: String,
    /// Show only denied connections
    #[arg(long)]
    pub(crate) denied: bool,
    /// Wait for new connections until the session ends
    #[arg(short, long)]
    pub(crate) follow: bool,
}

/// Arguments of `suggest`.
#[derive(Debug, clap::Args)]
pub(crate) struct SuggestArguments {
    /// Session: id, name, prefix of an id, or @last
    pub(crate) session: String,
}

/// Settings from the command line and the configuration that policy commands need.
#[derive(Debug, Clone)]
pub(crate) struct PolicyContext {
    /// Whether to print JSON.
    pub(crate) json: bool,
    /// Data directory, with the list of trusted files.
    pub(crate) data_dir: PathBuf,
    /// Path of the organisation's policy; the file may not exist.
    pub(crate) organisation_file: PathBuf,
    /// Project directory, which may have a policy file.
    pub(crate) workspace: Option<PathBuf>,
    /// Seconds since 1970.
    pub(crate) now_unix_secs: u64,
    /// The package registries of this host.
    pub(crate) packages: PackageFinder,
    /// Hosts that the command line opens; `None` where the network does not matter, so that no registry is looked for.
    pub(crate) network: Option<NetworkArguments>,
}

impl PolicyContext {
    /// Returns the context without a project.
    pub(crate) fn of(config: &Config, json: bool) -> Self {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            json,
            data_dir: config.data_dir.clone(),
            organisation_file: config.organisation_policy.clone(),
            workspace: None,
            now_unix_secs: now.map_or(0, |since| since.as_secs()),
            packages: config.packages.clone(),
            network: None,
        }
    }

    /// Returns the context for a policy whose network is used, with the hosts that the command line opens.
    pub(crate) fn with_network(mut self, network: &NetworkArguments) -> Self {
        self.network = Some(network.clone());
        self
    }

    /// Returns the context with the project in `workspace`, or else in the current directory.
    pub(crate) fn in_project(mut self, workspace: Option<&Path>) -> Self {
        self.workspace = Some(workspace.unwrap_or(Path::new(".")).to_owned());
        self
    }
}

/// Returns the policy of one run: the named one, or else the project's default, with `narrow` applied.
pub(crate) fn choose(
    setting: &PolicyContext,
    named: Option<&str>,
    narrow: &[String],
) -> Result<EffectivePolicy, PolicyCommandError> {
    let chosen = match named {
        Some(name) => load::named_policy_in_project(name, setting)?,
        None => load::default_policy(setting)?.0,
    };
    let narrowings = narrow.iter().map(|argument| NarrowingLayer::assign(argument)).collect::<Result<Vec<_>, _>>()?;
    load::check_allowed(&chosen, setting)?;
    without_data_dir(chosen.narrowed(&narrowings).map_err(PolicyCommandError::Asked)?, setting)
}

/// Returns the policy of a task whose file names `name`: that policy, if a person trusts it, or else the project's default
/// narrowed by it.
pub(crate) fn choose_for_task(setting: &PolicyContext, name: &str) -> Result<EffectivePolicy, PolicyCommandError> {
    without_data_dir(load::policy_of_task(name, setting)?, setting)
}

fn without_data_dir(policy: EffectivePolicy, setting: &PolicyContext) -> Result<EffectivePolicy, PolicyCommandError> {
    match data_inside(setting)? {
        Some(inside) => Ok(policy.narrowed(&[NarrowingLayer::hiding(&inside)?])?),
        None => Ok(policy),
    }
}

/// Returns the path of the data directory within the project, if it is inside: sessions must not see it.
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

/// Returns the function that applies the policy file of a session's directory to the policy of the host.
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

/// Runs one subcommand. Data goes to `out`, messages to `people`.
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
        // These read sessions and are dispatched in `host.rs`.
        PolicyCommand::Log(_) | PolicyCommand::Suggest(_) | PolicyCommand::Narrow(_) | PolicyCommand::Grant(_) => {
            Ok(ExitCode::SUCCESS)
        }
    }
}

/// Prints a JSON document.
fn print_json(out: &mut dyn Write, value: &impl serde::Serialize) -> Result<ExitCode, PolicyCommandError> {
    let text = serde_json::to_string_pretty(value).map_err(|error| PolicyCommandError::Output(error.into()))?;
    writeln!(out, "{text}").map_err(PolicyCommandError::Output)?;
    Ok(ExitCode::SUCCESS)
}
