//! `viv task FILE`: run the commands or prompts of a task file in a sandbox and check its expectations.
//!
//! At the end the sandbox is destroyed and the journal closed, also after a failure. Failures have the codes of
//! docs/errors.md; common ones are `sandbox_create_error`, `proxy_bind_error`, `upstream_error`, `runtime_error` and
//! `artifact_read_error`.

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
use crate::network_arguments::NetworkArguments;
use crate::policy::{PolicyContext, choose, choose_for_task, load};
use crate::served_sessions::ServedSessions;
use crate::session_id::new_session_id;
use crate::signals::{StopSignal, StopSignals};

use document::{BackendWord, TaskFile};
use report::TaskReport;

pub(crate) use served::task_runner;

/// Runs `viv task`.
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
    let setup = TaskSetup::from_file(&file, &folder, &config, json)?;
    let sessions = host::open_sessions_in(&config, setup.policy.clone(), setup.backend(&config, spawner)?).await?;
    let directory = host::data_dir(&config)?;
    let served = ServedSessions::open(sessions, &directory);
    let sessions = &served.sessions;
    let mut report = TaskReport::new(&file, json);
    let outcome = if file.prompts.is_empty() {
        commands::carry_out(new_session_id()?, &file, &setup, sessions, &mut report, signals.received()).await
    } else {
        prompts::carry_out(new_session_id()?, &file, &setup, sessions, &mut report, signals.received()).await
    };
    served.close().await;
    let outcome = report.save(&file, &directory, outcome);
    report.print(&outcome)?;
    match outcome {
        Ok(TaskOutcome::Done) => Ok(ExitCode::SUCCESS),
        Ok(TaskOutcome::Stopped(stop)) => Ok(stop.exit_code()),
        Err(failure) => Err(failure),
    }
}

/// End of a task that did not fail.
enum TaskOutcome {
    Done,
    /// Stopped by a signal or by another process.
    Stopped(StopSignal),
}

/// Everything that a task needs to open its session.
struct TaskSetup {
    request: CreateSession,
    options: SessionOptions,
    policy: Arc<EffectivePolicy>,
    backend: BackendWord,
    /// Configured sandbox settings with the image of the task.
    sandbox: SandboxSection,
    gateway: std::net::SocketAddr,
}

impl TaskSetup {
    fn from_file(file: &TaskFile, folder: &Path, config: &Config, json: bool) -> Result<Self, Failure> {
        let agent = file.agent.as_deref().map(AgentSpec::parse).transpose()?;
        if let Some(agent) = &agent {
            agents::install_on_first_use(config, agent)?;
        }
        let named = file.sandbox.policy.as_deref().map(|name| policy_name(folder, name));
        let workspace = file.workspace.as_ref().map(|path| folder.join(path));
        let setting =
            PolicyContext::of(config, json).in_project(workspace.as_deref()).with_network(&NetworkArguments::default());
        let policy = Arc::new(match named {
            // The task file may come from anybody, so its policy is not a person's choice.
            Some(name) if !file.policy_is_chosen => choose_for_task(&setting, &name)?,
            named => choose(&setting, named.as_deref(), &[])?,
        });
        Self::with_policy(file, folder, config, agent, policy)
    }

    /// Prepares a task of the server's API: it installs no agents and accepts no relative paths.
    fn from_api(file: &TaskFile, config: &Config, policy: Arc<EffectivePolicy>) -> Result<Self, Failure> {
        if let Some(relative) = file.workspace.as_ref().filter(|path| path.is_relative()) {
            let what = format!("workspace `{}` is not an absolute path", relative.display());
            return Err(Failure::new(ProblemCode::InvalidRequest, what).help("viv task task.yaml"));
        }
        let agent = file.agent.as_deref().map(AgentSpec::parse).transpose()?;
        let policy = match &file.workspace {
            Some(workspace) => {
                load::narrowed_by_project(&policy, &PolicyContext::of(config, true).in_project(Some(workspace)))?
            }
            None => policy,
        };
        Self::with_policy(file, Path::new("/"), config, agent, policy)
    }

    fn with_policy(
        file: &TaskFile,
        folder: &Path,
        config: &Config,
        agent: Option<AgentSpec>,
        policy: Arc<EffectivePolicy>,
    ) -> Result<Self, Failure> {
        let workspace = file.workspace.as_ref().map(|path| {
            let path = folder.join(path);
            path.canonicalize().map_err(|error| {
                Failure::new(ProblemCode::InvalidRequest, format!("cannot open the workspace `{}`", path.display()))
                    .because(&error)
            })
        });
        // `--env-file` overrides the task's upstream.
        let upstream =
            file.upstream.clone().filter(|_| config.env_upstream.as_ref().is_none_or(|env| env.name != "env-file"));
        let directory = workspace.transpose()?.map(|path| path.to_string_lossy().into_owned());
        let found = config.env_upstream.as_ref().filter(|_| upstream.is_none());
        let model = found.and_then(|upstream| upstream.section.model.clone());
        let request = CreateSession {
            agent: agent.as_ref().map(|spec| spec.agent.id().to_owned()).unwrap_or_default(),
            agent_version: agent.and_then(|spec| spec.version),
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
        // `--backend` overrides the task's backend.
        match config.backend.or(self.backend.confined()) {
            Some(name) => Ok(backend::named(name, config, &self.sandbox, &Arc::new(spawner))?),
            None => Ok(Arc::new(UnconfinedBackend::new(config.data_dir.join("unconfined")).with_gateway(self.gateway))),
        }
    }
}

/// Returns the path of a policy file beside the task file, or else the name of a preset.
fn policy_name(folder: &Path, name: &str) -> String {
    let beside = folder.join(name);
    if beside.is_file() { beside.to_string_lossy().into_owned() } else { name.to_owned() }
}
