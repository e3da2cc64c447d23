//! `viv exec -- CMD…`: one command in a sandbox, with its own exit code.
//!
//! 125 means that viv itself failed, 126 that the command cannot be executed, 127 that it is not there.

mod input;
mod record;
mod terminal;
mod way_out;

use std::collections::BTreeMap;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::policy::{EffectivePolicy, WorkspaceMode};
use base::DEPENDENCIES;
use jail::Spawner;
use protocol::ProblemCode;
use sandbox::{
    ExecResult, ExecSpec, OutputFilter, OutputSink, ProcessExit, Sandbox, SandboxBackend, SandboxError, SandboxSpec,
    StandardStreams,
};
use serde_json::json;

use self::record::{Facts, Record, Told};
use self::terminal::RawTerminal;
use self::way_out::{Way, WayOut};
use crate::args::ExecArguments;
use crate::backend;
use crate::config::{Config, host_variable};
use crate::failure::Failure;
use crate::name::new_session_id;
use crate::outlet::Outlet;
use crate::policy::{Setting, choose};
use crate::signals::{Signals, Stop};

/// viv itself failed before the command ran.
pub(crate) const VIV_FAILED: u8 = 125;
const NOT_EXECUTABLE: u8 = 126;
const NOT_FOUND: u8 = 127;
const TIMED_OUT: u8 = 124;
/// How long a sandbox that nobody wants any more may take until it is made.
const PATIENCE: Duration = Duration::from_secs(5);

/// Carries out `viv exec`.
pub(crate) fn carry_out(
    arguments: ExecArguments,
    config: &Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::of(ProblemCode::Internal, &error).exit(VIV_FAILED))?;
    let outcome = runtime.block_on(run(arguments, config, spawner, json));
    // A read of our own stdin may still block, and is not waited for; everything else that is left goes with the
    // process, at once.
    std::mem::forget(runtime);
    outcome.map_err(|failure| failure.or_exit(VIV_FAILED))
}

async fn run(mut arguments: ExecArguments, config: &Config, spawner: Spawner, json: bool) -> Result<ExitCode, Failure> {
    let mut signals = Signals::listen()?;
    let (workspace, mode) = workspace(arguments.workspace.as_deref(), &config.data_dir)?;
    arguments.narrow.extend(mode.map(|mode| format!("fs.workspace={}", mode.as_str())));
    let setting = Setting::of(config, json).in_project(workspace.as_deref());
    let policy = Arc::new(choose(&setting, arguments.policy.as_deref(), &arguments.narrow)?);
    // It is needed to the end, and a thousand small things that nobody has to take apart then.
    std::mem::forget(Arc::clone(&policy));
    let way = Way::of(config, &policy)?;
    let shown = workspace.clone();
    let spec = SandboxSpec {
        id: format!("exec-{}", std::process::id()),
        workspace,
        mounts: arguments.deps.iter().map(|deps| (deps.clone(), DEPENDENCIES.into())).collect(),
        files: way.files(),
        policy: Arc::clone(&policy),
    };
    check_output(arguments.tty, json)?;
    let limits = policy.limits();
    let env = environment(&arguments, &way, &policy)?;
    let backend = backend::choose(config, &Arc::new(spawner))?;
    let sandbox = match make(&*backend, spec, &mut signals).await? {
        Ok(sandbox) => sandbox,
        Err(signal) => return Ok(signal.exit_code()),
    };
    let record =
        Arc::new(Record::new(config.data_dir.clone(), facts(&arguments, shown, backend.name(), &*sandbox, &policy)?));
    let way_out = WayOut::open(&way, &*sandbox, &policy, &record)?;
    let terminal = arguments.tty.then(RawTerminal::enter).transpose()?;
    let exec = ExecSpec {
        command: arguments.command.clone(),
        env,
        timeout: Some(arguments.timeout.map_or(limits.timeout, |timeout| timeout.min(limits.timeout))),
        idle_timeout: arguments.idle_timeout,
        output_limit: json.then(|| usize::try_from(limits.output_bytes).unwrap_or(usize::MAX)).or(Some(0)),
        terminal: terminal.as_ref().map(|terminal| *terminal.window().borrow()),
        ..ExecSpec::default()
    };
    let outcome = tokio::select! {
        result = stream(&*sandbox, exec, terminal.as_ref(), json) => Ok(result),
        signal = signals.received() => Err(signal),
    };
    drop(terminal);
    sandbox.destroy().await?;
    WayOut::close(way_out).await;
    let ended = outcome.as_ref().ok().and_then(|result| result.as_ref().ok());
    let told = record.end(ended.map_or(-1, |result| i32::from(exit_number(result))), ended.map_or(0, wall_micros))?;
    let result = match outcome {
        Ok(result) => result.map_err(|error| not_started(&error))?,
        Err(signal) => return Ok(signal.exit_code()),
    };
    if json {
        let denied = told.iter().flat_map(|told| &told.denied);
        println!("{}", report(&arguments.command, &result, &denied.map(record::as_json).collect::<Vec<_>>()));
    } else {
        tell(&result, told.as_ref(), limits.memory_bytes);
    }
    Ok(exit_code(&result))
}

fn check_output(terminal: bool, json: bool) -> Result<(), Failure> {
    if !(terminal && json) {
        return Ok(());
    }
    let what = "`--tty` shows output, and `--json` keeps it: not both";
    Err(Failure::new(ProblemCode::InvalidRequest, what).help("viv --json exec -- CMD"))
}

/// The sandbox, or who told us to stop before it was there.
async fn make(
    backend: &dyn SandboxBackend,
    spec: SandboxSpec,
    signals: &mut Signals,
) -> Result<Result<Box<dyn Sandbox>, Stop>, SandboxError> {
    let mut making = backend.create(spec);
    let signal = tokio::select! {
        made = &mut making => return made.map(Ok),
        signal = signals.received() => signal,
    };
    // What an engine has half made is taken down best when it is whole; one that hangs is not waited for.
    if let Ok(Ok(sandbox)) = tokio::time::timeout(PATIENCE, making).await {
        sandbox.destroy().await?;
    }
    Ok(Err(signal))
}

/// What the record of the command begins with, if there will be one.
fn facts(
    arguments: &ExecArguments,
    workspace: Option<PathBuf>,
    backend: &str,
    sandbox: &dyn Sandbox,
    policy: &Arc<EffectivePolicy>,
) -> Result<Facts, Failure> {
    Ok(Facts {
        session: new_session_id()?,
        command: arguments.command.clone(),
        workspace,
        sandbox: sandbox.id().to_owned(),
        backend: backend.to_owned(),
        keys: sandbox.effective(),
        policy: Arc::clone(policy),
    })
}

/// What a person should know beside what the command said itself.
fn tell(result: &ExecResult, told: Option<&Told>, memory_bytes: u64) {
    if result.exit.out_of_memory {
        anstream::eprintln!(
            "viv: the command was killed: it needed more than its {memory_bytes} bytes of memory (proc.memory)"
        );
    }
    if let Some(sentence) = told.and_then(record::sentence) {
        anstream::eprintln!("viv: {sentence}");
    }
}

fn not_started(error: &SandboxError) -> Failure {
    let (exit, help) = match error {
        SandboxError::NotFound(_) => (NOT_FOUND, "viv exec -- ls /usr/bin"),
        SandboxError::NotExecutable(_) => (NOT_EXECUTABLE, "viv exec -- ls -l /usr/bin"),
        _ => (VIV_FAILED, "viv doctor"),
    };
    Failure::of(ProblemCode::RuntimeError, error).exit(exit).help(help)
}

/// `DIR[:overlay|bind|ro]`: the directory, and the mode that was asked for.
fn workspace(given: Option<&str>, data: &Path) -> Result<(Option<PathBuf>, Option<WorkspaceMode>), Failure> {
    let Some(given) = given else { return Ok((None, None)) };
    let (directory, mode) = match given.rsplit_once(':') {
        Some((directory, "overlay")) => (directory, Some(WorkspaceMode::Overlay)),
        Some((directory, "bind")) => (directory, Some(WorkspaceMode::Bind)),
        Some((directory, "ro")) => (directory, Some(WorkspaceMode::Readonly)),
        _ => (given, None),
    };
    let directory = PathBuf::from(directory).canonicalize().map_err(|error| {
        Failure::new(ProblemCode::InvalidRequest, format!("workspace `{directory}` cannot be opened"))
            .because(&error)
            .help("viv exec --workspace .:overlay -- ls")
    })?;
    if directory == Path::new("/") {
        let what = "the root of the host cannot be a workspace: a sandbox would be shown everything there is";
        return Err(Failure::new(ProblemCode::InvalidRequest, what).help("viv exec --workspace . -- ls"));
    }
    if data.canonicalize().is_ok_and(|data| directory.starts_with(data)) {
        let what = "the data directory cannot be a workspace: tokens, records and accounts of this host are kept there";
        return Err(Failure::new(ProblemCode::DirectoryNotAllowed, what).help("viv exec --workspace ~/work -- ls"));
    }
    Ok((Some(directory), mode))
}

fn environment(
    arguments: &ExecArguments,
    way: &Way,
    policy: &EffectivePolicy,
) -> Result<BTreeMap<String, String>, Failure> {
    let mut env = sandbox::default_environment();
    way.tell(&mut env);
    sandbox::pass_variables(&mut env, &policy.env_pass(), host_variable);
    if arguments.tty {
        // What nearly every terminal of today is, and every program knows.
        env.entry("TERM".to_owned()).or_insert_with(|| "xterm-256color".to_owned());
    }
    for pair in &arguments.env {
        let (name, value) = pair.split_once('=').filter(|(name, _)| !name.is_empty()).ok_or_else(|| {
            Failure::new(ProblemCode::InvalidRequest, format!("`{pair}` is not NAME=VALUE"))
                .help("viv exec --env LANG=C -- env")
        })?;
        env.insert(name.to_owned(), value.to_owned());
    }
    Ok(env)
}

/// Runs the command with our own three streams; with `json` its output is kept for the report instead.
async fn stream(
    sandbox: &dyn Sandbox,
    spec: ExecSpec,
    terminal: Option<&RawTerminal>,
    json: bool,
) -> Result<ExecResult, SandboxError> {
    let input = input::open();
    if json {
        return sandbox::run_with_input(sandbox, spec, input, &mut |_, _| {}).await;
    }
    let outlet = || if terminal.is_some() { Outlet::for_screens() } else { Outlet::default() };
    let to_person = std::io::stdout().is_terminal().then(outlet);
    let output = OutputSink { to: Box::new(tokio::io::stdout()), filter: to_person.map(filter) };
    let to_person = std::io::stderr().is_terminal().then(outlet);
    let errors = OutputSink { to: Box::new(tokio::io::stderr()), filter: to_person.map(filter) };
    let window = terminal.map(RawTerminal::window);
    sandbox::attach(sandbox, spec, StandardStreams { input, output, errors, window }).await
}

/// What goes to a terminal may not command it.
fn filter(mut outlet: Outlet) -> OutputFilter {
    Box::new(move |bytes: &[u8]| outlet.pass(bytes))
}

fn exit_code(result: &ExecResult) -> ExitCode {
    ExitCode::from(exit_number(result))
}

fn exit_number(result: &ExecResult) -> u8 {
    if result.timed_out {
        return TIMED_OUT;
    }
    let ProcessExit { code, signal, .. } = result.exit;
    let number = code.or_else(|| signal.map(|signal| 128 + signal)).unwrap_or(i32::from(VIV_FAILED));
    u8::try_from(number & 0xff).unwrap_or(VIV_FAILED)
}

fn wall_micros(result: &ExecResult) -> u64 {
    u64::try_from(result.wall.as_micros()).unwrap_or(u64::MAX)
}

fn report(command: &[String], result: &ExecResult, denials: &[serde_json::Value]) -> serde_json::Value {
    json!({
        "command": command,
        "exit_code": result.exit.code,
        "signal": result.exit.signal,
        "timed_out": result.timed_out,
        "out_of_memory": result.exit.out_of_memory,
        "wall_micros": wall_micros(result),
        "cpu_micros": result.exit.cpu_micros,
        "peak_rss_bytes": result.exit.peak_rss_bytes,
        "truncated": result.truncated,
        "denials": denials,
        "stdout": String::from_utf8_lossy(&result.stdout),
        "stderr": String::from_utf8_lossy(&result.stderr),
    })
}
