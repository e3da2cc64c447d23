//! `viv policy test FILE|PRESET ACTION …`: test whether a policy allows an action.

use std::io::Write;
use std::path::PathBuf;
use std::process::ExitCode;

use ::policy::{Action, Decision, Verdict};
use protocol::ProblemCode;
use serde_json::json;

use crate::network_arguments::NetworkArguments;

use super::{PolicyCommandError, PolicyContext, load, print_json};

/// Arguments of `test`.
#[derive(Debug, clap::Args)]
pub(crate) struct TestArguments {
    /// Policy file or preset
    policy: String,
    #[command(flatten)]
    network: NetworkArguments,
    #[command(subcommand)]
    question: TestQuestion,
}

/// The action to test.
#[derive(Debug, clap::Subcommand)]
enum TestQuestion {
    /// Test a connection to a host
    Net {
        /// HOST:PORT; the port defaults to 443
        endpoint: String,
    },
    /// Test a raw tunnel to a host, which the proxy does not inspect
    Raw {
        /// HOST:PORT; the port defaults to 443
        endpoint: String,
    },
    /// Test an HTTP request; the proxy sees method and path of plain HTTP and of intercepted TLS
    Http {
        /// HTTP method
        method: String,
        /// URL: http[s]://HOST[:PORT]/PATH
        url: String,
    },
    /// Test reading a path in the sandbox; relative paths are in the workspace
    Read {
        /// Path in the sandbox
        path: PathBuf,
    },
    /// Test creating, changing or deleting a path in the sandbox
    Write {
        /// Path in the sandbox
        path: PathBuf,
    },
    /// Test a command of the agent's shell tool
    Exec {
        /// Command and arguments
        #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true)]
        command: Vec<String>,
    },
    /// Test a tool call
    Tool {
        /// Name
        name: String,
        /// Argument
        #[arg(default_value = "", allow_hyphen_values = true)]
        argument: String,
    },
    /// Test a model call
    Model {
        /// Name
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

/// Prints the decision and its rule.
pub(super) fn run(
    args: TestArguments,
    setting: &PolicyContext,
    out: &mut dyn Write,
) -> Result<ExitCode, PolicyCommandError> {
    let action = args.question.action()?;
    let setting = &setting.clone().with_network(&args.network);
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
