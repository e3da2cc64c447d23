//! Dispatch of commands, and construction of sessions, gateway and ledger from the configuration.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use ::gateway::{BodyRetention, Gateway, GatewayLimits, RedactionRules, Upstream};
use ::policy::EffectivePolicy;
use jail::Spawner;
use protocol::ProblemCode;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sandbox::SandboxBackend;
use session::{
    AgentRegistry, BillingSettings, HostVariables, SessionHostConfig, SessionLifetime, SessionOptions, SessionTimeouts,
    Sessions,
};
use store::{DataDir, Durability, SqliteLedger, SystemClock};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Arguments, Command, ExecArguments};
use crate::config::{self, Config, ContentWord, DurabilityWord};
use crate::failure::Failure;
use crate::policy::PolicyCommand;
use crate::{
    agent, agents, api, backend, config_command, credentials, demo, doctor, egress_settings, exec,
    gateway as gateway_command, init, keys, mcp, models, money, notification, output, perms, policy, replay, run,
    serve, sessions, setup, shell_files, task, tokens, top, ui, upstream, usage,
};

/// Raises the soft limit of file descriptors to the hard limit, because every session of a server needs a few. Sandboxes
/// have their own limit.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot raise the limit of file descriptors above {:?}", limit.current);
    }
}

/// Runs the command. A spawner is forked here, before the runtime starts threads.
pub(crate) fn dispatch(arguments: Arguments) -> Result<ExitCode, Failure> {
    let (json, data_dir) = (arguments.common.json, arguments.common.data_dir);
    match arguments.command {
        Command::Agent { name, arguments } => agent::run(&name, &arguments),
        Command::Exec(command) => exec_command(command, data_dir, json),
        Command::Init(arguments) => init::carry_out(&arguments, json),
        Command::Completions { shell } => shell_files::completions(shell),
        Command::Man { directory } => shell_files::man(&directory),
        Command::Config(command) => config_command::carry_out(command, data_dir, json),
        Command::Doctor(arguments) => {
            let (config, broken) = Config::read_or_defaults(data_dir)?;
            doctor::carry_out(&arguments, &config, broken.as_ref(), Spawner::fork()?, json)
        }
        command => host_command(command, Config::read(data_dir)?, json),
    }
}

/// Runs `viv exec`. The kernel sets up the sandbox while this process reads its configuration.
fn exec_command(command: ExecArguments, data_dir: Option<PathBuf>, json: bool) -> Result<ExitCode, Failure> {
    let spawner = Spawner::for_one_command().map_err(|error| Failure::from(error).exit(exec::VIV_FAILED))?;
    let config = Config::read(data_dir).map_err(|failure| failure.or_exit(exec::VIV_FAILED))?;
    let config = config.with_backend(command.sandbox.backend);
    exec::carry_out(command, &config, spawner, json)
}

fn host_command(command: Command, config: Config, json: bool) -> Result<ExitCode, Failure> {
    notification::configure(config.file.terminal.notify);
    match command {
        Command::Agent { .. }
        | Command::Exec(_)
        | Command::Init(_)
        | Command::Completions { .. }
        | Command::Man { .. }
        | Command::Config(_)
        | Command::Doctor(_) => Ok(ExitCode::SUCCESS),
        Command::Sessions(command) => {
            let spawner = Spawner::fork()?;
            on_runtime(sessions::carry_out(command, config, spawner, json))
        }
        Command::Ui(arguments) => on_runtime(ui::carry_out(arguments, config, json)),
        Command::Top(arguments) => on_runtime(top::carry_out(arguments, config)),
        Command::Logs(arguments) => on_runtime(sessions::logs(arguments, config, json)),
        Command::Perms(command) => on_runtime(perms::carry_out(command, config, json)),
        Command::Api(arguments) => on_runtime(api::carry_out(arguments, config)),
        Command::Tokens(command) => tokens::carry_out(command, &config, json),
        Command::Agents(command) => agents::carry_out(command, &config, json),
        Command::Policy(command) => carry_out_policy(command, &config, json),
        Command::Usage(arguments) => usage::carry_out(&arguments, &config, json),
        Command::Models => models::carry_out(&config, json),
        Command::Credentials(arguments) => credentials::carry_out(&arguments, &config, json),
        Command::Keys(command) => keys::carry_out(command, &config, json),
        Command::Gateway(command) => on_runtime(gateway_command::carry_out(command, config, json)),
        Command::Setup(arguments) => setup::carry_out(arguments, config, json),
        Command::Demo => {
            let spawner = Spawner::fork()?;
            on_runtime(demo::carry_out(config, spawner, json))
        }
        Command::Run(run) => {
            let (spawner, backend) = (Spawner::fork()?, run.sandbox.backend);
            on_runtime(run::carry_out(run, config.with_backend(backend), spawner, json))
        }
        Command::Replay(replay) => {
            let (spawner, backend) = (Spawner::fork()?, replay.sandbox.backend);
            on_runtime(replay::carry_out(replay, config.with_backend(backend), spawner, json))
        }
        Command::Task(task) => {
            let (spawner, backend) = (Spawner::fork()?, task.sandbox.backend);
            on_runtime(task::carry_out(task, config.with_backend(backend), spawner, json))
        }
        Command::Mcp(command) => mcp::carry_out(command, config, json),
        Command::Serve(serve) => {
            let (spawner, backend) = (Spawner::fork()?, serve.sandbox.backend);
            on_runtime(serve::carry_out(serve, config.with_backend(backend), spawner, json))
        }
    }
}

fn carry_out_policy(command: PolicyCommand, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let setting = policy::PolicyContext::of(config, json).in_project(None);
    match &command {
        PolicyCommand::Explain(policy::explain::ExplainArguments { session: Some(session), .. }) => {
            return sessions::explain(session, config, json);
        }
        PolicyCommand::Log(arguments) => return on_runtime(sessions::traffic::log(arguments, config, json)),
        PolicyCommand::Suggest(arguments) => {
            return on_runtime(sessions::traffic::suggest(&arguments.session, config, &setting));
        }
        PolicyCommand::Narrow(arguments) => return on_runtime(sessions::remote::narrow(arguments, config)),
        PolicyCommand::Grant(arguments) => return on_runtime(sessions::remote::grant(arguments, config)),
        _ => {}
    }
    if json {
        return Ok(policy::run(command, &setting, &mut output::data_writer(), &mut output::message_writer())?);
    }
    Ok(policy::run(command, &setting, &mut output::text_writer(), &mut output::message_writer())?)
}

/// Time for background work to release resources, such as the mounts of a container, when a command ends.
const SHUTDOWN_GRACE: Duration = Duration::from_millis(250);

/// Maximum number of threads for blocking work. Each keeps some memory after a burst, and the disk uses no more of them.
const BLOCKING_THREADS: usize = 64;

/// Runs a command's future on a new runtime; blocking work gets [`SHUTDOWN_GRACE`] at the end.
pub(crate) fn on_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    jail::limit_allocator_arenas();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(BLOCKING_THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(SHUTDOWN_GRACE);
    outcome
}

/// Opens the data directory.
pub(crate) fn data_dir(config: &Config) -> Result<DataDir, Failure> {
    Ok(DataDir::open(&config.data_dir)?)
}

/// Opens the sessions of the data directory for this process.
pub(crate) async fn open_sessions(
    config: &Config,
    policy: Arc<EffectivePolicy>,
    spawner: Spawner,
) -> Result<Sessions, Failure> {
    open_sessions_in(config, policy, backend::choose(config, &Arc::new(spawner))?).await
}

/// Opens the sessions with sandboxes of `backend`.
pub(crate) async fn open_sessions_in(
    config: &Config,
    policy: Arc<EffectivePolicy>,
    backend: Arc<dyn SandboxBackend>,
) -> Result<Sessions, Failure> {
    open(config, policy, backend, upstream::default_upstream(config)?).await
}

/// Opens the sessions with another upstream than the configured one.
pub(crate) async fn open_sessions_behind(
    config: &Config,
    policy: Arc<EffectivePolicy>,
    spawner: Spawner,
    upstream: Arc<dyn Upstream>,
) -> Result<Sessions, Failure> {
    open(config, policy, backend::choose(config, &Arc::new(spawner))?, upstream).await
}

async fn open(
    config: &Config,
    policy: Arc<EffectivePolicy>,
    backend: Arc<dyn SandboxBackend>,
    upstream: Arc<dyn Upstream>,
) -> Result<Sessions, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    let billing = accounts(config)?;
    let data_dir = data_dir(config)?;
    let sessions = Sessions::open(SessionHostConfig {
        gateway: billing.open_gateway(&data_dir)?,
        gateway_limits: billing.limits,
        data_dir,
        clock: Arc::new(SystemClock),
        agents: AgentRegistry::default().with_installed(config.data_dir.clone()).with(&::agents::MockAgent, program),
        backend,
        egress: egress_settings::egress(config)?,
        upstream,
        upstreams: upstream::upstream_registry(config),
        agent_defaults: upstream::agent_defaults(config),
        policy,
        project_policy: Some(policy::project(config)),
        timeouts: timing(config),
        lifetime: lifetime(config),
        budget: config.file.limits.budget(),
        variables: HostVariables::new(config::host_variable),
    })?;
    // Recover the sessions of hosts that were killed.
    sessions.recover().await?;
    Ok(sessions)
}

/// Returns how long sessions and their agents live.
fn lifetime(config: &Config) -> SessionLifetime {
    let section = &config.file.sessions;
    let positive = |time: Option<Duration>| time.filter(|time| !time.is_zero());
    SessionLifetime { idle_stop: positive(section.idle_stop), ttl: positive(section.ttl), survives_crashes: false }
}

/// Returns the timeouts of sessions.
fn timing(config: &Config) -> SessionTimeouts {
    let (default, ask) = (SessionTimeouts::default(), &config.file.ask);
    SessionTimeouts {
        permission: ask.permission_timeout.unwrap_or(default.permission),
        question: ask.question_timeout.unwrap_or(default.question),
        ..default
    }
}

/// Returns the gateway's limits for one session, including what is recorded of its calls.
pub(crate) fn limits(config: &Config) -> Result<GatewayLimits, Failure> {
    let section = &config.file.record;
    let keep = match section.content {
        ContentWord::Full => BodyRetention::Full,
        ContentWord::Redacted => BodyRetention::Redacted(redaction(config)?),
        ContentWord::None => BodyRetention::Nothing,
    };
    let limits = GatewayLimits { retention: keep, compress: section.zstd, ..GatewayLimits::default() };
    Ok(config.file.limits.budget().gateway_limits(limits))
}

/// Returns the rules that redact secrets in the bodies of model calls.
pub(crate) fn redaction(config: &Config) -> Result<RedactionRules, Failure> {
    let redaction = RedactionRules::new(&config.file.record.redact);
    redaction.map_err(|error| config.invalid_value("record.redact", &error.to_string()).because(&error.source))
}

/// Returns a gateway with the configured prices and the ledger of the data directory.
pub(crate) fn gateway(config: &Config) -> Result<Gateway, Failure> {
    Ok(accounts(config)?.open_gateway(&data_dir(config)?)?)
}

/// Returns the billing settings of the data directory.
fn accounts(config: &Config) -> Result<BillingSettings, Failure> {
    let (prices, budgets) = (money::prices(config)?, money::budgets(&config.file.budgets));
    Ok(BillingSettings { prices, budgets, durability: durability(config), limits: limits(config)? })
}

fn durability(config: &Config) -> Durability {
    match config.file.ledger.durability {
        DurabilityWord::Full => Durability::Full,
        DurabilityWord::Lease => Durability::Lease,
        DurabilityWord::Normal => Durability::Normal,
    }
}

/// Opens the ledger of the data directory and recovers the entries of hosts that died.
pub(crate) fn ledger(config: &Config) -> Result<SqliteLedger, Failure> {
    Ok(SqliteLedger::claim(&data_dir(config)?, durability(config), Arc::new(SystemClock))?.ledger)
}

/// Returns the session options of this configuration: account, user and dependencies.
pub(crate) fn options(config: &Config) -> SessionOptions {
    SessionOptions {
        account: config.file.account.clone(),
        user: config.file.user.clone(),
        dependencies: config.file.dependencies.clone(),
        ..SessionOptions::default()
    }
}

/// Returns a future that resolves on SIGINT or SIGTERM. Signals count from this call on, so that a parent may stop this
/// process as soon as it is announced.
pub(crate) fn stop_requested() -> impl Future<Output = ()> {
    let signals = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    async move {
        let [Ok(mut interrupt), Ok(mut terminate)] = signals else { return };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
