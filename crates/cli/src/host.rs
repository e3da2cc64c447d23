//! Which command needs what, and how the parts are put together.

use std::process::ExitCode;
use std::sync::Arc;

use ::policy::Effective;
use egress::Egress;
use gateway::{Gateway, GatewayConfig, Script, Scripted};
use jail::Spawner;
use protocol::Code;
use sandbox::JailBackend;
use session::{Parts, Roster, Sessions, Timing};
use store::{DataDir, SystemClock};

use crate::args::{Arguments, Command};
use crate::config::Config;
use crate::failure::Failure;
use crate::{agent, agents, demo, doctor, exec, policy, run, serve, sessions};

/// Carries out what was typed.
pub(crate) fn dispatch(arguments: Arguments) -> Result<ExitCode, Failure> {
    if let Command::Agent { name, arguments } = &arguments.command {
        return agent::live(name, arguments);
    }
    let json = arguments.json;
    let config = Config::read(arguments.data_dir);
    if let Command::Exec(command) = arguments.command {
        let ready = config.and_then(|config| Ok((config, Spawner::fork()?)));
        let (config, spawner) = ready.map_err(|failure| failure.or_exit(exec::VIV_FAILED))?;
        return exec::carry_out(command, &config, spawner, json);
    }
    let config = config?;
    match arguments.command {
        Command::Agent { .. } | Command::Exec(_) => Ok(ExitCode::SUCCESS),
        Command::Sessions(command) => {
            let spawner = Spawner::fork()?;
            on_runtime(sessions::carry_out(command, config, spawner, json))
        }
        Command::Agents(command) => agents::carry_out(command, &config, json),
        Command::Policy(command) => carry_out_policy(command, &config, json),
        Command::Doctor => doctor::carry_out(&config, Spawner::fork()?, json),
        Command::Demo => {
            let spawner = Spawner::fork()?;
            on_runtime(demo::carry_out(config, spawner, json))
        }
        Command::Run(run) => {
            let spawner = Spawner::fork()?;
            on_runtime(run::carry_out(run, config, spawner, json))
        }
        Command::Serve(serve) => {
            let spawner = Spawner::fork()?;
            on_runtime(serve::carry_out(serve, config, spawner, json))
        }
    }
}

fn carry_out_policy(command: policy::PolicyCommand, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let setting = policy::Setting::of(config, json);
    Ok(policy::run(command, &setting, &mut anstream::stdout(), &mut anstream::stderr())?)
}

/// Runs one command's future; what still blocks at its end is not waited for.
pub(crate) fn on_runtime<T>(work: impl Future<Output = Result<T, Failure>>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(|error| Failure::of(Code::Internal, &error))?;
    let outcome = runtime.block_on(work);
    runtime.shutdown_background();
    outcome
}

/// Opens the data directory.
pub(crate) fn data_dir(config: &Config) -> Result<DataDir, Failure> {
    Ok(DataDir::open(&config.data_dir)?)
}

/// Every session of the data directory, ready to be run in this process.
pub(crate) async fn open_sessions(
    config: &Config,
    policy: Arc<Effective>,
    spawner: Spawner,
) -> Result<Sessions, Failure> {
    let program = std::env::current_exe().map_err(|error| Failure::of(Code::Internal, &error))?;
    let sessions = Sessions::open(Parts {
        directory: data_dir(config)?,
        clock: Arc::new(SystemClock),
        roster: Roster::default().with(&::agents::MockAgent, program).with_installed(config.data_dir.clone()),
        backend: Arc::new(JailBackend::new(Arc::new(spawner))?),
        gateway: Gateway::new(GatewayConfig::default()),
        egress: Egress::default(),
        upstream: Arc::new(scripted(config)?),
        limits: gateway::Limits::default(),
        policy,
        timing: Timing::default(),
    })?;
    // What a host that was killed left behind is put in order by whoever comes next.
    sessions.recover().await?;
    Ok(sessions)
}

fn scripted(config: &Config) -> Result<Scripted, Failure> {
    let invalid = |error: &gateway::ScriptError| {
        Failure::of(Code::ConfigInvalid, error).help("see docs/scripted-model.md for the language of scripts")
    };
    match &config.file.model.script {
        None => Scripted::demo().map_err(|error| invalid(&error)),
        Some(path) => {
            let text = std::fs::read_to_string(path).map_err(|error| {
                Failure::new(Code::ConfigInvalid, format!("cannot read the script `{}`", path.display()))
                    .because(&error)
            })?;
            Script::parse(&text).map(Scripted::new).map_err(|error| invalid(&error))
        }
    }
}
