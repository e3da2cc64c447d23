//! `viv mcp`: the MCP server for agents on this host, and its registration with them.

mod client_file;
mod install;
mod json_text;

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, Subcommand};
use jail::Spawner;
use mcp::{McpHost, McpSettings};
use protocol::ProblemCode;
use session::SessionOptions;

use self::install::InstallArguments;
use crate::backend::SandboxArguments;
use crate::config::Config;
use crate::exec::{default_workspace, parse_workspace};
use crate::failure::Failure;
use crate::host;
use crate::policy::{PolicyContext, choose};

#[derive(Debug, Subcommand)]
pub(crate) enum McpCommand {
    /// Serve MCP on stdin and stdout. Agents start this command
    #[command(
        after_help = "Examples:\n  claude mcp add sandboxed_code -- viv mcp serve\n  viv mcp serve --workspace . --policy strict"
    )]
    Serve(ServeArguments),
    /// Register the server in the configuration of an agent or editor
    #[command(
        after_help = "Examples:\n  viv mcp install claude --scope project\n  viv mcp install codex --print\n  viv mcp install cursor --undo"
    )]
    Install(InstallArguments),
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    sandbox: SandboxArguments,
    /// Directory to work on: DIR[:overlay|bind|ro] [default: the current directory; an empty one in the home directory]
    #[arg(long, value_name = "DIR[:MODE]")]
    workspace: Option<String>,
    /// Policy file or preset (default: see `viv policy explain`)
    #[arg(long, value_name = "FILE|PRESET")]
    policy: Option<String>,
    /// Narrow the policy: KEY=VALUE, e.g. proc.memory=512MiB
    #[arg(long, value_name = "KEY=VALUE")]
    narrow: Vec<String>,
}

/// Runs `viv mcp …`.
pub(crate) fn carry_out(command: McpCommand, config: Config, json: bool) -> Result<ExitCode, Failure> {
    match command {
        McpCommand::Serve(arguments) => {
            let (spawner, backend) = (Spawner::fork()?, arguments.sandbox.backend);
            host::on_runtime(serve(arguments, config.with_backend(backend), spawner, json))
        }
        McpCommand::Install(arguments) => install::carry_out(&arguments, json),
    }
}

async fn serve(
    mut arguments: ServeArguments,
    config: Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let stop = host::stop_requested();
    let (workspace, mode) = match &arguments.workspace {
        Some(given) => parse_workspace(given)?,
        None => (default_workspace(&config), None),
    };
    arguments.narrow.extend(mode.map(|mode| format!("fs.workspace={}", mode.as_str())));
    let policy = policy(&arguments, &config, workspace.as_ref(), json)?;
    let sessions = host::open_sessions(&config, policy.clone(), spawner).await?;
    let options = SessionOptions { policy: Some(policy), ..host::options(&config) };
    let mcp_host = McpHost::new(McpSettings { sessions: sessions.clone(), options, workspace });
    let served = Box::pin(mcp::serve_stdio(mcp_host, stop)).await;
    sessions.close_all().await;
    served.map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    Ok(ExitCode::SUCCESS)
}

fn policy(
    arguments: &ServeArguments,
    config: &Config,
    workspace: Option<&PathBuf>,
    json: bool,
) -> Result<Arc<policy::EffectivePolicy>, Failure> {
    let context = PolicyContext::of(config, json).in_project(workspace.map(PathBuf::as_path));
    Ok(Arc::new(choose(&context, arguments.policy.as_deref(), &arguments.narrow)?))
}
