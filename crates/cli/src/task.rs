//! `viv task FILE`: what a file says is to be done in a sandbox, done and held against what it expects.
//!
//! Whatever happens, the sandbox is gone and the record closed when it ends. What went wrong has one of the codes of
//! docs/errors.md; for a task the usual ones are `sandbox_create_error`, `proxy_bind_error`, `upstream_error`,
//! `runtime_error` and `artifact_read_error`.

mod commands;
mod document;
mod failure_cause;
mod prompts;
mod report;
mod served;

use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;

use ::policy::EffectivePolicy;
use jail::Spawner;
use protocol::{CreateSession, ProblemCode};
use sandbox::{SandboxBackend, UnconfinedBackend};
use session::SessionOptions;

use crate::agents::{self, AgentSpec};
use crate::args::TaskArguments;
use crate::backend;
use crate::config::{Config, SandboxSection};
use crate::failure::Failure;
use crate::host;
use crate::policy::{PolicyContext, choose, load};
use crate::served_sessions::ServedSessions;
use crate::session_id::new_session_id;
use crate::signals::{StopSignal, StopSignals};

use document::{BackendWord, TaskFile};
use report::TaskReport;

pub(crate) use served::task_runner;

/// Carries out `viv task`.
pub(crate) async fn carry_out(
    arguments: TaskArguments,
    config: Config,
    spawner: Spawner,
    json: bool,
) -> Result<ExitCode, Failure> {
    let mut signals = StopSignals::listen()?;
    let file = document::read(&arguments.file, &arguments.set)?;
    let folder = arguments.file.parent().unwrap_or(Path::new(".")).to_owned();
    let env_file = arguments.env_file.clone().or_else(|| file.env_file.as_ref().map(|path| folder.join(path)));
    let config = config.with_env_file(env_file.as_deref())?;
    let scene = TaskSetup::set(&file, &folder, &config, json)?;
    let sessions = host::open_sessions_in(&config, scene.policy.clone(), scene.backend(&config, spawner)?).await?;
    let directory = host::data_dir(&config)?;
    let reachable = ServedSessions::open(sessions, &directory);
    let sessions = &reachable.sessions;
    let mut report = TaskReport::new(&file, json);
    let outcome = if file.prompts.is_empty() {
        commands::carry_out(new_session_id()?, &file, &scene, sessions, &mut report, signals.received()).await
    } else {
        prompts::carry_out(new_session_id()?, &file, &scene, sessions, &mut report, signals.received()).await
    };
    reachable.close().await;
    let outcome = report.keep(&file, &directory, outcome);
    report.tell(&outcome)?;
    match outcome {
        Ok(TaskOutcome::Done) => Ok(ExitCode::SUCCESS),
        Ok(TaskOutcome::Stopped(stop)) => Ok(stop.exit_code()),
        Err(failure) => Err(failure),
    }
}

/// How a task ended that did not fail.
enum TaskOutcome {
    Done,
    /// We were told to stop.
    Stopped(StopSignal),
}

/// What a task needs before its sandbox is made.
struct TaskSetup {
    request: CreateSession,
    options: SessionOptions,
    policy: Arc<EffectivePolicy>,
    backend: BackendWord,
    /// The configured sandbox, with the task's own image.
    sandbox: SandboxSection,
    gateway: std::net::SocketAddr,
}

impl TaskSetup {
    fn set(file: &TaskFile, folder: &Path, config: &Config, json: bool) -> Result<Self, Failure> {
        let wanted = file.agent.as_deref().map(AgentSpec::parse).transpose()?;
        if let Some(wanted) = &wanted {
            agents::install_on_first_use(config, wanted)?;
        }
        let named = file.sandbox.policy.as_deref().map(|name| policy_name(folder, name));
        let workspace = file.workspace.as_ref().map(|path| folder.join(path));
        let setting = PolicyContext::of(config, json).in_project(workspace.as_deref());
        let policy = Arc::new(choose(&setting, named.as_deref(), &[])?);
        Self::under(file, folder, config, wanted, policy)
    }

    /// The same for a task that was handed in to a server: agents are not installed by it, and no path is relative.
    fn served(file: &TaskFile, config: &Config, policy: Arc<EffectivePolicy>) -> Result<Self, Failure> {
        if let Some(relative) = file.workspace.as_ref().filter(|path| path.is_relative()) {
            let what = format!("workspace `{}` is not an absolute path", relative.display());
            return Err(Failure::new(ProblemCode::InvalidRequest, what).help("viv task FILE"));
        }
        let wanted = file.agent.as_deref().map(AgentSpec::parse).transpose()?;
        let policy = match &file.workspace {
            Some(workspace) => {
                load::narrowed_by_project(&policy, &PolicyContext::of(config, true).in_project(Some(workspace)))?
            }
            None => policy,
        };
        Self::under(file, Path::new("/"), config, wanted, policy)
    }

    fn under(
        file: &TaskFile,
        folder: &Path,
        config: &Config,
        wanted: Option<AgentSpec>,
        policy: Arc<EffectivePolicy>,
    ) -> Result<Self, Failure> {
        let workspace = file.workspace.as_ref().map(|path| {
            let path = folder.join(path);
            path.canonicalize().map_err(|error| {
                Failure::new(ProblemCode::InvalidRequest, format!("workspace `{}` cannot be opened", path.display()))
                    .because(&error)
            })
        });
        // An env file of the command line takes the place of what the task says.
        let upstream =
            file.upstream.clone().filter(|_| config.env_upstream.as_ref().is_none_or(|env| env.name != "env-file"));
        let directory = workspace.transpose()?.map(|path| path.to_string_lossy().into_owned());
        let found = config.env_upstream.as_ref().filter(|_| upstream.is_none());
        let model = found.and_then(|upstream| upstream.section.model.clone());
        let request = CreateSession {
            agent: wanted.as_ref().map(|wanted| wanted.agent.id().to_owned()).unwrap_or_default(),
            agent_version: wanted.and_then(|wanted| wanted.version),
            model: file.model.clone().or(model),
            upstream,
            permission_mode: file.permission_mode.clone(),
            directory,
            title: Some(file.name.clone()),
            mcp: file.mcp.clone(),
            skills: file.skills.clone(),
            ..CreateSession::default()
        };
        Ok(Self {
            request,
            options: SessionOptions {
                task_name: Some(file.name.clone()),
                policy: Some(policy.clone()),
                ..host::options(config)
            },
            policy,
            backend: file.sandbox.backend,
            sandbox: SandboxSection {
                image: file.sandbox.image.clone().or_else(|| config.file.sandbox.image.clone()),
                ..config.file.sandbox.clone()
            },
            gateway: file.gateway,
        })
    }

    fn backend(&self, config: &Config, spawner: Spawner) -> Result<Arc<dyn SandboxBackend>, Failure> {
        // What was asked for on the command line is meant for this task too.
        match config.backend.or(self.backend.walled()) {
            Some(name) => Ok(backend::named(name, config, &self.sandbox, &Arc::new(spawner))?),
            None => Ok(Arc::new(UnconfinedBackend::new(config.data_dir.join("unconfined")).with_gateway(self.gateway))),
        }
    }
}

/// A file beside the task's, or the name of a preset.
fn policy_name(folder: &Path, name: &str) -> String {
    let beside = folder.join(name);
    if beside.is_file() { beside.to_string_lossy().into_owned() } else { name.to_owned() }
}
