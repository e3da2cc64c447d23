//! Creates the sandbox of a session and starts its agent, for the first time or again.

use std::collections::VecDeque;
use std::sync::Arc;

use agents::{Dialogue as _, NoDialogue, NormalizedDialogue};
use protocol::{EventBody, SessionRegistered, SessionStatus};
use sandbox::{ExecSpec, Sandbox, SandboxProcess, StreamKind, WindowSize};
use store::{FileJournal, SessionRecord};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::{Actor, SilenceTimer, TurnSync};
use crate::SessionError;
use crate::lifecycle::{
    ActorCommand, ActorExit, AgentProcess, Listeners, MessageReceipts, PendingRequests, Recorder, SandboxCredentials,
    SessionHandle, SessionHost, SessionPlan, TurnState, epoch_number, git_config,
};
use crate::replay::WorkspaceOrigin;
use crate::skills::FetchedSkills;
use crate::storage::{OpenState, index_recorded_end, quarantine_if_damaged, run_blocking, take_over};
use crate::terminal::{Recording, SessionTerminal};

impl Actor {
    /// Creates a session and spawns the task that serves it.
    pub(crate) async fn start_new(
        host: Arc<SessionHost>,
        handle: Arc<SessionHandle>,
        plan: SessionPlan,
        commands: mpsc::Receiver<Box<ActorCommand>>,
    ) -> Result<SessionRecord, SessionError> {
        match Self::create(&host, &handle, plan).await {
            Ok((mut actor, record)) => {
                actor.live_since(record.info.created_at);
                actor.publish_and_release();
                host.tasks.spawn(actor.run(commands));
                Ok(record)
            }
            Err(error) => {
                handle.set_exit(if handle.journal.get().is_some() { ActorExit::Ended } else { ActorExit::NotCreated });
                host.unregister(&handle);
                Err(error)
            }
        }
    }

    /// Serves a session that ran before. Its agent starts with the next message.
    pub(crate) async fn resume(
        host: Arc<SessionHost>,
        handle: Arc<SessionHandle>,
        commands: mpsc::Receiver<Box<ActorCommand>>,
    ) {
        let error = match Box::pin(Self::restore(&host, &handle)).await {
            Ok(actor) => return actor.run(commands).await,
            Err(error) => Box::pin(quarantine(&host, &handle, error)).await,
        };
        handle.set_exit(match error {
            SessionError::Ended(_) => ActorExit::Ended,
            SessionError::RunByAnotherProcess(_) => ActorExit::RunByAnotherProcess,
            SessionError::ShuttingDown => ActorExit::HostCloses,
            SessionError::Damaged { .. } => ActorExit::Damaged,
            _ => ActorExit::Unreadable,
        });
        host.unregister(&handle);
        tracing::warn!(session = %handle.id, %error, "cannot resume the session");
    }

    /// Creates the sandbox, registers the session and starts the agent.
    async fn create(
        host: &Arc<SessionHost>,
        handle: &Arc<SessionHandle>,
        plan: SessionPlan,
    ) -> Result<(Box<Self>, SessionRecord), SessionError> {
        let (sandbox, credentials) = create_sandbox(host, &plan).await?;
        let registered = host.store.register(&plan.index_row(host.store.owner.id().clone()));
        let (journal, record) = match registered {
            Ok(registered) => registered,
            Err(error) => {
                sandbox.destroy().await?;
                return Err(error);
            }
        };
        save_workspace_origin(host, &plan);
        // From here on the id is used, and every failure is recorded.
        let mut actor = Self::new(host.clone(), handle.clone(), plan, journal);
        match actor.install_agent(sandbox, credentials).await {
            Ok(()) => Ok((actor, record)),
            Err(error) => {
                // If even the end cannot be recorded, the registration is undone; no client has seen the session.
                if actor.fail_to_start(&error).await.is_err() {
                    host.store.undo_register(&handle.id);
                }
                Err(error)
            }
        }
    }

    async fn restore(host: &Arc<SessionHost>, handle: &Arc<SessionHandle>) -> Result<Box<Self>, SessionError> {
        let (store, id) = (host.store.clone(), handle.id.clone());
        let read = move || {
            let mut record = store.index.get(&id)?;
            if record.owner != *store.owner.id() {
                record = take_over(&store, &record)?;
            }
            let (journal, _) = store.journal(&id)?;
            let open_state = OpenState::read(&*journal)?;
            if open_state.ended && record.outcome.is_none() {
                index_recorded_end(&store, &id, &journal)?;
            }
            store.count_stored_bodies(&journal, &open_state.bodies);
            Ok((record, journal, open_state))
        };
        let (record, journal, open_state) = run_blocking(read).await?;
        let started = open_state.started.as_ref().filter(|_| !open_state.ended);
        let started = started.ok_or_else(|| SessionError::Ended(handle.id.clone()))?;
        let plan = SessionPlan::resume(host, &record, started);
        let mut actor = Self::new(host.clone(), handle.clone(), plan, journal);
        actor.recorder.native_session_id.clone_from(&actor.plan.native_session_id);
        for (client_message_id, receipt) in open_state.receipts {
            actor.receipts.insert(Some(&client_message_id), receipt);
        }
        actor.live_since(record.info.created_at);
        actor.queue = open_state.queued;
        actor.status = SessionStatus::Asleep;
        actor.grants = open_state.grants;
        actor.plan.policy_changes = open_state.policy_changes;
        actor.apply_policy();
        Ok(actor)
    }

    fn new(
        host: Arc<SessionHost>,
        handle: Arc<SessionHandle>,
        plan: SessionPlan,
        journal: Arc<FileJournal>,
    ) -> Box<Self> {
        // The handle is new, so its journal is not set yet.
        let _ = handle.journal.set(journal.clone());
        Box::new(Self {
            host,
            handle,
            plan,
            recorder: Recorder::to_file(journal),
            agent: None,
            turn: TurnState::Idle,
            queue: VecDeque::new(),
            receipts: MessageReceipts::default(),
            pending: PendingRequests::default(),
            grants: Vec::new(),
            silence: SilenceTimer { since: Instant::now(), last_sequence: 0 },
            stop_deadline: None,
            grant_deadline: None,
            turn_deadline: Instant::now(),
            space_deadline: Instant::now(),
            turn_count: 0,
            agent_started: false,
            journal_broken: false,
            recorded_changes: None,
            idle_deadline: None,
            ttl_deadline: None,
            turn_sync: TurnSync::default(),
            status: SessionStatus::Idle,
            sleep_reason: None,
        })
    }

    /// Starts the agent again at the request of a client.
    pub(super) async fn resume_agent(&mut self) -> Result<(), SessionError> {
        self.check_storage()?;
        self.restart_agent().await
    }

    /// Starts the agent again, after a restart of the host or after the agent was killed.
    pub(super) async fn restart_agent(&mut self) -> Result<(), SessionError> {
        if self.plan.was_replay {
            return Err(SessionError::ReplayFinished(self.plan.id.clone()));
        }
        if self.journal_broken {
            self.close_open_state().await?;
        }
        let record = self.host.store.raise_epoch(&self.plan.id).await?;
        self.plan.epoch = epoch_number(&record);
        self.recorded_changes = None;
        self.turn_count = 0;
        let (sandbox, credentials) = create_sandbox(&self.host, &self.plan).await?;
        self.install_agent(sandbox, credentials).await
    }

    /// Starts the agent in `sandbox` and opens its dialogue. Destroys the sandbox on failure.
    async fn install_agent(
        &mut self,
        sandbox: Box<dyn Sandbox>,
        credentials: SandboxCredentials,
    ) -> Result<(), SessionError> {
        let started = self.start_agent(&*sandbox, credentials).await;
        let (dialogue, listeners, mut process) = match started {
            Ok(started) => started,
            Err(error) => {
                sandbox.destroy().await?;
                return Err(error);
            }
        };
        let sandbox: Arc<dyn Sandbox> = sandbox.into();
        self.handle.set_sandbox(&sandbox);
        let terminal = self.open_terminal(&mut process);
        let mut agent = AgentProcess::new(dialogue, sandbox, listeners, process, self.host.config.timeouts.exit_grace);
        if let Some(pump) = terminal {
            agent.own(pump);
        }
        let agent = self.agent.insert(agent);
        self.agent_started = true;
        let outputs = agent.dialogue.open();
        if self.plan.epoch == 1 {
            self.recorder.daemon(EventBody::SessionStarted(self.plan.started_event()))?;
            // A fork inherits the policy changes of its origin, and records them in its own journal.
            for change in self.plan.policy_changes.clone() {
                self.recorder.daemon(change.event())?;
            }
            if !self.plan.policy_changes.is_empty() {
                self.apply_policy();
            }
        }
        self.apply_outputs(outputs).await
    }

    /// Opens the terminal of an interactive session to viewers. Returns the task that carries its bytes.
    fn open_terminal(&self, process: &mut SandboxProcess) -> Option<impl Future<Output = ()> + Send + use<>> {
        let start = self.plan.terminal.as_ref()?;
        let size = WindowSize { rows: start.rows, columns: start.columns };
        let (terminal, streams, alive) = SessionTerminal::take(process, size, false, self.open_recording(size));
        self.handle.set_terminal(&terminal);
        Some(terminal.pump(streams, alive))
    }

    /// Creates the file for the recording of the screen. A session whose screen cannot be recorded goes on.
    fn open_recording(&self, size: WindowSize) -> Option<Recording> {
        let directory = self.host.store.directory();
        let path = directory.screen_recording(&self.plan.id, self.plan.epoch);
        let storage = self.recorder.storage().cloned();
        Recording::create(&path, size, self.host.store.now_unix_secs(), storage)
            .inspect_err(|error| tracing::warn!(session = %self.plan.id, %error, "cannot record the screen"))
            .ok()
    }

    async fn start_agent(
        &mut self,
        sandbox: &dyn Sandbox,
        credentials: SandboxCredentials,
    ) -> Result<(NormalizedDialogue, Listeners, SandboxProcess), SessionError> {
        let registered = SessionRegistered {
            session_id: self.plan.id.clone(),
            sandbox_id: sandbox.id().to_owned(),
            task_name: self.plan.options.task_name.clone(),
        };
        self.recorder.started(self.plan.effective_policy(&self.host, sandbox), registered)?;
        let listeners = Listeners::open(&self.host, &self.plan, &self.recorder, sandbox, &credentials)?;
        let registered = self.plan.registered_agent(&self.host.config.agents)?;
        let context = self.plan.launch_context(&registered, credentials.token.clone());
        let mut launch = self.plan.launch_plan(&registered, credentials.token)?;
        listeners.add_variables(&mut launch.env);
        self.host.config.variables.pass(&sandbox.toolchains(), &self.plan.policy, &mut launch.env);
        for (name, value) in &self.plan.environment {
            // The variables that lead to the gateway and the egress proxy stay.
            launch.env.entry(name.clone()).or_insert_with(|| value.clone());
        }
        // The first start of a fork continues from the state of another session.
        if self.plan.epoch > 1 || self.plan.forked_from.is_some() {
            self.restore_changes(sandbox).await?;
            self.restore_memory(sandbox, launch.saved_home).await;
        }
        let dialogue = match self.plan.terminal {
            Some(_) => NormalizedDialogue::new(Box::new(NoDialogue)),
            None => NormalizedDialogue::new(registered.agent.new_dialogue(&context)),
        };
        // A tool of the agent must not be able to write the agent's protocol, or to read the answers to the agent.
        let streams = StreamKind::Sockets;
        let (command, workdir, env) = (launch.argv, Some(launch.workdir), launch.env);
        let terminal = self.plan.terminal.as_ref().map(|start| WindowSize { rows: start.rows, columns: start.columns });
        let spec = ExecSpec { command, workdir, env, streams, terminal, ..ExecSpec::default() };
        let process = sandbox.exec(spec).await?;
        Ok((dialogue, listeners, process))
    }
}

/// Moves the journal to the quarantine folder if `error` says that it is damaged. Returns the error to report.
async fn quarantine(host: &Arc<SessionHost>, handle: &SessionHandle, error: SessionError) -> SessionError {
    let (store, id) = (host.store.clone(), handle.id.clone());
    let checked = run_blocking(move || Ok(quarantine_if_damaged(&store, &id, error))).await;
    checked.unwrap_or_else(|error| error)
}

/// Saves the initial state of the workspace for replays. Runs beside the start of the agent: nothing waits for it,
/// and with an overlay the agent's writes do not reach the scanned files.
fn save_workspace_origin(host: &Arc<SessionHost>, plan: &SessionPlan) {
    let Some(directory) = plan.directory.clone() else { return };
    let (path, id) = (host.store.directory().workspace_origin(&plan.id), plan.id.clone());
    host.tasks.spawn_blocking(move || {
        if let Err(error) = WorkspaceOrigin::scan(&directory).save(&path) {
            tracing::warn!(session = %id, %error, "cannot save the initial state of the workspace");
        }
    });
}

/// Creates the sandbox of a plan, with credentials for its listeners. Fails when the policy has changed.
async fn create_sandbox(
    host: &SessionHost,
    plan: &SessionPlan,
) -> Result<(Box<dyn Sandbox>, SandboxCredentials), SessionError> {
    if plan.policy.digest() != plan.policy_digest {
        return Err(SessionError::PolicyChanged(plan.id.clone()));
    }
    plan.check_workspace(host.store.directory().root())?;
    let credentials = SandboxCredentials::issue(&host.config.egress, plan)?;
    let registered = plan.registered_agent(&host.config.agents)?;
    let mut launch = plan.launch_plan(&registered, credentials.token.clone())?;
    let skills = FetchedSkills::fetch(host, plan).await?;
    launch.mounts.extend(skills.mounts());
    launch.files.extend(credentials.files());
    launch.files.push(git_config(&host.config.variables, plan));
    let sandbox =
        host.config.backend.create(plan.sandbox_spec(&host.config.variables, launch.mounts, launch.files)).await?;
    match skills.install(&*sandbox, registered.agent.skill_root()).await {
        Ok(()) => Ok((sandbox, credentials)),
        Err(error) => {
            sandbox.destroy().await?;
            Err(error)
        }
    }
}
