//! The arguments of all commands. Each command's own file says how it runs.

use std::path::PathBuf;

use crate::agents::AgentsCommand;
use crate::api::ApiArguments;
use crate::backend::SandboxArguments;
use crate::config_command::ConfigCommand;
use crate::credentials::CredentialsArguments;
use crate::gateway::GatewayCommand;
use crate::host_names;
use crate::init::InitArguments;
use crate::keys::KeysCommand;
use crate::mcp::McpCommand;
use crate::network_arguments::NetworkArguments;
use crate::perms::PermsCommand;
use crate::policy::PolicyCommand;
use crate::replay::ReplayArguments;
use crate::run_limits::LimitArguments;
use crate::sessions::SessionsCommand;
use crate::setup::SetupArguments;
use crate::tokens::TokensCommand;
use crate::top::TopArguments;
use crate::ui::UiArguments;
use crate::usage::UsageArguments;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Run coding agents in a sandbox, meter their model calls and record everything they do.
#[derive(Debug, Parser)]
#[command(name = "viv", version = env!("VIV_VERSION"), max_term_width = 100, propagate_version = true)]
#[command(after_help = "Start with `viv demo`: a tour with a built-in model. It needs no key and no network.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options of every command.
#[derive(Debug, Args)]
pub(crate) struct CommonArguments {
    /// Data directory [default: VIV_DATA_DIR, else `viv` in the XDG data home]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Print JSON on stdout, and errors as one line of JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Show a tour: a mock agent and a scripted model in a real sandbox
    Demo,
    /// Run an agent on one prompt and stream its output
    Run(RunArguments),
    /// Run a task file: commands or prompts in a sandbox, with expectations and artifacts
    Task(TaskArguments),
    /// Run one command in a sandbox, without an agent
    Exec(ExecArguments),
    /// Replay a recorded session offline, with the real agent and the recorded model answers
    Replay(ReplayArguments),
    /// Serve the session API
    Serve(ServeArguments),
    /// Print a link to the Inspector, the web UI of the server
    Ui(UiArguments),
    /// Let an agent on this host run code in a sandbox: an MCP server with the tool `run`
    #[command(subcommand)]
    Mcp(McpCommand),
    /// List, inspect, apply and stop sessions
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// Show the running sessions in a table that updates itself
    Top(TopArguments),
    /// Show the events of a session in readable form
    Logs(LogsArguments),
    /// List and answer permission requests and questions of agents
    #[command(subcommand)]
    Perms(PermsCommand),
    /// Call the session API of the server on this data directory
    Api(ApiArguments),
    /// Create, list and revoke access tokens of `viv serve`
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// List, install and remove agents
    #[command(subcommand)]
    Agents(AgentsCommand),
    /// Check, explain, test, compare and trust policy files
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// Show the cost of model calls by session, account, user, agent, model or day
    Usage(UsageArguments),
    /// List model prices and their source
    Models,
    /// List the model credentials of this host, and check them with `--check`
    Credentials(CredentialsArguments),
    /// Create, list and revoke keys of `viv gateway serve`
    #[command(subcommand)]
    Keys(KeysCommand),
    /// Run the model gateway without a sandbox
    #[command(subcommand)]
    Gateway(GatewayCommand),
    /// Configure a real model: find keys, choose one, test it
    Setup(SetupArguments),
    /// Write a commented policy for this project
    Init(InitArguments),
    /// Print completions for a shell, e.g. viv completions bash
    Completions {
        /// Shell
        shell: clap_complete::Shell,
    },
    /// Write manual pages into a directory
    Man {
        /// Directory, created if missing
        directory: PathBuf,
    },
    /// Show and change viv.toml
    #[command(subcommand)]
    Config(ConfigCommand),
    /// Check which features work on this machine
    Doctor(DoctorArguments),
    /// Run a built-in agent inside the sandbox
    #[command(name = "__agent", hide = true)]
    Agent {
        /// Name of the agent
        name: String,
        /// Arguments of the agent
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// Agent to run: NAME or NAME@VERSION; installed on first use. With --continue: the session, by default @last
    pub(crate) agent: String,
    /// Prompt for the agent; `-` reads stdin. Without a prompt, the agent shows its own terminal UI
    pub(crate) prompt: Option<String>,
    /// Show the agent's terminal UI, and start it with the prompt
    #[arg(long, requires = "prompt")]
    pub(crate) tui: bool,
    /// Continue a session, with its agent's conversation and its changes, instead of starting a new one
    #[arg(long = "continue", conflicts_with_all = ["workspace", "model", "upstream", "mode", "skills", "mcp", "tui"])]
    pub(crate) continues: bool,
    /// Directory the agent works on; its changes stay in an overlay
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,
    /// Model to use
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// Configured upstream to use for this session
    #[arg(long, value_name = "NAME", conflicts_with = "env_file")]
    pub(crate) upstream: Option<String>,
    /// File with BASE_URL, API_KEY and MODEL_NAME of a model server; replaces the configured upstream
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
    /// Permission mode; unsupported modes are rejected
    #[arg(long, value_name = "MODE", value_parser = ["default", "plan", "acceptEdits", "bypass"])]
    pub(crate) mode: Option<String>,
    /// Policy file or preset (default: see `viv policy explain`)
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) policy: Option<String>,
    /// Narrow the policy: KEY=VALUE, e.g. proc.memory=512MiB
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) narrow: Vec<String>,
    #[command(flatten)]
    pub(crate) network: NetworkArguments,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    /// Source of skills: a directory, OWNER/NAME on GitHub, or the URL of a git repository
    #[arg(long = "skills", value_name = "SOURCE")]
    pub(crate) skills: Vec<String>,
    /// JSON file with MCP servers for this session, by name
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp: Option<PathBuf>,
    /// Answer to permission requests [default: ask on a terminal, else deny]
    #[arg(long, value_enum)]
    pub(crate) perms: Option<Permissions>,
    /// What to do with the changes when the run ends [default: keep, after a terminal UI: ask]
    #[arg(long, value_enum, value_name = "WHAT")]
    pub(crate) on_finish: Option<OnFinish>,
}

/// The action on the changes of a session when the run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFinish {
    /// Keep the changes for `viv sessions diff` and `viv sessions apply`
    Keep,
    /// Apply all changes to the workspace, if the turn was completed
    Apply,
    /// Delete the changes
    Discard,
    /// Show the changes and ask on the terminal
    Ask,
}

/// Answer to the permission requests of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Permissions {
    /// Ask on the terminal
    Ask,
    /// Allow every request
    Allow,
    /// Deny every request
    Deny,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Run every check again, instead of showing the results since the last boot
    #[arg(long)]
    pub(crate) fresh: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArguments {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// Directory to work in, shown at its own path: DIR[:overlay|bind|ro] [default: the current directory, or an empty directory in the home directory]
    #[arg(long, value_name = "DIR[:MODE]")]
    pub(crate) workspace: Option<String>,
    /// Work in an empty directory instead of the current one
    #[arg(long, conflicts_with = "workspace")]
    pub(crate) empty: bool,
    /// Delete the changes of the workspace when the command ends, instead of keeping them for review
    #[arg(long)]
    pub(crate) discard: bool,
    /// Directory to show at /deps, read-only
    #[arg(long, value_name = "DIR")]
    pub(crate) deps: Option<PathBuf>,
    /// Policy file or preset (default: see `viv policy explain`)
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) policy: Option<String>,
    /// Narrow the policy: KEY=VALUE, e.g. proc.memory=512MiB
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) narrow: Vec<String>,
    #[command(flatten)]
    pub(crate) network: NetworkArguments,
    #[command(flatten)]
    pub(crate) limits: LimitArguments,
    /// Kill the command after this time, e.g. 30s, 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) timeout: Option<std::time::Duration>,
    /// Kill the command after this time without output
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) idle_timeout: Option<std::time::Duration>,
    /// Run the command in a pseudo-terminal, shown on this terminal
    #[arg(long, short)]
    pub(crate) tty: bool,
    /// Set an environment variable in the sandbox: NAME=VALUE
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// Command and arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TaskArguments {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// Task file
    pub(crate) file: PathBuf,
    /// File with BASE_URL, API_KEY and MODEL_NAME of a model server; replaces the task's upstream
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
    /// Override a value of the task: KEY=VALUE, e.g. sandbox.backend=unconfined
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// Address to listen on
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2468")]
    pub(crate) listen: std::net::SocketAddr,
    /// Policy file or preset for every session (default: balanced)
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) policy: Option<String>,
    /// Accept calls without a token; only on a loopback address
    #[arg(long)]
    pub(crate) no_auth: bool,
    /// Extra Host header value to accept; repeatable
    #[arg(long, value_name = "NAME", value_parser = host_names::host)]
    pub(crate) allow_host: Vec<String>,
    /// Origin whose pages may call the API, e.g. https://ui.example.com; repeatable
    #[arg(long, value_name = "ORIGIN", value_parser = host_names::origin)]
    pub(crate) allow_origin: Vec<String>,
    /// Default event set for clients that do not specify one: the types of the published API contract, or all types
    #[arg(long, value_name = "WHICH", default_value = "contract", value_parser = ["all", "contract"])]
    pub(crate) events: String,
    /// Directory in which TCP callers without the admin scope may have workspaces; repeatable
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace_root: Vec<PathBuf>,
    /// Most time for running turns to end when the server stops (default: sessions.drain of viv.toml, or 60s)
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    pub(crate) drain: Option<std::time::Duration>,
    /// Serve TLS with this certificate: a PEM file, which may contain the chain
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// Private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// Session: id, name, prefix of an id, or @last
    pub(crate) session: String,
    /// Wait for new events until the session ends
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Show only events of this type, or of a family such as item or egress; repeatable
    #[arg(long, value_name = "TYPE")]
    pub(crate) kind: Vec<String>,
}

/// Parses a lifetime like [`parse_duration`]; fails for zero.
pub(crate) fn parse_lifetime(text: &str) -> Result<std::time::Duration, String> {
    parse_duration(text).and_then(|time| {
        if time.is_zero() { Err(format!("invalid lifetime `{text}`: it must be more than zero")) } else { Ok(time) }
    })
}

/// Parses a duration such as `90s`, `10m`, `2h`, `7d` or `500ms`; without a unit it is in seconds.
pub(crate) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let amount: u64 = digits.parse().map_err(|_| format!("invalid duration `{text}`; write e.g. `30s` or `10m`"))?;
    let millis = match &text[digits.len()..] {
        "ms" => Some(amount),
        "s" | "" => amount.checked_mul(1000),
        "m" => amount.checked_mul(60_000),
        "h" => amount.checked_mul(3_600_000),
        "d" => amount.checked_mul(86_400_000),
        unit => return Err(format!("invalid unit `{unit}` in `{text}`; use ms, s, m, h or d")),
    };
    millis.map(std::time::Duration::from_millis).ok_or_else(|| format!("duration `{text}` is too large"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn clap_accepts_the_definition() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn a_lifetime_of_zero_is_rejected() {
        assert_eq!(parse_lifetime("1s"), parse_duration("1s"));
        assert!(parse_lifetime("0s").is_err());
    }

    #[test]
    fn durations_are_parsed_with_their_unit() {
        assert_eq!(parse_duration("90s").unwrap().as_millis(), 90_000);
        assert_eq!(parse_duration("500ms").unwrap().as_millis(), 500);
        for bad in ["", "m", "10y", "-1s", "1.5s", "99999999999999999999s", "99999999999999999h"] {
            assert!(parse_duration(bad).is_err(), "`{bad}` was accepted");
        }
    }
}
