//! `viv policy test FILE|PRESET net HOST:PORT | raw HOST:PORT | http METHOD URL | read PATH | write PATH | exec CMD…`.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use ::policy::{Action, Decision, Verdict};
use protocol::ProblemCode;
use serde_json::json;

use super::{PolicyCommandError, PolicyContext, load, print_json};

/// Arguments of `test`.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArguments {
    /// A policy file or a preset
    policy: String,
    #[command(subcommand)]
    question: TestQuestion,
}

/// What would be done.
#[derive(Debug, clap::Subcommand)]
enum TestQuestion {
    /// Connect to a host
    Net {
        /// HOST:PORT; 443 without a port
        endpoint: String,
    },
    /// Send a host anything, in a tunnel that nobody looks into
    Raw {
        /// HOST:PORT; 443 without a port
        endpoint: String,
    },
    /// Ask a host for something; methods and paths are seen over plain HTTP, and where TLS is opened
    Http {
        /// The method
        method: String,
        /// http[s]://HOST[:PORT]/PATH
        url: String,
    },
    /// Read a path as seen inside; a relative one is in the workspace
    Read {
        /// The path
        path: PathBuf,
    },
    /// Change, make or delete a path as seen inside
    Write {
        /// The path
        path: PathBuf,
    },
    /// Run a command by the agent's shell tool
    Exec {
        /// The command and its arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Call a tool
    Tool {
        /// Its name
        name: String,
        /// Its argument
        #[arg(default_value = "", allow_hyphen_values = true)]
        argument: String,
    },
    /// Call a model
    Model {
        /// Its name
        name: String,
    },
}

impl TestQuestion {
    fn action(self) -> Result<Action, PolicyCommandError> {
        Ok(match self {
            Self::Net { endpoint } => {
                Action::net(&endpoint).map_err(|source| PolicyCommandError::Endpoint { text: endpoint, source })?
            }
            Self::Raw { endpoint } => {
                Action::raw(&endpoint).map_err(|source| PolicyCommandError::Endpoint { text: endpoint, source })?
            }
            Self::Http { method, url } => {
                Action::http(&method, &url).map_err(|source| PolicyCommandError::Endpoint { text: url, source })?
            }
            Self::Read { path } => Action::Read(path),
            Self::Write { path } => Action::Write(path),
            Self::Exec { command } => Action::Exec(command),
            Self::Tool { name, argument } => Action::Tool { name, argument },
            Self::Model { name } => Action::Model(name),
        })
    }
}

/// Prints the answer and the rule that gave it.
pub(super) fn run(
    args: TestArguments,
    setting: &PolicyContext,
    out: &mut dyn Write,
) -> Result<ExitCode, PolicyCommandError> {
    let action = args.question.action()?;
    let decision = load::named_policy(&args.policy, setting)?.decide(&action);
    if setting.json {
        let Decision { allowed, rule, help } = &decision;
        print_json(out, &json!({"action": action.to_string(), "allowed": allowed, "rule": rule, "help": help}))?;
    } else {
        show(&action, &decision, out).map_err(PolicyCommandError::Output)?;
    }
    let denied = decision.allowed == Verdict::Deny;
    Ok(if denied { ExitCode::from(ProblemCode::PolicyDenied.exit()) } else { ExitCode::SUCCESS })
}

fn show(action: &Action, decision: &Decision, out: &mut dyn Write) -> std::io::Result<()> {
    let Decision { allowed, rule, help } = decision;
    writeln!(out, "{allowed}  {action}")?;
    writeln!(out, "  rule  {} ({}, {})", rule.text, rule.location(), rule.layer)?;
    match help {
        Some(help) => writeln!(out, "  help  {help}"),
        None => Ok(()),
    }
}
