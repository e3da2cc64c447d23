//! Command sessions: they run commands in a sandbox one after another, without an agent dialogue.
//!
//! Sandbox, gateway, budget and journal are the same as for other sessions. The caller gets a command's output; the
//! journal gets its exit code and duration.
//!
//! Not here: task files and their exit codes (`cli`).

mod environment;
mod stop_listener;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::{
    EventBody, SessionEndReason, SessionEnded, SessionId, SessionRegistered, TaskCommandFinished, TerminatedBy,
};
use sandbox::{ExecResult, OutputListener, Sandbox, SandboxError, SandboxProcess, SavedChanges};
use store::{Journal, SessionPatch};

use crate::SessionError;
use crate::lifecycle::{
    ActorExit, Listeners, Recorder, SandboxCredentials, SessionHandle, SessionHost, SessionPlan, summarize_changes,
};
use crate::skills::{FetchedSkills, remove_fetched_skills};
use crate::storage::run_blocking;

use environment::CommandEnvironment;
use stop_listener::StopListener;

/// The exit code of a command that timed out, as in `timeout(1)`.
const TIMEOUT_EXIT_CODE: i32 = 124;

/// A command to run in a session.
#[derive(Debug, Clone, Default)]
pub struct SessionCommand {
    /// Program and arguments. The agent's name as program runs the agent's own program.
    pub command: Vec<String>,
    /// Additional environment variables.
    pub env: BTreeMap<String, String>,
    /// Wall time after which the command and its children are killed.
    pub timeout: Option<Duration>,
    /// Bytes kept of stdout, and of stderr.
    pub output_limit: usize,
}

/// Why an artifact could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// A program inside the sandbox could not read or write the file.
    #[error("cannot read artifact `{path}`: {why}")]
    Unreadable {
        /// The path inside the sandbox.
        path: String,
        /// The error output.
        why: String,
    },
    /// The file is larger than the limit.
    #[error("artifact `{path}` is larger than the limit of {limit} bytes")]
    TooLarge {
        /// The path inside the sandbox.
        path: String,
        /// The limit in bytes.
        limit: usize,
    },
    /// The sandbox does not run.
    #[error("cannot access artifact `{path}` in the sandbox")]
    Sandbox {
        /// The path inside the sandbox.
        path: String,
        /// The cause.
        #[source]
        source: SandboxError,
    },
}

/// A session that runs commands in a sandbox and records them.
pub struct CommandSession {
    host: Arc<SessionHost>,
    handle: Arc<SessionHandle>,
    plan: SessionPlan,
    recorder: Recorder,
    sandbox: Box<dyn Sandbox>,
    listeners: Listeners,
    environment: CommandEnvironment,
    stop_listener: StopListener,
    /// Processes that run beside the commands. The lock makes the session `Sync` and is never contended.
    background: Mutex<Vec<SandboxProcess>>,
}

impl CommandSession {
    pub(crate) async fn open(host: &Arc<SessionHost>, plan: SessionPlan) -> Result<Self, SessionError> {
        plan.check_workspace(host)?;
        let credentials = SandboxCredentials::issue(host, &plan)?;
        let mut environment = CommandEnvironment::of(host, &plan, &credentials.token)?;
        environment.files.extend(credentials.files());
        let (handle, commands) = SessionHandle::new(plan.id.clone());
        host.register(&handle)?;
        let created = Self::create(host, &handle, &plan, &mut environment, &credentials).await;
        let (sandbox, listeners, recorder) = created.inspect_err(|_| {
            handle.set_exit(ActorExit::NotCreated);
            host.unregister(&handle);
        })?;
        listeners.add_variables(&mut environment.env);
        host.config.variables.pass(&plan.policy, &mut environment.env);
        let stop_listener = StopListener::watch(&host.tasks, &handle, commands);
        let host = host.clone();
        Ok(Self {
            host,
            handle,
            plan,
            recorder,
            sandbox,
            listeners,
            environment,
            stop_listener,
            background: Mutex::default(),
        })
    }

    async fn create(
        host: &Arc<SessionHost>,
        handle: &Arc<SessionHandle>,
        plan: &SessionPlan,
        environment: &mut CommandEnvironment,
        credentials: &SandboxCredentials,
    ) -> Result<(Box<dyn Sandbox>, Listeners, Recorder), SessionError> {
        let skills = FetchedSkills::fetch(host, plan).await?;
        environment.mounts.extend(skills.mounts());
        let spec = plan.sandbox_spec(std::mem::take(&mut environment.mounts), std::mem::take(&mut environment.files));
        let sandbox = host.config.backend.create(spec).await?;
        let registered = async {
            skills.install(&*sandbox, environment.skill_root).await?;
            Self::register(host, handle, plan, &*sandbox, credentials)
        };
        match registered.await {
            Ok((listeners, recorder)) => Ok((sandbox, listeners, recorder)),
            Err(error) => {
                sandbox.destroy().await?;
                Err(error)
            }
        }
    }

    /// Registers the session, records its start and opens its listeners.
    fn register(
        host: &Arc<SessionHost>,
        handle: &Arc<SessionHandle>,
        plan: &SessionPlan,
        sandbox: &dyn Sandbox,
        credentials: &SandboxCredentials,
    ) -> Result<(Listeners, Recorder), SessionError> {
        let (journal, _) = host.store.register(&plan.index_row(host.store.owner.id().clone()))?;
        // The handle is new, so its journal is not set yet.
        let _ = handle.journal.set(journal.clone());
        let recorder = Recorder::new(journal);
        recorder.daemon(EventBody::PolicyEffective(plan.effective_policy(host, sandbox)))?;
        recorder.daemon(EventBody::SessionRegistered(SessionRegistered {
            session_id: plan.id.clone(),
            sandbox_id: sandbox.id().to_owned(),
            task_name: plan.options.task_name.clone(),
        }))?;
        let listeners = Listeners::open(host, plan, &recorder, sandbox, credentials)?;
        recorder.daemon(EventBody::SessionStarted(plan.started_event()))?;
        Ok((listeners, recorder))
    }

    /// Returns the id of the session.
    pub fn id(&self) -> &SessionId {
        &self.plan.id
    }

    /// Returns the journal of the session.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        self.recorder.journal()
    }

    /// Starts a command that runs until the session ends. Its output is dropped.
    pub async fn start_background(&mut self, task: SessionCommand) -> Result<(), SessionError> {
        let mut process = self.sandbox.exec(self.environment.exec(task)).await?;
        for output in [&mut process.stdout, &mut process.stderr] {
            let mut output = std::mem::replace(output, Box::new(tokio::io::empty()));
            // Ends with the sandbox, whose end `end` waits for.
            self.host.tasks.spawn(async move { drop(tokio::io::copy(&mut output, &mut tokio::io::sink()).await) });
        }
        self.background.get_mut().unwrap_or_else(PoisonError::into_inner).push(process);
        Ok(())
    }

    /// Runs a command to its end and records the result. Fails when the session is ended from outside.
    pub async fn run(&self, task: SessionCommand, listener: OutputListener<'_>) -> Result<ExecResult, SessionError> {
        let command = task.command.clone();
        let running = sandbox::run(&*self.sandbox, self.environment.exec(task), listener);
        let result = tokio::select! {
            result = running => result?,
            () = self.stop_listener.requested() => return Err(SessionError::Ended(self.plan.id.clone())),
        };
        let wall_micros = u64::try_from(result.wall.as_micros()).unwrap_or(u64::MAX);
        let exit_code = exit_code(&result);
        let finished = TaskCommandFinished { command, exit_code, wall_micros };
        self.recorder.daemon(EventBody::TaskCommandFinished(finished))?;
        Ok(result)
    }

    /// Returns whether another client ended the session, so that no more commands can run.
    pub fn was_stopped(&self) -> bool {
        self.stop_listener.was_requested()
    }

    /// Writes a file in the sandbox.
    pub async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), ArtifactError> {
        environment::write(&*self.sandbox, path, content).await
    }

    /// Reads a file from the sandbox.
    pub async fn read(&self, path: &str) -> Result<Vec<u8>, ArtifactError> {
        environment::read(&*self.sandbox, path).await
    }

    /// Ends the session. When this returns, all processes are dead, all calls settled and the journal closed.
    pub async fn end(self, reason: SessionEndReason, message: Option<String>) -> Result<(), SessionError> {
        let layers = self.sandbox.layers();
        self.sandbox.destroy().await?;
        self.listeners.close().await;
        if let Some(layers) = layers {
            let into = self.host.store.changes(&self.plan.id);
            let saved = move || SavedChanges::save_final(&layers, &into).map_err(SessionError::Changes);
            let changes = run_blocking(move || saved().map(|saved| summarize_changes(&saved))).await?;
            if !(changes.added.is_empty() && changes.modified.is_empty() && changes.deleted.is_empty()) {
                self.recorder.daemon(EventBody::WorkspaceChanged(changes))?;
            }
        }
        let (terminated_by, exit_code, stderr) = (TerminatedBy::Daemon, None, None);
        let ended = SessionEnded { reason, terminated_by, message, exit_code, stderr };
        self.recorder.daemon(EventBody::SessionEnded(ended))?;
        self.recorder.sync().await?;
        let (event_count, outcome) = (Some(self.recorder.last()), Some(reason.into()));
        let patch = SessionPatch { event_count, outcome, ..SessionPatch::default() };
        self.host.store.update(&self.plan.id, patch).await?;
        remove_fetched_skills(&self.host.store, &self.plan.id).await;
        self.host.unregister(&self.handle);
        self.stop_listener.confirm();
        Ok(())
    }
}

/// Returns the exit code of a command as a shell reports it.
fn exit_code(result: &ExecResult) -> i32 {
    if result.timed_out {
        return TIMEOUT_EXIT_CODE;
    }
    let exit = result.exit;
    exit.code.or_else(|| exit.signal.map(|signal| 128 + signal)).unwrap_or(-1)
}
