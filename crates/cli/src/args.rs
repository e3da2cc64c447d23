//! What can be typed. Each command's own file says what it means.

use std::path::PathBuf;

use crate::agents::AgentsCommand;
use crate::api::ApiArguments;
use crate::backend::SandboxArguments;
use crate::credentials::CredentialsArguments;
use crate::gateway::GatewayCommand;
use crate::host_names;
use crate::keys::KeysCommand;
use crate::perms::PermsCommand;
use crate::policy::PolicyCommand;
use crate::replay::ReplayArguments;
use crate::sessions::SessionsCommand;
use crate::tokens::TokensCommand;
use crate::usage::UsageArguments;
use clap::{Args, Parser, Subcommand, ValueEnum};

/// Coding agents under glass: run them in a sandbox, meter them, see everything they did.
#[derive(Debug, Parser)]
#[command(name = "viv", version, max_term_width = 100, propagate_version = true)]
#[command(after_help = "Start with `viv demo`: a full tour with a built-in model, no key and no network.")]
pub(crate) struct Arguments {
    #[command(flatten)]
    pub(crate) common: CommonArguments,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// What can be typed with every command.
#[derive(Debug, Args)]
pub(crate) struct CommonArguments {
    /// Where everything is kept [default: VIV_DATA_DIR, else `viv` in the XDG data home]
    #[arg(long, global = true, value_name = "DIR")]
    pub(crate) data_dir: Option<PathBuf>,
    /// Print JSON on stdout, and errors as one line of JSON on stderr
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// A full tour: a mock agent, a scripted model, a real sandbox
    Demo,
    /// One prompt to an agent in a sandbox, shown as it happens
    Run(RunArguments),
    /// Carry out a task: commands or prompts in a sandbox, expectations, artifacts
    Task(TaskArguments),
    /// One command in a sandbox, with no agent
    Exec(ExecArguments),
    /// A recorded session once more, offline: the real agent, and the model as it was recorded
    Replay(ReplayArguments),
    /// Serve the session API
    Serve(ServeArguments),
    /// See and end sessions
    #[command(subcommand)]
    Sessions(SessionsCommand),
    /// What happened in a session, as a person reads it
    Logs(LogsArguments),
    /// What agents ask for, and the answers
    #[command(subcommand)]
    Perms(PermsCommand),
    /// One call of the session API of the server on this data directory
    Api(ApiArguments),
    /// Make, list and revoke tokens of `viv serve`
    #[command(subcommand)]
    Tokens(TokensCommand),
    /// Install agents, and see which there are
    #[command(subcommand)]
    Agents(AgentsCommand),
    /// Check, explain, test, compare and trust policy files
    #[command(subcommand)]
    Policy(PolicyCommand),
    /// What model calls cost, by session, account, user, agent, model or day
    Usage(UsageArguments),
    /// What models cost, and where the prices come from
    Models,
    /// Which credentials this host has for models, and whether they are good
    Credentials(CredentialsArguments),
    /// Make, list and revoke keys of `viv gateway serve`
    #[command(subcommand)]
    Keys(KeysCommand),
    /// The model gateway alone, without a sandbox
    #[command(subcommand)]
    Gateway(GatewayCommand),
    /// What works on this machine, and why the rest does not
    Doctor(DoctorArguments),
    /// Lives as an agent inside the sandbox
    #[command(name = "__agent", hide = true)]
    Agent {
        /// Which agent
        name: String,
        /// Its own arguments
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
}

#[derive(Debug, Args)]
pub(crate) struct RunArguments {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// Which agent: NAME or NAME@VERSION; installed on first use
    pub(crate) agent: String,
    /// What to tell it; `-` reads stdin
    pub(crate) prompt: String,
    /// The directory it works in; its changes stay in a layer above
    #[arg(long, value_name = "DIR", default_value = ".")]
    pub(crate) workspace: PathBuf,
    /// Which model
    #[arg(long)]
    pub(crate) model: Option<String>,
    /// One of the configured upstreams, for this session
    #[arg(long, value_name = "NAME", conflicts_with = "env_file")]
    pub(crate) upstream: Option<String>,
    /// A file with BASE_URL, API_KEY and MODEL_NAME of the model's server, in place of the configured one
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
    /// Its permission mode; one that the agent cannot keep is refused
    #[arg(long, value_name = "MODE", value_parser = ["default", "plan", "acceptEdits", "bypass"])]
    pub(crate) mode: Option<String>,
    /// A policy file or a preset; what `viv policy explain` says when not given
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) policy: Option<String>,
    /// Allow less: KEY=VALUE, e.g. proc.memory=512MiB
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) narrow: Vec<String>,
    /// Skills for this session: a directory, OWNER/NAME at GitHub, or the address of a git repository
    #[arg(long = "skills", value_name = "SOURCE")]
    pub(crate) skills: Vec<String>,
    /// A JSON file with MCP servers for this session, by name
    #[arg(long, value_name = "FILE")]
    pub(crate) mcp: Option<PathBuf>,
    /// What to answer when it asks for permission
    #[arg(long, value_enum)]
    pub(crate) perms: Option<Permissions>,
    /// What becomes of its changes when it is done
    #[arg(long, value_enum, value_name = "WHAT", default_value = "keep")]
    pub(crate) on_finish: OnFinish,
}

/// What becomes of a session's changes when its turn is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum OnFinish {
    /// Keep them for `viv sessions diff` and `apply`
    Keep,
    /// Bring them to the workspace, if the turn was completed: all of them or none
    Apply,
    /// Forget them
    Discard,
    /// Show them, and ask on the terminal
    Ask,
}

/// What to answer when an agent asks for permission.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Permissions {
    /// Ask on the terminal
    Ask,
    /// Allow each one
    Allow,
    /// Refuse each one
    Deny,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArguments {
    /// Try everything again, also what was found since this machine was started
    #[arg(long)]
    pub(crate) fresh: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ExecArguments {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// The directory at /workspace: DIR[:overlay|bind|ro]; an empty one when not given
    #[arg(long, value_name = "DIR[:MODE]")]
    pub(crate) workspace: Option<String>,
    /// A directory to show at /deps, read-only
    #[arg(long, value_name = "DIR")]
    pub(crate) deps: Option<PathBuf>,
    /// A policy file or a preset; what `viv policy explain` says when not given
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) policy: Option<String>,
    /// Allow less: KEY=VALUE, e.g. proc.memory=512MiB
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) narrow: Vec<String>,
    /// End the command after this long, e.g. 30s, 10m
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) timeout: Option<std::time::Duration>,
    /// End the command when it has said nothing for this long
    #[arg(long, value_name = "TIME", value_parser = parse_duration)]
    pub(crate) idle_timeout: Option<std::time::Duration>,
    /// Give the command a terminal of its own, shown on this one
    #[arg(long, short)]
    pub(crate) tty: bool,
    /// Set a variable inside: NAME=VALUE
    #[arg(long = "env", short = 'e', value_name = "NAME=VALUE")]
    pub(crate) env: Vec<String>,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD")]
    pub(crate) command: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct TaskArguments {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// The task's file
    pub(crate) file: PathBuf,
    /// A file with BASE_URL, API_KEY and MODEL_NAME of the model's server, in place of the task's own
    #[arg(long, value_name = "FILE")]
    pub(crate) env_file: Option<PathBuf>,
    /// Put another value into the task: KEY=VALUE, e.g. sandbox.backend=unconfined
    #[arg(long, value_name = "KEY=VALUE")]
    pub(crate) set: Vec<String>,
}

#[derive(Debug, Args)]
pub(crate) struct ServeArguments {
    #[command(flatten)]
    pub(crate) sandbox: SandboxArguments,
    /// Address of the API
    #[arg(long, value_name = "ADDRESS", default_value = "127.0.0.1:2468")]
    pub(crate) listen: std::net::SocketAddr,
    /// A policy file or a preset for every session; the preset `balanced` when not given
    #[arg(long, value_name = "FILE|PRESET")]
    pub(crate) policy: Option<String>,
    /// Take calls without a token; only on a loopback address
    #[arg(long)]
    pub(crate) no_auth: bool,
    /// A name this server answers to, beside those of the loopback; may be given more than once
    #[arg(long, value_name = "NAME", value_parser = host_names::host)]
    pub(crate) allow_host: Vec<String>,
    /// An origin whose pages may call it, e.g. https://ui.example.com; may be given more than once
    #[arg(long, value_name = "ORIGIN", value_parser = host_names::origin)]
    pub(crate) allow_origin: Vec<String>,
    /// Which types of events clients are served that do not say: all, or those of the contract alone
    #[arg(long, value_name = "WHICH", default_value = "all", value_parser = ["all", "contract"])]
    pub(crate) events: String,
    /// A directory in which callers over TCP that are not admin may have workspaces; may be given more than once
    #[arg(long, value_name = "DIR")]
    pub(crate) workspace_root: Vec<PathBuf>,
    /// Serve over TLS with this certificate, a PEM file; those it was signed with may follow in the file
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,
    /// The private key of the certificate, a PEM file
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,
}

#[derive(Debug, Args)]
pub(crate) struct LogsArguments {
    /// Id, name, the beginning of an id, or @last
    pub(crate) session: String,
    /// Wait for more until the session ends
    #[arg(long, short)]
    pub(crate) follow: bool,
    /// Only events of this type, or of a family such as item or egress; may be given more than once
    #[arg(long, value_name = "TYPE")]
    pub(crate) kind: Vec<String>,
}

/// How long something is good for: not for no time at all.
pub(crate) fn parse_lifetime(text: &str) -> Result<std::time::Duration, String> {
    parse_duration(text)
        .and_then(|time| if time.is_zero() { Err("it would be over at once".to_owned()) } else { Ok(time) })
}

/// `90s`, `10m`, `2h`, `7d`, `500ms`.
pub(crate) fn parse_duration(text: &str) -> Result<std::time::Duration, String> {
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let amount: u64 = digits.parse().map_err(|_| format!("`{text}` is no time; write e.g. `30s` or `10m`"))?;
    let millis = match &text[digits.len()..] {
        "ms" => Some(amount),
        "s" | "" => amount.checked_mul(1000),
        "m" => amount.checked_mul(60_000),
        "h" => amount.checked_mul(3_600_000),
        "d" => amount.checked_mul(86_400_000),
        unit => return Err(format!("`{unit}` is no unit of time; there are ms, s, m, h and d")),
    };
    millis.map(std::time::Duration::from_millis).ok_or_else(|| format!("`{text}` is too long"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
    }

    #[test]
    fn nothing_is_made_that_is_over_at_once() {
        assert_eq!(parse_lifetime("1s"), parse_duration("1s"));
        assert!(parse_lifetime("0s").is_err());
    }

    #[test]
    fn times_are_read_with_their_unit() {
        assert_eq!(parse_duration("90s").unwrap().as_millis(), 90_000);
        assert_eq!(parse_duration("500ms").unwrap().as_millis(), 500);
        for bad in ["", "m", "10y", "-1s", "1.5s", "99999999999999999999s", "99999999999999999h"] {
            assert!(parse_duration(bad).is_err(), "`{bad}` was accepted");
        }
    }
}
