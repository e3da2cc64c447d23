//! Command sessions: they run commands in a sandbox one after another, without an agent dialogue.
//!
//! Sandbox, gateway, budget and journal are the same as for other sessions. The caller gets a command's output; the
//! journal gets its exit code and duration.
//!
//! Not here: task files and their exit codes (`cli`).

mod environment;
mod on_demand;
mod stop_listener;
mod workspace;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use policy::EffectivePolicy;
use protocol::{
    EventBody, SessionEndReason, SessionEnded, SessionId, SessionRegistered, TaskCommandFinished, TerminatedBy,
};
use sandbox::{ExecResult, OutputListener, Sandbox, SandboxError, SandboxProcess, StandardStreams, WindowSize};
use store::{Journal, SessionPatch, StorageExceeded};
use tokio::io::AsyncRead;
use tokio_util::task::TaskTracker;

use crate::SessionError;
use crate::lifecycle::{
    ActorExit, Listeners, Recorder, SandboxCredentials, SessionHandle, SessionHost, SessionPlan, git_config,
};
use crate::skills::{FetchedSkills, remove_fetched_skills};

use environment::CommandEnvironment;
use on_demand::OnDemandJournal;
use stop_listener::StopListener;
use workspace::save_final_changes;

pub use on_demand::OnDemandSettings;

/// The exit code of a command that timed out, as in `timeout(1)`.
const TIMEOUT_EXIT_CODE: i32 = 124;

/// A command to run in a session.
#[derive(Debug, Clone, Default)]
pub struct SessionCommand {
    /// Program and arguments. The agent's name as program runs the agent's own program.
    pub command: Vec<String>,
    /// The working directory inside; `/workspace` when absent.
    pub workdir: Option<String>,
    /// Additional environment variables.
    pub env: BTreeMap<String, String>,
    /// Wall time after which the command and its children are killed.
    pub timeout: Option<Duration>,
    /// Time without output after which the command and its children are killed.
    pub idle_timeout: Option<Duration>,
    /// Bytes kept of stdout, and of stderr.
    pub output_limit: usize,
    /// Size of the terminal that the command gets; without one it gets pipes.
    pub terminal: Option<WindowSize>,
    /// Why the caller runs the command, for the record.
    pub reason: Option<String>,
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
    plan: Arc<SessionPlan>,
    recorder: Recorder,
    sandbox: Box<dyn Sandbox>,
    listeners: Listeners,
    environment: CommandEnvironment,
    registration: Registration,
    tasks: TaskTracker,
    /// Processes that run beside the commands. The lock makes the session `Sync` and is never contended.
    background: Mutex<Vec<SandboxProcess>>,
}

/// The action on the changes of a workspace when a command session ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ChangesAtEnd {
    /// The changes are kept for review.
    Keep,
    /// The changes are deleted.
    Discard,
}

/// How other processes learn of a command session.
enum Registration {
    /// The session is in the session list and has a journal from its start, and other processes can stop it.
    Host { host: Arc<SessionHost>, handle: Arc<SessionHandle>, stop_listener: StopListener },
    /// The session is not recorded until a command uses the network, or has changed the workspace at its end.
    OnDemand(Arc<OnDemandJournal>),
}

impl CommandSession {
    /// Opens a session that is not recorded until a command uses the network.
    ///
    /// Until then nothing is written to the data directory. The session cannot reach a model.
    pub async fn on_demand(settings: OnDemandSettings) -> Result<Self, SessionError> {
        on_demand::open(settings).await
    }

    pub(crate) async fn open(host: &Arc<SessionHost>, plan: SessionPlan) -> Result<Self, SessionError> {
        plan.check_workspace(host.store.directory().root())?;
        let credentials = SandboxCredentials::issue(&host.config.egress, &plan)?;
        let mut environment = CommandEnvironment::of(host, &plan, &credentials.token)?;
        environment.files.extend(credentials.files());
        host.store.check_free_space()?;
        environment.files.push(git_config(&host.config.variables, &plan));
        let (handle, commands) = SessionHandle::new(plan.id.clone(), plan.options.token.clone());
        host.register(&handle)?;
        let created = Self::create(host, &handle, &plan, &mut environment, &credentials).await;
        let (sandbox, listeners, recorder) = created.inspect_err(|_| {
            handle.set_exit(ActorExit::NotCreated);
            host.unregister(&handle);
        })?;
        listeners.add_variables(&mut environment.env);
        host.config.variables.pass(&sandbox.toolchains(), &plan.policy, &mut environment.env);
        let stop_listener = StopListener::watch(&host.tasks, &handle, commands);
        let (plan, tasks) = (Arc::new(plan), host.tasks.clone());
        let registration = Registration::Host { host: host.clone(), handle, stop_listener };
        Ok(Self { plan, recorder, sandbox, listeners, environment, registration, tasks, background: Mutex::default() })
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
        let spec = plan.sandbox_spec(
            &host.config.variables,
            std::mem::take(&mut environment.mounts),
            std::mem::take(&mut environment.files),
        );
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
        let recorder = Recorder::to_file(journal);
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
            self.tasks.spawn(async move { drop(tokio::io::copy(&mut output, &mut tokio::io::sink()).await) });
        }
        self.background.get_mut().unwrap_or_else(PoisonError::into_inner).push(process);
        Ok(())
    }

    /// Runs a command to its end and records the result. Fails when the session is ended from outside.
    pub async fn run(&self, task: SessionCommand, listener: OutputListener<'_>) -> Result<ExecResult, SessionError> {
        self.run_with_input(task, Box::new(tokio::io::empty()), listener).await
    }

    /// Runs a command like [`Self::run`], with input that arrives while the command runs.
    pub async fn run_with_input(
        &self,
        task: SessionCommand,
        input: Box<dyn AsyncRead + Send + Unpin>,
        listener: OutputListener<'_>,
    ) -> Result<ExecResult, SessionError> {
        let subject = (task.command.clone(), task.reason.clone());
        let running = sandbox::run_with_input(&*self.sandbox, self.environment.exec(task), input, listener);
        self.record_end(subject, running).await
    }

    /// Runs a command like [`Self::run`], with the caller's own standard streams.
    pub async fn attach(&self, task: SessionCommand, streams: StandardStreams) -> Result<ExecResult, SessionError> {
        let subject = (task.command.clone(), task.reason.clone());
        let running = sandbox::attach(&*self.sandbox, self.environment.exec(task), streams);
        self.record_end(subject, running).await
    }

    async fn record_end(
        &self,
        (command, reason): (Vec<String>, Option<String>),
        running: impl Future<Output = Result<ExecResult, SandboxError>>,
    ) -> Result<ExecResult, SessionError> {
        let result = tokio::select! {
            result = running => result?,
            () = self.stop_requested() => return Err(SessionError::Ended(self.plan.id.clone())),
            exceeded = self.storage_reached() => {
                tracing::warn!(session = %self.plan.id, "the command ends: {exceeded}");
                return Err(exceeded.into());
            }
        };
        let wall_micros = u64::try_from(result.wall.as_micros()).unwrap_or(u64::MAX);
        let exit_code = exit_code(&result);
        let finished = TaskCommandFinished { command, exit_code, wall_micros, reason };
        self.record(EventBody::TaskCommandFinished(finished))?;
        Ok(result)
    }

    /// Records an event. In an on-demand session without a journal, the event waits until the journal is created.
    fn record(&self, body: EventBody) -> Result<(), SessionError> {
        match &self.registration {
            Registration::Host { .. } => drop(self.recorder.daemon(body)?),
            Registration::OnDemand(journal) => journal.defer(body)?,
        }
        Ok(())
    }

    /// Returns when another process ends the session; never for an on-demand session.
    pub async fn stop_requested(&self) {
        match &self.registration {
            Registration::Host { stop_listener, .. } => stop_listener.requested().await,
            Registration::OnDemand(_) => std::future::pending().await,
        }
    }

    /// Returns the limit of disk space that the session reaches while a command runs.
    async fn storage_reached(&self) -> StorageExceeded {
        match &self.registration {
            Registration::Host { host, .. } => {
                let mut checks = tokio::time::interval(host.config.timeouts.free_space_check);
                let reached = async {
                    match self.recorder.storage() {
                        Some(storage) => storage.reached().await,
                        None => std::future::pending().await,
                    }
                };
                let no_space = async {
                    loop {
                        checks.tick().await;
                        if let Err(SessionError::Storage(exceeded)) = host.store.check_free_space() {
                            return exceeded;
                        }
                    }
                };
                tokio::select! {
                    exceeded = reached => exceeded,
                    exceeded = no_space => exceeded,
                }
            }
            Registration::OnDemand(journal) => journal.storage_reached().await,
        }
    }

    /// Returns whether another client ended the session, so that no more commands can run.
    pub fn was_stopped(&self) -> bool {
        matches!(&self.registration, Registration::Host { stop_listener, .. } if stop_listener.was_requested())
    }

    /// Returns the policy of the session.
    pub fn policy(&self) -> &Arc<EffectivePolicy> {
        &self.plan.policy
    }

    /// Ends the session and keeps its changes. When this returns, all processes are dead, all calls settled and the
    /// journal closed.
    pub async fn end(self, reason: SessionEndReason, message: Option<String>) -> Result<(), SessionError> {
        self.end_with(reason, message, ChangesAtEnd::Keep).await
    }

    /// Ends the session like [`Self::end`], and keeps or deletes the changes of its workspace.
    pub async fn end_with(
        self,
        reason: SessionEndReason,
        message: Option<String>,
        changes: ChangesAtEnd,
    ) -> Result<(), SessionError> {
        let layers = self.sandbox.layers().filter(|_| changes == ChangesAtEnd::Keep);
        self.sandbox.destroy().await?;
        self.listeners.close().await;
        let (terminated_by, exit_code, stderr) = (TerminatedBy::Daemon, None, None);
        let ended = SessionEnded { reason, terminated_by, message, exit_code, stderr };
        match self.registration {
            Registration::OnDemand(journal) => {
                if let Some(layers) = layers {
                    journal.save_changes(layers).await?;
                }
                journal.end(ended).await
            }
            Registration::Host { host, handle, stop_listener } => {
                if let Some(layers) = layers {
                    save_final_changes(&host, &self.plan, &self.recorder, layers).await?;
                }
                self.recorder.daemon(EventBody::SessionEnded(ended))?;
                self.recorder.sync().await?;
                let (event_count, outcome) = (Some(self.recorder.last()), Some(reason.into()));
                let patch = SessionPatch { event_count, outcome, ..SessionPatch::default() };
                host.store.update(&self.plan.id, patch).await?;
                remove_fetched_skills(&host.store, &self.plan.id).await;
                host.unregister(&handle);
                stop_listener.confirm();
                Ok(())
            }
        }
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
