//! How a session's sandbox is made and its agent started: for the first time, or again.

use std::collections::VecDeque;
use std::sync::Arc;

use agents::{Dialogue as _, NormalizedDialogue};
use protocol::{EventBody, SessionRegistered};
use sandbox::{ExecSpec, Sandbox};
use store::{FileJournal, SessionRecord};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Actor, Quiet, Settling};
use crate::SessionError;
use crate::command::Command;
use crate::doors::{Doors, Keys};
use crate::host::Host;
use crate::left::Left;
use crate::live::Live;
use crate::pending::Pending;
use crate::plan::{self, Plan};
use crate::receipts::Receipts;
use crate::recorder::Recorder;
use crate::recovery;
use crate::replay::WorkspaceOrigin;
use crate::seat::{Departure, Seat};
use crate::shelf::blocking;
use crate::skills::Equipment;
use crate::turn::Phase;

impl Actor {
    /// Makes a new session, which from then on is served by a task of its own.
    pub(crate) async fn begin(
        host: Arc<Host>,
        seat: Arc<Seat>,
        plan: Plan,
        commands: mpsc::Receiver<Box<Command>>,
    ) -> Result<SessionRecord, SessionError> {
        match Self::make(&host, &seat, plan).await {
            Ok((actor, record)) => {
                actor.pause();
                host.tasks.spawn(actor.run(commands));
                Ok(record)
            }
            Err(error) => {
                seat.depart(if seat.journal.get().is_some() { Departure::Ended } else { Departure::NotMade });
                host.leave(&seat);
                Err(error)
            }
        }
    }

    /// Serves a session that ran before; its agent starts with the next message.
    pub(crate) async fn resume(host: Arc<Host>, seat: Arc<Seat>, commands: mpsc::Receiver<Box<Command>>) {
        let error = match Box::pin(Self::remember(&host, &seat)).await {
            Ok(actor) => return actor.run(commands).await,
            Err(error) => Box::pin(set_aside(&host, &seat, error)).await,
        };
        seat.depart(match error {
            SessionError::Ended(_) => Departure::Ended,
            SessionError::RunElsewhere(_) => Departure::RunElsewhere,
            SessionError::ShuttingDown => Departure::HostCloses,
            SessionError::Damaged { .. } => Departure::Damaged,
            _ => Departure::Unreadable,
        });
        host.leave(&seat);
        tracing::warn!(session = %seat.id, %error, "a session cannot go on");
    }

    async fn make(host: &Arc<Host>, seat: &Arc<Seat>, plan: Plan) -> Result<(Box<Self>, SessionRecord), SessionError> {
        let (sandbox, keys) = sandbox(host, &plan).await?;
        let entered = host.shelf.enter(&plan.entry(host.shelf.owner.id().clone()));
        let (journal, record) = match entered {
            Ok(entered) => entered,
            Err(error) => {
                sandbox.destroy().await?;
                return Err(error);
            }
        };
        keep_origin(host, &plan);
        // From here the id is taken, and whatever happens is on record.
        let mut actor = Self::new(host.clone(), seat.clone(), plan, journal);
        match actor.move_in(sandbox, keys).await {
            Ok(()) => Ok((actor, record)),
            Err(error) => {
                // A session whose end cannot be recorded either was never made: nobody was told of it.
                if actor.fail_to_start(&error).await.is_err() {
                    host.shelf.unmake(&seat.id);
                }
                Err(error)
            }
        }
    }

    async fn remember(host: &Arc<Host>, seat: &Arc<Seat>) -> Result<Box<Self>, SessionError> {
        let (shelf, id) = (host.shelf.clone(), seat.id.clone());
        let read = move || {
            let mut record = shelf.index.get(&id)?;
            if record.owner != *shelf.owner.id() {
                record = recovery::take_over(&shelf, &record)?;
            }
            let (journal, _) = shelf.journal(&id)?;
            let left = Left::read(&*journal)?;
            if left.ended && record.outcome.is_none() {
                recovery::note_end(&shelf, &id, &journal)?;
            }
            Ok((record, journal, left))
        };
        let (record, journal, left) = blocking(read).await?;
        let started = left.started.as_ref().filter(|_| !left.ended);
        let started = started.ok_or_else(|| SessionError::Ended(seat.id.clone()))?;
        let plan = Plan::resume(host, &record, started);
        let mut actor = Self::new(host.clone(), seat.clone(), plan, journal);
        actor.recorder.native_session_id.clone_from(&actor.plan.native_session_id);
        left.named.into_iter().for_each(|(name, receipt)| actor.receipts.keep(Some(&name), receipt));
        actor.queue = left.queued;
        actor.grants = left.grants;
        actor.plan.changes = left.changes;
        actor.exchange_policy();
        Ok(actor)
    }

    fn new(host: Arc<Host>, seat: Arc<Seat>, plan: Plan, journal: Arc<FileJournal>) -> Box<Self> {
        // The seat is new, so nothing was set before.
        let _ = seat.journal.set(journal.clone());
        Box::new(Self {
            host,
            seat,
            plan,
            recorder: Recorder::new(journal),
            live: None,
            phase: Phase::Idle,
            queue: VecDeque::new(),
            receipts: Receipts::default(),
            pending: Pending::default(),
            grants: Vec::new(),
            quiet: Quiet { since: Instant::now(), last: 0 },
            stop_by: None,
            grant_by: None,
            turn_by: Instant::now(),
            turns: 0,
            woken: false,
            torn: false,
            told_changes: None,
            settling: Settling::default(),
        })
    }

    /// Starts the agent again: after a restart of the host, or after it had to be ended.
    pub(super) async fn wake(&mut self) -> Result<(), SessionError> {
        if self.plan.replay_is_over {
            return Err(SessionError::ReplayOver(self.plan.id.clone()));
        }
        if self.torn {
            self.mend().await?;
        }
        let record = self.host.shelf.raise_epoch(&self.plan.id).await?;
        self.plan.epoch = plan::epoch(&record);
        self.told_changes = None;
        self.turns = 0;
        let (sandbox, keys) = sandbox(&self.host, &self.plan).await?;
        self.move_in(sandbox, keys).await
    }

    /// Puts the agent into its sandbox and tells what that sandbox enforces.
    async fn move_in(&mut self, sandbox: Box<dyn Sandbox>, keys: Keys) -> Result<(), SessionError> {
        let moved = self.start_agent(&*sandbox, keys).await;
        let (dialogue, doors, process) = match moved {
            Ok(parts) => parts,
            Err(error) => {
                sandbox.destroy().await?;
                return Err(error);
            }
        };
        let sandbox: Arc<dyn Sandbox> = sandbox.into();
        self.seat.house(&sandbox);
        let live = Live::new(dialogue, sandbox, doors, process, self.host.timing.exit_grace);
        let live = self.live.insert(live);
        self.woken = true;
        let outputs = live.dialogue.open();
        if self.plan.epoch == 1 {
            self.recorder.daemon(EventBody::SessionStarted(self.plan.started()))?;
            // A fork begins with what was changed where it comes from, and must know it again by its own record.
            for change in self.plan.changes.clone() {
                self.recorder.daemon(change.event())?;
            }
            if !self.plan.changes.is_empty() {
                self.exchange_policy();
            }
        }
        self.play(outputs).await
    }

    async fn start_agent(
        &mut self,
        sandbox: &dyn Sandbox,
        keys: Keys,
    ) -> Result<(NormalizedDialogue, Doors, sandbox::SandboxProcess), SessionError> {
        let registered = SessionRegistered {
            session_id: self.plan.id.clone(),
            sandbox_id: sandbox.id().to_owned(),
            task_name: self.plan.options.task_name.clone(),
        };
        self.recorder.started(self.plan.effective(&self.host, sandbox), registered)?;
        let doors = Doors::open(&self.host, &self.plan, &self.recorder, sandbox, &keys)?;
        let enlisted = self.plan.enlisted(&self.host.roster)?;
        let context = self.plan.context(&enlisted, keys.token);
        let mut launch = enlisted.agent.plan(&context)?;
        doors.tell(&mut launch.env);
        self.host.variables.pass(&self.plan.policy, &mut launch.env);
        // The first start of a fork goes on where another session stood.
        if self.plan.epoch > 1 || self.plan.forked_from.is_some() {
            self.restore_changes(sandbox).await?;
            self.restore_memory(sandbox, launch.memory).await;
        }
        let dialogue = NormalizedDialogue::new(enlisted.agent.native(&context));
        let spec =
            ExecSpec { command: launch.argv, workdir: Some(launch.workdir), env: launch.env, ..ExecSpec::default() };
        let process = sandbox.exec(spec).await?;
        Ok((dialogue, doors, process))
    }
}

/// A journal that turned out to be damaged is put aside, as at the start of a host.
async fn set_aside(host: &Arc<Host>, seat: &Seat, error: SessionError) -> SessionError {
    let (shelf, id) = (host.shelf.clone(), seat.id.clone());
    let looked = blocking(move || Ok(recovery::set_damaged_aside(&shelf, &id, error))).await;
    looked.unwrap_or_else(|error| error)
}

/// Keeps how the workspace is now, for a replay. Beside the start of the agent: nobody waits for it, and in the
/// modes in which the agent could be faster the layer below stays as it is.
fn keep_origin(host: &Arc<Host>, plan: &Plan) {
    let Some(directory) = plan.directory.clone() else { return };
    let (path, id) = (host.shelf.directory().origin(&plan.id), plan.id.clone());
    host.tasks.spawn_blocking(move || {
        if let Err(error) = WorkspaceOrigin::look(&directory).save(&path) {
            tracing::warn!(session = %id, %error, "cannot keep how the workspace began");
        }
    });
}

/// Makes the sandbox of a plan, and the keys to its ways out.
async fn sandbox(host: &Host, plan: &Plan) -> Result<(Box<dyn Sandbox>, Keys), SessionError> {
    if plan.policy.digest() != plan.policy_digest {
        return Err(SessionError::PolicyChanged(plan.id.clone()));
    }
    plan.refuse_own(host.shelf.directory().root())?;
    let keys = Keys::make(&host.egress, plan)?;
    let enlisted = plan.enlisted(&host.roster)?;
    let mut launch = enlisted.agent.plan(&plan.context(&enlisted, keys.token.clone()))?;
    let equipment = Equipment::fetch(host, plan).await?;
    launch.mounts.extend(equipment.mounts());
    launch.files.extend(keys.files());
    let sandbox = host.backend.create(plan.sandbox(launch.mounts, launch.files)).await?;
    match equipment.put(&*sandbox, enlisted.agent.skill_root()).await {
        Ok(()) => Ok((sandbox, keys)),
        Err(error) => {
            sandbox.destroy().await?;
            Err(error)
        }
    }
}
