//! A session without a dialogue: commands in a sandbox, one after another, on record.
//!
//! Sandbox, gateway, budget and journal are those of every session. What a command prints is its caller's; that it
//! ran, and how it ended, is the record's.
//!
//! Not here: what a task's file says, and what its failures are called (`cli`).

mod inside;
mod on_demand;
mod stopping;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::{
    EventBody, SessionEndReason, SessionEnded, SessionId, SessionRegistered, TaskCommandFinished, TerminatedBy,
};
use sandbox::{
    ExecResult, OutputListener, OverlayLayers, Sandbox, SandboxError, SandboxProcess, SavedChanges, StandardStreams,
    WindowSize,
};
use store::{Journal, SessionPatch};
use tokio::io::AsyncRead;
use tokio_util::task::TaskTracker;

use crate::SessionError;
use crate::actor::summary;
use crate::doors::{Doors, Keys};
use crate::host::Host;
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::seat::{Departure, Seat};
use crate::shelf::blocking;
use crate::skills::{self, Equipment};

use inside::Inside;
use on_demand::OnDemandJournal;
use stopping::Stopping;

pub use on_demand::OnDemandSettings;

/// What a timeout is called among exit codes.
const TIMED_OUT: i32 = 124;

/// One command.
#[derive(Debug, Clone, Default)]
pub struct SessionCommand {
    /// Program and arguments. A first word that is the agent's name means the agent's own program.
    pub command: Vec<String>,
    /// Variables beside those of the sandbox.
    pub env: BTreeMap<String, String>,
    /// Wall time before everything it started is killed.
    pub timeout: Option<Duration>,
    /// Time without output before everything it started is killed.
    pub idle_timeout: Option<Duration>,
    /// Bytes kept of each of stdout and stderr.
    pub output_limit: usize,
    /// Size of the terminal that the command gets; without one it gets pipes.
    pub terminal: Option<WindowSize>,
}

/// Why an artifact could not be had.
#[derive(Debug, thiserror::Error)]
pub enum ArtifactError {
    /// It is not there, or cannot be read.
    #[error("artifact `{path}` cannot be read: {why}")]
    Unreadable {
        /// Its path inside.
        path: String,
        /// What was said about it.
        why: String,
    },
    /// It is longer than anything that is kept.
    #[error("artifact `{path}` is longer than {limit} bytes")]
    TooLarge {
        /// Its path inside.
        path: String,
        /// The longest that is read.
        limit: usize,
    },
    /// The sandbox is gone.
    #[error("artifact `{path}` cannot be asked for")]
    Sandbox {
        /// Its path inside.
        path: String,
        /// Why.
        #[source]
        source: SandboxError,
    },
}

/// A sandbox with a gateway, and a record of what is run in it.
pub struct CommandSession {
    plan: Arc<Plan>,
    recorder: Recorder,
    sandbox: Box<dyn Sandbox>,
    doors: Doors,
    inside: Inside,
    registration: Registration,
    tasks: TaskTracker,
    /// Behind a lock that nobody waits for: others may look at a workbench while one command runs.
    beside: Mutex<Vec<SandboxProcess>>,
}

/// How other processes learn of a command session.
enum Registration {
    /// It is in the session list and the journal from its start, and others can stop it.
    Host { host: Arc<Host>, seat: Arc<Seat>, stopping: Stopping },
    /// It is in neither until a command uses the network.
    OnDemand(Arc<OnDemandJournal>),
}

impl CommandSession {
    /// Opens a session of which nothing is recorded until a command uses the network.
    ///
    /// Nothing is written to the data directory before that, and no model can be reached.
    pub async fn on_demand(settings: OnDemandSettings) -> Result<Self, SessionError> {
        on_demand::open(settings).await
    }

    pub(crate) async fn open(host: &Arc<Host>, plan: Plan) -> Result<Self, SessionError> {
        plan.refuse_own(host.shelf.directory().root())?;
        let keys = Keys::make(&host.egress, &plan)?;
        let mut inside = Inside::of(host, &plan, &keys.token)?;
        inside.files.extend(keys.files());
        let (seat, commands) = Seat::new(plan.id.clone());
        host.sit(&seat)?;
        let made = Self::make(host, &seat, &plan, &mut inside, &keys).await;
        let (sandbox, doors, recorder) = made.inspect_err(|_| {
            seat.depart(Departure::NotMade);
            host.leave(&seat);
        })?;
        doors.tell(&mut inside.env);
        host.variables.pass(&plan.policy, &mut inside.env);
        let stopping = Stopping::watch(&host.tasks, &seat, commands);
        let (plan, tasks) = (Arc::new(plan), host.tasks.clone());
        let registration = Registration::Host { host: host.clone(), seat, stopping };
        Ok(Self { plan, recorder, sandbox, doors, inside, registration, tasks, beside: Mutex::default() })
    }

    async fn make(
        host: &Arc<Host>,
        seat: &Arc<Seat>,
        plan: &Plan,
        inside: &mut Inside,
        keys: &Keys,
    ) -> Result<(Box<dyn Sandbox>, Doors, Recorder), SessionError> {
        let equipment = Equipment::fetch(host, plan).await?;
        inside.mounts.extend(equipment.mounts());
        let spec = plan.sandbox(std::mem::take(&mut inside.mounts), std::mem::take(&mut inside.files));
        let sandbox = host.backend.create(spec).await?;
        let registered = async {
            equipment.put(&*sandbox, inside.skill_root).await?;
            Self::register(host, seat, plan, &*sandbox, keys)
        };
        match registered.await {
            Ok((doors, recorder)) => Ok((sandbox, doors, recorder)),
            Err(error) => {
                sandbox.destroy().await?;
                Err(error)
            }
        }
    }

    /// Puts the session, its sandbox and its task on record and opens the gateway for them.
    fn register(
        host: &Arc<Host>,
        seat: &Arc<Seat>,
        plan: &Plan,
        sandbox: &dyn Sandbox,
        keys: &Keys,
    ) -> Result<(Doors, Recorder), SessionError> {
        let (journal, _) = host.shelf.enter(&plan.entry(host.shelf.owner.id().clone()))?;
        // The seat is new, so nothing was set before.
        let _ = seat.journal.set(journal.clone());
        let recorder = Recorder::new(journal);
        recorder.daemon(EventBody::PolicyEffective(plan.effective(host, sandbox)))?;
        recorder.daemon(EventBody::SessionRegistered(SessionRegistered {
            session_id: plan.id.clone(),
            sandbox_id: sandbox.id().to_owned(),
            task_name: plan.options.task_name.clone(),
        }))?;
        let doors = Doors::open(host, plan, &recorder, sandbox, keys)?;
        recorder.daemon(EventBody::SessionStarted(plan.started()))?;
        Ok((doors, recorder))
    }

    /// The session.
    pub fn id(&self) -> &SessionId {
        &self.plan.id
    }

    /// Its record.
    pub fn journal(&self) -> &Arc<dyn Journal> {
        self.recorder.journal()
    }

    /// Starts a command that runs beside the others until the session ends; nobody reads what it prints.
    pub async fn start_beside(&mut self, task: SessionCommand) -> Result<(), SessionError> {
        let mut process = self.sandbox.exec(self.inside.exec(task)).await?;
        for output in [&mut process.stdout, &mut process.stderr] {
            let mut output = std::mem::replace(output, Box::new(tokio::io::empty()));
            // Ends with the sandbox, which `end` waits for.
            self.tasks.spawn(async move { drop(tokio::io::copy(&mut output, &mut tokio::io::sink()).await) });
        }
        self.beside.get_mut().unwrap_or_else(PoisonError::into_inner).push(process);
        Ok(())
    }

    /// Runs a command to its end and puts on record how it ended.
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
        let command = task.command.clone();
        let running = sandbox::run_with_input(&*self.sandbox, self.inside.exec(task), input, listener);
        self.record_end(command, running).await
    }

    /// Runs a command like [`Self::run`], with the caller's own standard streams.
    pub async fn attach(&self, task: SessionCommand, streams: StandardStreams) -> Result<ExecResult, SessionError> {
        let command = task.command.clone();
        let running = sandbox::attach(&*self.sandbox, self.inside.exec(task), streams);
        self.record_end(command, running).await
    }

    async fn record_end(
        &self,
        command: Vec<String>,
        running: impl Future<Output = Result<ExecResult, SandboxError>>,
    ) -> Result<ExecResult, SessionError> {
        let result = tokio::select! {
            result = running => result?,
            () = self.stopped() => return Err(SessionError::Ended(self.plan.id.clone())),
        };
        let wall_micros = u64::try_from(result.wall.as_micros()).unwrap_or(u64::MAX);
        let exit_code = exit_code(&result);
        self.record(EventBody::TaskCommandFinished(TaskCommandFinished { command, exit_code, wall_micros }))?;
        Ok(result)
    }

    /// Records an event; in a session on demand only if that session has a journal or gets one later.
    fn record(&self, body: EventBody) -> Result<(), SessionError> {
        match &self.registration {
            Registration::Host { .. } => drop(self.recorder.daemon(body)?),
            Registration::OnDemand(journal) => journal.defer(body)?,
        }
        Ok(())
    }

    /// Returns when somebody else ends the session; never for a session on demand.
    async fn stopped(&self) {
        match &self.registration {
            Registration::Host { stopping, .. } => stopping.asked().await,
            Registration::OnDemand(_) => std::future::pending().await,
        }
    }

    /// Whether somebody else ended it: what runs was cut, and nothing more can be run.
    pub fn was_stopped(&self) -> bool {
        matches!(&self.registration, Registration::Host { stopping, .. } if stopping.was_asked())
    }

    /// Places a file inside.
    pub async fn write(&self, path: &str, content: Vec<u8>) -> Result<(), ArtifactError> {
        inside::write(&*self.sandbox, path, content).await
    }

    /// Reads a file from inside.
    pub async fn read(&self, path: &str) -> Result<Vec<u8>, ArtifactError> {
        inside::read(&*self.sandbox, path).await
    }

    /// Ends the session: every process is dead, every call settled and the record closed when this returns.
    pub async fn end(self, reason: SessionEndReason, message: Option<String>) -> Result<(), SessionError> {
        let layers = self.sandbox.layers();
        self.sandbox.destroy().await?;
        self.doors.close().await;
        let (terminated_by, exit_code, stderr) = (TerminatedBy::Daemon, None, None);
        let ended = SessionEnded { reason, terminated_by, message, exit_code, stderr };
        match self.registration {
            Registration::OnDemand(journal) => journal.end(ended).await,
            Registration::Host { host, seat, stopping } => {
                if let Some(layers) = layers {
                    save_changes(&host, &self.plan, &self.recorder, layers).await?;
                }
                self.recorder.daemon(EventBody::SessionEnded(ended))?;
                self.recorder.sync().await?;
                let (event_count, outcome) = (Some(self.recorder.last()), Some(reason.into()));
                let change = SessionPatch { event_count, outcome, ..SessionPatch::default() };
                host.shelf.update(&self.plan.id, change).await?;
                skills::forget(&host.shelf, &self.plan.id).await;
                host.leave(&seat);
                stopping.done();
                Ok(())
            }
        }
    }
}

/// Saves the changes of the workspace and records their summary, if there are any.
async fn save_changes(
    host: &Host,
    plan: &Plan,
    recorder: &Recorder,
    layers: OverlayLayers,
) -> Result<(), SessionError> {
    let into = host.shelf.changes(&plan.id);
    let saved = move || SavedChanges::save_final(&layers, &into).map_err(SessionError::Changes);
    let changed = blocking(move || saved().map(|saved| summary(&saved))).await?;
    if !(changed.added.is_empty() && changed.modified.is_empty() && changed.deleted.is_empty()) {
        recorder.daemon(EventBody::WorkspaceChanged(changed))?;
    }
    Ok(())
}

/// How a command ended, as a shell would say it.
fn exit_code(result: &ExecResult) -> i32 {
    if result.timed_out {
        return TIMED_OUT;
    }
    let exit = result.exit;
    exit.code.or_else(|| exit.signal.map(|signal| 128 + signal)).unwrap_or(-1)
}
