//! Which command needs what, and how the parts are put together.

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
use session::{BillingSettings, HostVariables, SessionOptions, SessionTimeouts, Sessions, Setup};
use store::{DataDir, Durability, SqliteLedger, SystemClock};
use tokio::signal::unix::{SignalKind, signal};

use crate::args::{Arguments, Command, ExecArguments};
use crate::config::{self, Config, ContentWord, DurabilityWord};
use crate::failure::Failure;
use crate::policy::PolicyCommand;
use crate::{
    agent, agents, api, backend, credentials, demo, doctor, egress_settings, exec, gateway as gateway_command, keys,
    models, money, perms, policy, replay, run, serve, sessions, task, tokens, upstream, usage,
};

/// Takes as many descriptors as this process may have: the lower limit is for programs that cannot count further, and
/// every session of a server has a few. Sandboxes have their own.
pub(crate) fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    if let Err(error) = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit }) {
        tracing::warn!(%error, "cannot have more descriptors than {:?}", limit.current);
    }
}

/// Runs the command. A spawner is forked here, before the runtime starts threads.
pub(crate) fn dispatch(arguments: Arguments) -> Result<ExitCode, Failure> {
    let (json, data_dir) = (arguments.common.json, arguments.common.data_dir);
    match arguments.command {
        Command::Agent { name, arguments } => agent::run(&name, &arguments),
        Command::Exec(command) => exec_command(command, data_dir, json),
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
    match command {
        Command::Agent { .. } | Command::Exec(_) => Ok(ExitCode::SUCCESS),
        Command::Sessions(command) => {
            let spawner = Spawner::fork()?;
            on_runtime(sessions::carry_out(command, config, spawner, json))
        }
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
        Command::Doctor(arguments) => doctor::carry_out(&arguments, &config, Spawner::fork()?, json),
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
    Ok(policy::run(command, &setting, &mut anstream::stdout(), &mut anstream::stderr())?)
}

/// How long what is left of a command may take to let go of what it holds, such as the mounts of a container.
const LETTING_GO: Duration = Duration::from_millis(250);

/// So many threads may wait for the disk at a time. Each keeps memory of its own, and a crowd that comes at once must not
/// leave more of it behind than the disk can use.
const WAITING_THREADS: usize = 64;

/// Runs one command's future; what still blocks at its end is not waited for longer than that.
pub(crate) fn on_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    jail::share_memory();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .max_blocking_threads(WAITING_THREADS)
        .enable_all()
        .build()
        .map_err(|error| Failure::from_error(ProblemCode::Internal, &error))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_timeout(LETTING_GO);
    outcome
}

/// Opens the data directory.
pub(crate) fn data_dir(config: &Config) -> Result<DataDir, Failure> {
    Ok(DataDir::open(&config.data_dir)?)
}

/// Every session of the data directory, ready to be run in this process.
pub(crate) async fn open_sessions(
    config: &Config,
    policy: Arc<EffectivePolicy>,
    spawner: Spawner,
) -> Result<Sessions, Failure> {
    open_sessions_in(config, policy, backend::choose(config, &Arc::new(spawner))?).await
}

/// The same, in sandboxes of `backend`.
pub(crate) async fn open_sessions_in(
    config: &Config,
    policy: Arc<EffectivePolicy>,
    backend: Arc<dyn SandboxBackend>,
) -> Result<Sessions, Failure> {
    open(config, policy, backend, upstream::default_upstream(config)?).await
}

/// The same, with another model than the configured one.
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
    let setup = Setup {
        data_dir: config.data_dir.clone(),
        mock_program: Some(program),
        backend,
        upstream,
        egress: egress_settings::egress(config)?,
        policy,
        accounts: accounts(config)?,
        timing: timing(config),
        project: Some(policy::project(config)),
        upstreams: upstream::upstream_registry(config),
        variables: HostVariables::new(config::host_variable),
    };
    let sessions = setup.open()?;
    // What a host that was killed left behind is put in order by whoever comes next.
    sessions.recover().await?;
    Ok(sessions)
}

/// How long a session waits for what.
fn timing(config: &Config) -> SessionTimeouts {
    let (usual, ask) = (SessionTimeouts::default(), &config.file.ask);
    SessionTimeouts {
        permission: ask.permission_timeout.unwrap_or(usual.permission),
        question: ask.question_timeout.unwrap_or(usual.question),
        ..usual
    }
}

/// What a session may use of the gateway, and what is kept of its calls.
pub(crate) fn limits(config: &Config) -> Result<GatewayLimits, Failure> {
    let section = &config.file.record;
    let keep = match section.content {
        ContentWord::Full => BodyRetention::Full,
        ContentWord::Redacted => BodyRetention::Redacted(redaction(config)?),
        ContentWord::None => BodyRetention::Nothing,
    };
    Ok(GatewayLimits { keep, compress: section.zstd, ..GatewayLimits::default() })
}

/// What is a secret in the body of a model call.
pub(crate) fn redaction(config: &Config) -> Result<RedactionRules, Failure> {
    let redaction = RedactionRules::new(&config.file.record.redact);
    redaction.map_err(|error| config.wrong("record.redact", &error.to_string()).because(&error.source))
}

/// The gateway of this process, with the prices in force and the ledger of the data directory.
pub(crate) fn gateway(config: &Config) -> Result<Gateway, Failure> {
    Ok(accounts(config)?.gateway(&data_dir(config)?)?)
}

/// How calls are counted in the data directory.
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

/// The ledger of the data directory. What hosts that died left in it is put in order.
pub(crate) fn ledger(config: &Config) -> Result<SqliteLedger, Failure> {
    Ok(SqliteLedger::claim(&data_dir(config)?, durability(config), Arc::new(SystemClock))?.ledger)
}

/// Who pays for sessions of this configuration.
pub(crate) fn options(config: &Config) -> SessionOptions {
    SessionOptions {
        account: config.file.account.clone(),
        user: config.file.user.clone(),
        dependencies: config.file.dependencies.clone(),
        ..SessionOptions::default()
    }
}

/// Comes on SIGINT or SIGTERM, from the moment this is called: whoever is told afterwards that we are there may
/// end us at once.
pub(crate) fn stop_requested() -> impl Future<Output = ()> {
    let asked = [SignalKind::interrupt(), SignalKind::terminate()].map(signal);
    async move {
        let [Ok(mut interrupt), Ok(mut terminate)] = asked else { return };
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
    }
}
