//! The public interface to all sessions of a data directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use policy::EffectivePolicy;
use protocol::{
    CreateSession, EventBody, Grant, PermissionId, PolicyEffective, SessionId, SessionInfo, SessionUpdated,
};
use sandbox::Sandbox;
use store::{DataDir, DatabaseError, IdempotencyStore, Journal, OwnerId, SessionPatch, UsageGrouping, UsageRow};
use tokio::sync::oneshot;

use crate::command_session::CommandSession;
use crate::config::AgentRegistry;
use crate::lifecycle::{
    Actor, ActorCommand, PendingRequest, ReplySender, SessionHandle, SessionHost, SessionPlan, check_description,
    detach_on_drop, group_drift,
};
use crate::storage::{
    OpenState, SessionStore, follow_journal, recorded_usage, recover_orphans, refuse_damaged, run_blocking,
};
use crate::{
    AcceptedMessage, DriftByAgent, ImportedSession, SessionError, SessionHostConfig, SessionOptions, TerminalViewer,
    UserMessage, ViewerAccess, WorkspaceAccess,
};

/// Longest shutdown. Sessions that do not close in this time are recovered at the next start.
const CLOSE_TIMEOUT: Duration = Duration::from_secs(5);

/// All sessions of a data directory. Clones share the same state.
#[derive(Clone)]
pub struct Sessions {
    pub(crate) host: Arc<SessionHost>,
}

impl Sessions {
    /// Opens the sessions of a data directory. Sessions of dead hosts stay unchanged until [`Self::recover`].
    pub fn open(config: SessionHostConfig) -> Result<Self, SessionError> {
        let store = SessionStore::open(config.data_dir.clone(), config.clock.clone(), config.budget.storage)?;
        Ok(Self { host: Arc::new(SessionHost::new(config, store)) })
    }

    /// Returns the id of this process as owner of sessions in the index.
    pub fn owner(&self) -> &OwnerId {
        self.host.store.owner.id()
    }

    /// Returns the registry of agents.
    pub fn agents(&self) -> &AgentRegistry {
        &self.host.config.agents
    }

    /// Returns the drift counts of all sessions in the data directory.
    pub fn drift(&self) -> Result<DriftByAgent, SessionError> {
        Ok(group_drift(self.host.store.index.drift()?))
    }

    /// Returns the totals of the egress proxy since this process started.
    pub fn egress_totals(&self) -> egress::EgressTotals {
        self.host.config.egress.totals()
    }

    /// Creates a session and starts its agent. Of concurrent calls with the same id, one succeeds.
    pub async fn create(
        &self,
        id: SessionId,
        request: CreateSession,
        options: SessionOptions,
    ) -> Result<SessionInfo, SessionError> {
        let plan = SessionPlan::check(&self.host, id.clone(), request, options)?;
        self.start(id, plan).await
    }

    pub(crate) async fn start(&self, id: SessionId, plan: SessionPlan) -> Result<SessionInfo, SessionError> {
        self.host.store.check_free_space()?;
        let (handle, commands) = SessionHandle::new(id.clone(), plan.options.token.clone());
        self.host.register(&handle)?;
        match self.host.store.index.get(&id) {
            Ok(record) if self.host.store.was_undone(&record) => self.host.store.undo_register(&id),
            Ok(_) => {
                self.host.unregister(&handle);
                return Err(SessionError::AlreadyExists(id));
            }
            Err(_) => {}
        }
        // Completed even when the caller stops waiting.
        let created =
            detach_on_drop(&self.host.tasks, Actor::start_new(self.host.clone(), handle, plan, commands)).await;
        let record = created.map_err(|error| match error {
            SessionError::AlreadyExists(id) => self.host.store.id_used_error(id),
            other => other,
        })?;
        Ok(self.to_info(record))
    }

    /// Creates a session that runs commands. Its sandbox has the program and environment of the agent that `request`
    /// names, if any.
    pub async fn open_command_session(
        &self,
        id: SessionId,
        request: CreateSession,
        options: SessionOptions,
    ) -> Result<CommandSession, SessionError> {
        let plan = SessionPlan::check_commands(&self.host, id, request, options)?;
        CommandSession::open(&self.host, plan).await
    }

    /// Returns the policy of a new session in `directory` that does not bring its own.
    pub fn policy_in(&self, directory: Option<&Path>) -> Result<Arc<EffectivePolicy>, SessionError> {
        self.host.policy_in(directory)
    }

    /// Returns `path` without links; fails when a session may not use the directory.
    pub fn check_directory(&self, path: &Path, workspaces: &WorkspaceAccess) -> Result<PathBuf, SessionError> {
        workspaces.resolve(path, self.host.store.directory())
    }

    /// Sends a message to the agent, or queues it while a turn runs. The message is recorded when this returns.
    pub async fn send(&self, id: &SessionId, message: UserMessage) -> Result<AcceptedMessage, SessionError> {
        self.send_command(id, |reply| ActorCommand::Send(message, reply)).await
    }

    /// Starts the agent of a session that has none, and continues with the queued messages. The next message would do
    /// the same.
    pub async fn resume(&self, id: &SessionId) -> Result<(), SessionError> {
        self.send_command(id, ActorCommand::Resume).await
    }

    /// Changes title, labels or metadata of a session, also after its end. Before its end, an event tells it.
    pub async fn update(&self, id: &SessionId, update: SessionUpdated) -> Result<SessionInfo, SessionError> {
        check_description(&update)?;
        if update == SessionUpdated::default() {
            return self.get(id);
        }
        match self.send_command(id, |reply| ActorCommand::Update(update.clone(), reply)).await {
            // Only the process that runs a session can write its journal, and nothing follows the end.
            Err(SessionError::Ended(_) | SessionError::Damaged { .. } | SessionError::RunByAnotherProcess(_)) => {
                let SessionUpdated { title, labels, metadata } = update;
                let patch = SessionPatch { title, labels, metadata, ..SessionPatch::default() };
                self.host.store.update(id, patch).await?;
            }
            updated => updated?,
        }
        self.get(id)
    }

    /// Asks the agent to stop its turn. Does nothing when no turn runs.
    pub async fn interrupt(&self, id: &SessionId) -> Result<(), SessionError> {
        self.send_command(id, ActorCommand::Interrupt).await
    }

    /// Ends a session. When this returns, all its processes are dead and nothing more is recorded. Does nothing for a
    /// session that has ended.
    pub async fn terminate(&self, id: &SessionId) -> Result<(), SessionError> {
        match self.send_command(id, ActorCommand::Terminate).await {
            Err(SessionError::Ended(_) | SessionError::Damaged { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Ends a session if it runs, and deletes its journal, its changes and its agent's memory. Its ledger entries stay,
    /// and its id is never used again.
    pub async fn delete(&self, id: &SessionId) -> Result<(), SessionError> {
        self.terminate(id).await?;
        if self.host.store.delete(id).await? { Ok(()) } else { Err(SessionError::NotFound(id.clone())) }
    }

    /// Returns the grants of a session.
    pub async fn grants(&self, id: &SessionId) -> Result<Vec<Grant>, SessionError> {
        if let Some(grants) = self.host.handle(id).and_then(|handle| handle.grants()) {
            return Ok(grants);
        }
        let journal = self.journal(id)?;
        run_blocking(move || Ok(OpenState::read(&*journal)?.grants)).await
    }

    /// Revokes a grant; fails when the session has no such grant.
    pub async fn revoke(&self, id: &SessionId, grant: &PermissionId) -> Result<(), SessionError> {
        self.send_command(id, |reply| ActorCommand::Revoke(grant.clone(), reply)).await
    }

    /// Returns the sandbox of a running session, for access to its files. Fails when no agent runs: a new sandbox would
    /// start from the host's directory again, so only the client may start it.
    pub fn sandbox(&self, id: &SessionId) -> Result<Arc<dyn Sandbox>, SessionError> {
        if let Some(sandbox) = self.host.handle(id).and_then(|handle| handle.sandbox()) {
            return Ok(sandbox);
        }
        let record = self.host.store.index.get(id)?;
        if record.outcome.is_some() {
            return Err(SessionError::Ended(id.clone()));
        }
        let is_foreign = record.owner != *self.host.store.owner.id() && !self.host.store.index.is_orphan(&record)?;
        Err(if is_foreign {
            SessionError::RunByAnotherProcess(id.clone())
        } else {
            SessionError::NotRunning(id.clone())
        })
    }

    /// Adds a viewer to the terminal of an interactive session. Fails when the session has no open terminal.
    pub fn view_terminal(&self, id: &SessionId, access: ViewerAccess) -> Result<TerminalViewer, SessionError> {
        // Fails as for the sandbox when no agent runs.
        self.sandbox(id)?;
        let terminal = self.host.handle(id).and_then(|handle| handle.terminal());
        terminal.map(|terminal| terminal.attach(access)).ok_or_else(|| SessionError::NoTerminal(id.clone()))
    }

    /// Returns the policy of a session and how it is enforced, as recorded when its sandbox was created.
    pub async fn policy(&self, id: &SessionId) -> Result<PolicyEffective, SessionError> {
        let (journal, id) = (self.journal(id)?, id.clone());
        run_blocking(move || {
            let first = journal.after(0, 1)?.pop().map(|event| event.draft.body);
            match first {
                Some(EventBody::PolicyEffective(policy)) => Ok(policy),
                _ => Err(SessionError::Unreadable(id)),
            }
        })
        .await
    }

    /// Returns the models that the default upstream serves and the policy allows.
    pub fn models(&self) -> Vec<String> {
        let allowed =
            |model: &String| self.host.config.policy.decide(&policy::Action::Model(model.clone())).is_allowed();
        self.host.config.upstream.models().into_iter().filter(allowed).collect()
    }

    /// Returns the journal of a session. Concurrent callers share one journal.
    pub fn journal(&self, id: &SessionId) -> Result<Arc<dyn Journal>, SessionError> {
        if let Some(journal) = self.host.handle(id).and_then(|handle| handle.journal.get().cloned()) {
            return Ok(journal);
        }
        let record = self.host.store.index.get(id)?;
        refuse_damaged(&record)?;
        if record.outcome.is_some() || record.owner == *self.host.store.owner.id() {
            return Ok(self.host.store.journal(id)?.0);
        }
        let (reader, host) = (self.host.store.reader(id)?, self.host.clone());
        Ok(follow_journal(reader, &self.host.tasks, move || host.closing.load(Ordering::SeqCst))?)
    }

    /// Returns the data directory.
    pub fn directory(&self) -> &DataDir {
        self.host.store.directory()
    }

    /// Opens the store of idempotency keys of this data directory.
    pub fn idempotency_store(&self) -> Result<IdempotencyStore, DatabaseError> {
        self.host.store.idempotency_store()
    }

    /// Returns the folder of a session's saved changes.
    pub fn changes_directory(&self, id: &SessionId) -> PathBuf {
        self.host.store.changes(id)
    }

    /// Returns the pending requests of a session, oldest first.
    pub fn pending(&self, id: &SessionId) -> Result<Vec<PendingRequest>, SessionError> {
        if let Some(handle) = self.host.handle(id) {
            return Ok(handle.pending());
        }
        self.host.store.index.get(id)?;
        Ok(Vec::new())
    }

    /// Returns the pending requests of all sessions, oldest first.
    pub fn all_pending(&self) -> Vec<PendingRequest> {
        let mut all: Vec<_> = self.host.handles().iter().flat_map(|handle| handle.pending()).collect();
        all.sort_by(|one, other| one.asked_at.cmp(&other.asked_at));
        all
    }

    /// Returns the usage since a time in milliseconds, with one row for each value of `by`.
    pub async fn usage(&self, by: UsageGrouping, since_ms: i64) -> Result<Vec<UsageRow>, SessionError> {
        let host = self.host.clone();
        run_blocking(move || Ok(host.config.gateway.ledger().usage(by, since_ms)?)).await
    }

    /// Returns the usage of one session; `None` when it made no call. The usage of an imported session comes from its
    /// journal, because another host paid for it.
    pub async fn usage_of(&self, id: &SessionId) -> Result<Option<UsageRow>, SessionError> {
        self.host.store.index.get(id)?;
        if ImportedSession::find(self.host.store.directory(), id).is_some() {
            let (journal, id) = (self.journal(id)?, id.clone());
            return run_blocking(move || recorded_usage(&*journal, &id).map(Some)).await;
        }
        let rows = self.usage(UsageGrouping::Session, 0).await?;
        Ok(rows.into_iter().find(|row| row.name == id.as_str()))
    }

    /// Recovers sessions of dead hosts: settles calls whose cost is recorded, ends turns as interrupted, and expires
    /// pending requests. Returns the recovered sessions. An idle session is taken over at its first use. In both cases
    /// the agent starts with the next message.
    pub async fn recover(&self) -> Result<Vec<SessionId>, SessionError> {
        let host = self.host.clone();
        host.store.refill_spare_files();
        run_blocking(move || {
            let reconciled = host.config.gateway.settle_unknown_calls(host.store.directory())?;
            tracing::debug!(?reconciled, "reconciled unsettled calls");
            host.store.index.put_orphans_to_sleep()?;
            recover_orphans(&host.store)
        })
        .await
    }

    /// Interrupts every turn, kills every agent and accepts no more work. The sessions can be resumed later.
    pub async fn close_all(&self) {
        self.host.closing.store(true, Ordering::SeqCst);
        self.host.tasks.close();
        let closed = async {
            for handle in self.host.handles() {
                // An actor that has exited needs no command.
                let _ = handle.commands.send(Box::new(ActorCommand::Close)).await;
            }
            self.host.tasks.wait().await;
        };
        if tokio::time::timeout(CLOSE_TIMEOUT, closed).await.is_err() {
            tracing::error!("some sessions did not close in time; the next start recovers them");
        }
    }

    /// Sends a command to the actor of a session and waits for its reply.
    pub(crate) async fn send_command<T>(
        &self,
        id: &SessionId,
        command: impl FnOnce(ReplySender<T>) -> ActorCommand,
    ) -> Result<T, SessionError> {
        let handle = self.handle_of(id)?;
        let (reply, answer) = oneshot::channel();
        handle.commands.send(Box::new(command(reply))).await.map_err(|_| handle.exit_error())?;
        answer.await.map_err(|_| handle.exit_error())?
    }

    /// Returns the handle of a session. Spawns the actor of an idle session, without its agent.
    pub(crate) fn handle_of(&self, id: &SessionId) -> Result<Arc<SessionHandle>, SessionError> {
        if let Some(handle) = self.host.handle(id) {
            return Ok(handle);
        }
        let record = self.host.store.index.get(id)?;
        refuse_damaged(&record)?;
        if record.outcome.is_some() {
            return Err(SessionError::Ended(id.clone()));
        }
        if record.owner != *self.host.store.owner.id() && !self.host.store.index.is_orphan(&record)? {
            return Err(SessionError::RunByAnotherProcess(id.clone()));
        }
        let (handle, commands) = SessionHandle::new(id.clone(), None);
        let (handle, is_new) = self.host.register_or_get(&handle)?;
        if is_new {
            self.host.tasks.spawn(Actor::resume(self.host.clone(), handle.clone(), commands));
        }
        Ok(handle)
    }
}
