//! A session without a dialogue: commands in a sandbox, one after another, on record.
//!
//! Sandbox, gateway, budget and journal are those of every session. What a command prints is its caller's; that it
//! ran, and how it ended, is the record's.
//!
//! Not here: what a task's file says, and what its failures are called (`cli`).

mod inside;
mod stopping;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use protocol::{
    EventBody, SessionEndReason, SessionEnded, SessionId, SessionRegistered, TaskCommandFinished, TerminatedBy,
};
use sandbox::{ExecResult, OutputListener, Sandbox, SandboxError, SandboxProcess, SavedChanges};
use store::{Journal, SessionPatch};

use crate::SessionError;
use crate::actor::summary;
use crate::doors::{Doors, Keys};
use crate::host::SessionHost;
use crate::plan::Plan;
use crate::recorder::Recorder;
use crate::seat::{Departure, Seat};
use crate::shelf::blocking;
use crate::skills::{self, Equipment};

use inside::Inside;
use stopping::Stopping;

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
    /// Bytes kept of each of stdout and stderr.
    pub output_limit: usize,
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
    host: Arc<SessionHost>,
    seat: Arc<Seat>,
    plan: Plan,
    recorder: Recorder,
    sandbox: Box<dyn Sandbox>,
    doors: Doors,
    inside: Inside,
    stopping: Stopping,
    /// Behind a lock that nobody waits for: others may look at a workbench while one command runs.
    beside: Mutex<Vec<SandboxProcess>>,
}

impl CommandSession {
    pub(crate) async fn open(host: &Arc<SessionHost>, plan: Plan) -> Result<Self, SessionError> {
        plan.refuse_own(host)?;
        let keys = Keys::make(host, &plan)?;
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
        host.config.variables.pass(&plan.policy, &mut inside.env);
        let stopping = Stopping::watch(&host.tasks, &seat, commands);
        let host = host.clone();
        Ok(Self { host, seat, plan, recorder, sandbox, doors, inside, stopping, beside: Mutex::default() })
    }

    async fn make(
        host: &Arc<SessionHost>,
        seat: &Arc<Seat>,
        plan: &Plan,
        inside: &mut Inside,
        keys: &Keys,
    ) -> Result<(Box<dyn Sandbox>, Doors, Recorder), SessionError> {
        let equipment = Equipment::fetch(host, plan).await?;
        inside.mounts.extend(equipment.mounts());
        let spec = plan.sandbox(std::mem::take(&mut inside.mounts), std::mem::take(&mut inside.files));
        let sandbox = host.config.backend.create(spec).await?;
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
        host: &Arc<SessionHost>,
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
    pub async fn start_background(&mut self, task: SessionCommand) -> Result<(), SessionError> {
        let mut process = self.sandbox.exec(self.inside.exec(task)).await?;
        for output in [&mut process.stdout, &mut process.stderr] {
            let mut output = std::mem::replace(output, Box::new(tokio::io::empty()));
            // Ends with the sandbox, which `end` waits for.
            self.host.tasks.spawn(async move { drop(tokio::io::copy(&mut output, &mut tokio::io::sink()).await) });
        }
        self.beside.get_mut().unwrap_or_else(PoisonError::into_inner).push(process);
        Ok(())
    }

    /// Runs a command to its end and puts on record how it ended.
    pub async fn run(&self, task: SessionCommand, listener: OutputListener<'_>) -> Result<ExecResult, SessionError> {
        let command = task.command.clone();
        let running = sandbox::run(&*self.sandbox, self.inside.exec(task), listener);
        let result = tokio::select! {
            result = running => result?,
            () = self.stopping.asked() => return Err(SessionError::Ended(self.plan.id.clone())),
        };
        let wall_micros = u64::try_from(result.wall.as_micros()).unwrap_or(u64::MAX);
        let exit_code = exit_code(&result);
        let finished = TaskCommandFinished { command, exit_code, wall_micros };
        self.recorder.daemon(EventBody::TaskCommandFinished(finished))?;
        Ok(result)
    }

    /// Whether somebody else ended it: what runs was cut, and nothing more can be run.
    pub fn was_stopped(&self) -> bool {
        self.stopping.was_asked()
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
        if let Some(layers) = layers {
            let into = self.host.shelf.changes(&self.plan.id);
            let saved = move || SavedChanges::save_final(&layers, &into).map_err(SessionError::Changes);
            let told = blocking(move || saved().map(|saved| summary(&saved))).await?;
            if !(told.added.is_empty() && told.modified.is_empty() && told.deleted.is_empty()) {
                self.recorder.daemon(EventBody::WorkspaceChanged(told))?;
            }
        }
        let (terminated_by, exit_code, stderr) = (TerminatedBy::Daemon, None, None);
        let ended = SessionEnded { reason, terminated_by, message, exit_code, stderr };
        self.recorder.daemon(EventBody::SessionEnded(ended))?;
        self.recorder.sync().await?;
        let (event_count, outcome) = (Some(self.recorder.last()), Some(reason.into()));
        let change = SessionPatch { event_count, outcome, ..SessionPatch::default() };
        self.host.shelf.update(&self.plan.id, change).await?;
        skills::forget(&self.host.shelf, &self.plan.id).await;
        self.host.leave(&self.seat);
        self.stopping.done();
        Ok(())
    }
}

/// How a command ended, as a shell would say it.
fn exit_code(result: &ExecResult) -> i32 {
    if result.timed_out {
        return TIMED_OUT;
    }
    let exit = result.exit;
    exit.code.or_else(|| exit.signal.map(|signal| 128 + signal)).unwrap_or(-1)
}
