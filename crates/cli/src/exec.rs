//! `viv exec -- CMD…`: run one command in a sandbox and return its exit code.
//!
//! Exit code 125 means that viv itself failed, 126 that the command is not executable, 127 that it was not found.
//! A session is recorded only if the command uses the network or changes the workspace. The changes are kept for review.

mod input;
mod report;

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::policy::{EffectivePolicy, WorkspaceMode};
use base::EscapeFilter;
use jail::Spawner;
use protocol::{ProblemCode, SessionEndReason};
use sandbox::{ExecResult, SandboxError, StandardStreams};
use session::{ChangesAtEnd, CommandSession, HostVariables, OnDemandSettings, SessionCommand, SessionError};

use crate::args::ExecArguments;
use crate::config::{self, Config, host_variable};
use crate::failure::Failure;
use crate::output::{self, message};
use crate::policy::{PolicyContext, choose};
use crate::session_id::new_session_id;
use crate::signals::{StopSignal, StopSignals};
use crate::terminal::RawTerminal;
use crate::{backend, egress_settings};

/// Exit code when viv itself failed before the command ran.
pub(crate) const VIV_FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
/// Time to wait for a sandbox that is being made when viv is told to stop.
const CREATE_GRACE: Duration = Duration::from_secs(5);
/// Characters of the command that become the title of its session.
const TITLE_LENGTH: usize = 80;

/// Runs `viv exec` on a single thread: the spawner requires it until the sandbox is made.
pub(crate) fn carry_out(
    arguments: ExecArguments,
    config: &Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error(ProblemCode::Internal, &error).exit(VIV_FAILED))?;
    let outcome = runtime.block_on(run(arguments, config, spawner, json));
    // A thread may still block on our own stdin; it ends with the process.
    runtime.shutdown_background();
    outcome.map_err(|failure| failure.or_exit(VIV_FAILED))
}

async fn run(mut arguments: ExecArguments, config: &Config, spawner: Spawner, json: bool) -> Result<ExitCode, Failure> {
    let mut signals = StopSignals::listen()?;
    check_output(arguments.tty, json)?;
    let (workspace, mode) = match &arguments.workspace {
        Some(given) => parse_workspace(given)?,
        None if arguments.empty => (None, None),
        None => (default_workspace(config), None),
    };
    if let (Some(workspace), Some(_)) = (&workspace, &arguments.workspace) {
        arguments.limits.check_home(workspace).await?;
    }
    arguments.narrow.extend(arguments.limits.narrowing());
    arguments.narrow.extend(mode.map(|mode| format!("fs.workspace={}", mode.as_str())));
    let context = PolicyContext::of(config, json).in_project(workspace.as_deref()).with_network(&arguments.network);
    let policy = Arc::new(choose(&context, arguments.policy.as_deref(), &arguments.narrow)?);
    let env = parse_env(&arguments.env)?;
    check_dependencies(arguments.deps.as_deref())?;
    let settings = settings(&arguments, config, spawner, workspace, &policy)?;
    let session = match open(settings, &mut signals).await? {
        Ok(session) => session,
        Err(signal) => return Ok(signal.exit_code()),
    };
    let (id, journal) = (session.id().clone(), session.journal().clone());
    let terminal = arguments.tty.then(RawTerminal::enter).transpose()?;
    let command = command(&arguments, env, &policy, terminal.as_ref());
    let outcome = tokio::select! {
        result = attach(&session, command, terminal.as_ref(), json) => Ok(result),
        signal = signals.received() => Err(signal),
    };
    drop(terminal);
    let reason = if outcome.is_ok() { SessionEndReason::Completed } else { SessionEndReason::Terminated };
    let changes = if arguments.discard { ChangesAtEnd::Discard } else { ChangesAtEnd::Keep };
    session.end_with(reason, None, changes).await?;
    let result = match outcome {
        Ok(result) => result.map_err(not_started)?,
        Err(signal) => return Ok(signal.exit_code()),
    };
    let denied = report::denied_connections(&*journal)?;
    if json {
        let changed = report::workspace_changes(&*journal)?;
        output::print_json(&report::document(
            &arguments.command,
            &result,
            &denied,
            changed.map(|changed| (&id, changed)),
        ))?;
    } else {
        report::print_notes(&result, &kill_limits(&arguments, &policy));
        report::print_denials(&denied, &id, config)?;
        report::print_changes(report::workspace_changes(&*journal)?.as_ref(), &id, config)?;
    }
    Ok(ExitCode::from(report::exit_number(&result)))
}

fn settings(
    arguments: &ExecArguments,
    config: &Config,
    spawner: Spawner,
    workspace: Option<PathBuf>,
    policy: &Arc<EffectivePolicy>,
) -> Result<OnDemandSettings, Failure> {
    Ok(OnDemandSettings {
        id: new_session_id()?,
        title: arguments.command.join(" ").chars().take(TITLE_LENGTH).collect(),
        workspace,
        dependencies: arguments.deps.clone(),
        policy: Arc::clone(policy),
        backend: backend::choose(config, &Arc::new(spawner))?,
        egress: egress_settings::egress(config)?,
        variables: HostVariables::new(host_variable),
        data_dir: config.data_dir.clone(),
        budget: config.file.limits.budget(),
    })
}

fn kill_limits(arguments: &ExecArguments, policy: &EffectivePolicy) -> report::KillLimits {
    let limits = policy.limits();
    report::KillLimits {
        memory_bytes: limits.memory_bytes,
        output_bytes: limits.output_bytes,
        timeout: arguments.timeout.map_or(limits.timeout, |timeout| timeout.min(limits.timeout)),
        idle_timeout: arguments.idle_timeout,
        by_policy: arguments.timeout.is_none_or(|timeout| timeout > limits.timeout),
    }
}

fn command(
    arguments: &ExecArguments,
    env: BTreeMap<String, String>,
    policy: &EffectivePolicy,
    terminal: Option<&RawTerminal>,
) -> SessionCommand {
    let limits = policy.limits();
    SessionCommand {
        command: arguments.command.clone(),
        env,
        timeout: Some(arguments.timeout.map_or(limits.timeout, |timeout| timeout.min(limits.timeout))),
        idle_timeout: arguments.idle_timeout,
        output_limit: usize::try_from(limits.output_bytes).unwrap_or(usize::MAX),
        terminal: terminal.map(|terminal| *terminal.window().borrow()),
        ..SessionCommand::default()
    }
}

fn check_output(terminal: bool, json: bool) -> Result<(), Failure> {
    if !(terminal && json) {
        return Ok(());
    }
    let what = "`--tty` and `--json` cannot be combined: `--json` collects the output instead of showing it";
    Err(Failure::new(ProblemCode::InvalidRequest, what).help("viv --json exec -- ls"))
}

/// Fails if the directory of `--deps` cannot be used.
fn check_dependencies(directory: Option<&Path>) -> Result<(), Failure> {
    let Some(directory) = directory else { return Ok(()) };
    let failure = |why: &str| {
        let what = format!("cannot use the directory `{}` of `--deps`: {why}", directory.display());
        Failure::new(ProblemCode::InvalidRequest, what).help("viv exec --deps . -- ls /deps")
    };
    match directory.metadata() {
        Ok(metadata) if metadata.is_dir() => Ok(()),
        Ok(_) => Err(failure("it is not a directory")),
        Err(error) => Err(failure(&error.to_string())),
    }
}

/// Opens the session; returns the signal if viv was told to stop before the sandbox existed.
async fn open(
    settings: OnDemandSettings,
    signals: &mut StopSignals,
) -> Result<Result<CommandSession, StopSignal>, Failure> {
    let mut opening = Box::pin(CommandSession::on_demand(settings));
    let signal = tokio::select! {
        opened = &mut opening => return Ok(Ok(opened?)),
        signal = signals.received() => signal,
    };
    // A container that is half made is removed best when it is complete. An engine that hangs is not waited for.
    if let Ok(Ok(session)) = tokio::time::timeout(CREATE_GRACE, opening).await {
        session.end(SessionEndReason::Terminated, None).await?;
    }
    Ok(Err(signal))
}

fn not_started(error: SessionError) -> Failure {
    let SessionError::Sandbox(error) = error else { return error.into() };
    let (exit, help) = match error {
        SandboxError::NotFound(_) => (NOT_FOUND, "viv exec -- ls /usr/bin"),
        SandboxError::NotExecutable(_) => (NOT_EXECUTABLE, "viv exec -- ls -l /usr/bin"),
        _ => (VIV_FAILED, "viv doctor"),
    };
    Failure::from_error(ProblemCode::RuntimeError, &error).exit(exit).help(help)
}

/// Returns the current directory. Returns `None`, which means an empty workspace, for directories that hold too much to
/// show: the root, the home directory or a directory above it, and the data directory.
pub(crate) fn default_workspace(config: &Config) -> Option<PathBuf> {
    let current = std::env::current_dir().and_then(|path| path.canonicalize()).ok()?;
    let data_dir = config.data_dir.canonicalize().ok();
    let is_reserved = current.parent().is_none() || data_dir.is_some_and(|data_dir| current.starts_with(data_dir));
    let home = config::home().and_then(|home| home.canonicalize().ok());
    if home.is_some_and(|home| home.starts_with(&current)) && !is_reserved {
        message!("viv: the command works in an empty directory, because this one contains your home directory");
        return None;
    }
    Some(current).filter(|_| !is_reserved)
}

/// Parses `DIR[:overlay|bind|ro]` into the directory, without links, and the mode.
pub(crate) fn parse_workspace(given: &str) -> Result<(Option<PathBuf>, Option<WorkspaceMode>), Failure> {
    let (directory, mode) = match given.rsplit_once(':') {
        Some((directory, "overlay")) => (directory, Some(WorkspaceMode::Overlay)),
        Some((directory, "bind")) => (directory, Some(WorkspaceMode::Bind)),
        Some((directory, "ro")) => (directory, Some(WorkspaceMode::Readonly)),
        _ => (given, None),
    };
    let directory = PathBuf::from(directory).canonicalize().map_err(|error| {
        Failure::new(ProblemCode::InvalidRequest, format!("cannot open the workspace `{directory}`"))
            .because(&error)
            .help("viv exec --workspace .:overlay -- ls")
    })?;
    Ok((Some(directory), mode))
}

/// Parses the `NAME=VALUE` pairs of `--env`.
fn parse_env(pairs: &[String]) -> Result<BTreeMap<String, String>, Failure> {
    let parse = |pair: &String| {
        let (name, value) = pair.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
            Failure::new(ProblemCode::InvalidRequest, format!("`--env {pair}` is not NAME=VALUE"))
                .help("viv exec --env LANG=C -- env")
        })?;
        Ok((name.to_owned(), value.to_owned()))
    };
    pairs.iter().map(parse).collect()
}

/// Runs the command with our own three streams; with `json`, its output is collected for the report instead.
async fn attach(
    session: &CommandSession,
    command: SessionCommand,
    terminal: Option<&RawTerminal>,
    json: bool,
) -> Result<ExecResult, SessionError> {
    let input = input::open();
    if json {
        return session.run_with_input(command, input, &mut |_, _| {}).await;
    }
    let filter = if terminal.is_some() { EscapeFilter::for_screens } else { EscapeFilter::default };
    let (output, errors) = output::command_sinks(filter);
    let window = terminal.map(RawTerminal::window);
    session.attach(command, StandardStreams { input, output, errors, window }).await
}
