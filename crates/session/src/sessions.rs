//! Every session of a data directory, as its callers know them.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use protocol::{CreateSession, EventBody, Grant, PermissionId, PolicyEffective, SessionId, SessionInfo};
use sandbox::Sandbox;
use store::{DataDir, DatabaseError, IdempotencyStore, Journal, OwnerId, SessionPatch, UsageGrouping, UsageRow};
use tokio::sync::oneshot;

use crate::actor::Actor;
use crate::command::{Command, Reply};
use crate::host::SessionHost;
use crate::left::Left;
use crate::pending::PendingRequest;
use crate::plan::Plan;
use crate::recovery;
use crate::roster::AgentRegistry;
use crate::seat::Seat;
use crate::shelf::{Shelf, blocking};
use crate::to_its_end::detach_on_drop;
use crate::watched::watch;
use crate::workbench::CommandSession;
use crate::{
    AcceptedMessage, DriftByAgent, ImportedSession, SessionError, SessionHostConfig, SessionOptions, UserMessage,
    WorkspaceAccess, drift, imported,
};

/// Sessions that do not end in this time when the host goes away are left to the next start.
const CLOSE_BOUND: Duration = Duration::from_secs(5);

/// Every session of a data directory. Cheap to clone: all clones are the same.
#[derive(Clone)]
pub struct Sessions {
    pub(crate) host: Arc<SessionHost>,
}

impl Sessions {
    /// Opens the sessions of a data directory. What others left behind stays as it is until [`Self::recover`].
    pub fn open(config: SessionHostConfig) -> Result<Self, SessionError> {
        let shelf = Shelf::open(config.data_dir.clone(), config.clock.clone())?;
        Ok(Self { host: Arc::new(SessionHost::new(config, shelf)) })
    }

    /// This process, as others find it in the list of sessions.
    pub fn owner(&self) -> &OwnerId {
        self.host.shelf.owner.id()
    }

    /// The agents that can be started.
    pub fn agents(&self) -> &AgentRegistry {
        &self.host.config.agents
    }

    /// How often each version of each agent was not understood, in all sessions of the data directory.
    pub fn drift(&self) -> Result<DriftByAgent, SessionError> {
        Ok(drift::by_agent(self.host.shelf.index.drift()?))
    }

    /// What the egress proxy did for all sessions, since this process started.
    pub fn egress_totals(&self) -> egress::EgressTotals {
        self.host.config.egress.totals()
    }

    /// Makes a session and starts its agent. Of two who make the same id at once, one succeeds.
    pub async fn create(
        &self,
        id: SessionId,
        request: CreateSession,
        options: SessionOptions,
    ) -> Result<SessionInfo, SessionError> {
        let plan = Plan::check(&self.host, id.clone(), request, options)?;
        self.begin(id, plan).await
    }

    pub(crate) async fn begin(&self, id: SessionId, plan: Plan) -> Result<SessionInfo, SessionError> {
        let (seat, commands) = Seat::new(id.clone());
        self.host.sit(&seat)?;
        match self.host.shelf.index.get(&id) {
            Ok(record) if self.host.shelf.was_unmade(&record) => self.host.shelf.unmake(&id),
            Ok(_) => {
                self.host.leave(&seat);
                return Err(SessionError::AlreadyExists(id));
            }
            Err(_) => {}
        }
        // Whoever asked may leave; the session is there all the same.
        let made = detach_on_drop(&self.host.tasks, Actor::begin(self.host.clone(), seat, plan, commands)).await;
        let record = made.map_err(|error| match error {
            SessionError::AlreadyExists(id) => self.host.shelf.taken(id),
            other => other,
        })?;
        Ok(self.told(record))
    }

    /// Makes a session without a dialogue, for commands: with an agent's program and environment in its sandbox, or
    /// with none where `request` names no agent.
    pub async fn open_command_session(
        &self,
        id: SessionId,
        request: CreateSession,
        options: SessionOptions,
    ) -> Result<CommandSession, SessionError> {
        let plan = Plan::check_commands(&self.host, id, request, options)?;
        CommandSession::open(&self.host, plan).await
    }

    /// The directory that `path` names, without links, if a session may be made on it.
    pub fn check_directory(&self, path: &Path, workspaces: &WorkspaceAccess) -> Result<PathBuf, SessionError> {
        workspaces.resolve(path, self.host.shelf.directory())
    }

    /// Hands a message to the agent, now or when its turn comes. It is on record when this returns.
    pub async fn send(&self, id: &SessionId, message: UserMessage) -> Result<AcceptedMessage, SessionError> {
        self.ask(id, |reply| Command::Send(message, reply)).await
    }

    /// Starts the agent of a session that sleeps, and goes on with the messages that wait. Nobody needs to: the
    /// next message does the same.
    pub async fn resume(&self, id: &SessionId) -> Result<(), SessionError> {
        self.ask(id, Command::Resume).await
    }

    /// Gives a session another title, also after its end.
    pub async fn rename(&self, id: &SessionId, title: String) -> Result<SessionInfo, SessionError> {
        let change = SessionPatch { title: Some(title), ..SessionPatch::default() };
        self.host.shelf.update(id, change).await?;
        self.get(id)
    }

    /// Asks the agent to stop its turn; without a turn this does nothing.
    pub async fn interrupt(&self, id: &SessionId) -> Result<(), SessionError> {
        self.ask(id, Command::Interrupt).await
    }

    /// Ends a session. When this returns every process of it is dead and nothing more will be recorded;
    /// for one that has ended before this does nothing.
    pub async fn terminate(&self, id: &SessionId) -> Result<(), SessionError> {
        match self.ask(id, Command::Terminate).await {
            Err(SessionError::Ended(_) | SessionError::Damaged { .. }) => Ok(()),
            outcome => outcome,
        }
    }

    /// Ends a session if it runs, and forgets it: its record, its changes, its agent's memory. What it cost stays in
    /// the ledger, and its id is never used again.
    pub async fn delete(&self, id: &SessionId) -> Result<(), SessionError> {
        self.terminate(id).await?;
        if self.host.shelf.delete(id).await? { Ok(()) } else { Err(SessionError::NotFound(id.clone())) }
    }

    /// What was allowed for the rest of a session.
    pub async fn grants(&self, id: &SessionId) -> Result<Vec<Grant>, SessionError> {
        if let Some(grants) = self.host.seat(id).and_then(|seat| seat.grants()) {
            return Ok(grants);
        }
        let journal = self.journal(id)?;
        blocking(move || Ok(Left::read(&*journal)?.grants)).await
    }

    /// Takes back what was allowed for the rest of a session.
    pub async fn revoke(&self, id: &SessionId, grant: &PermissionId) -> Result<(), SessionError> {
        self.ask(id, |reply| Command::Revoke(grant.clone(), reply)).await
    }

    /// The sandbox of a session that runs here, for what is done to its files. One that sleeps has none: starting an
    /// agent, and with it a sandbox that begins with the host's directory again, is for the client to say.
    pub fn sandbox(&self, id: &SessionId) -> Result<Arc<dyn Sandbox>, SessionError> {
        if let Some(sandbox) = self.host.seat(id).and_then(|seat| seat.sandbox()) {
            return Ok(sandbox);
        }
        let record = self.host.shelf.index.get(id)?;
        if record.outcome.is_some() {
            return Err(SessionError::Ended(id.clone()));
        }
        let elsewhere = record.owner != *self.host.shelf.owner.id() && !self.host.shelf.index.is_orphan(&record)?;
        Err(if elsewhere {
            SessionError::RunByAnotherProcess(id.clone())
        } else {
            SessionError::NotRunning(id.clone())
        })
    }

    /// What a session may do, and by what means: as it was told when its sandbox was made.
    pub async fn policy(&self, id: &SessionId) -> Result<PolicyEffective, SessionError> {
        let (journal, id) = (self.journal(id)?, id.clone());
        blocking(move || {
            let first = journal.after(0, 1)?.pop().map(|event| event.draft.body);
            match first {
                Some(EventBody::PolicyEffective(policy)) => Ok(policy),
                _ => Err(SessionError::Unreadable(id)),
            }
        })
        .await
    }

    /// The models an agent can be given: those that are served and that the policy allows.
    pub fn models(&self) -> Vec<String> {
        let allowed =
            |model: &String| self.host.config.policy.decide(&policy::Action::Model(model.clone())).is_allowed();
        self.host.config.upstream.models().into_iter().filter(allowed).collect()
    }

    /// The record of a session. Everybody who asks while somebody holds it gets the same one.
    pub fn journal(&self, id: &SessionId) -> Result<Arc<dyn Journal>, SessionError> {
        if let Some(journal) = self.host.seat(id).and_then(|seat| seat.journal.get().cloned()) {
            return Ok(journal);
        }
        let record = self.host.shelf.index.get(id)?;
        recovery::refuse_damaged(&record)?;
        if record.outcome.is_some() || record.owner == *self.host.shelf.owner.id() {
            return Ok(self.host.shelf.journal(id)?.0);
        }
        let (reader, host) = (self.host.shelf.reader(id)?, self.host.clone());
        Ok(watch(reader, &self.host.tasks, move || host.closing.load(Ordering::SeqCst))?)
    }

    /// Where everything is kept.
    pub fn directory(&self) -> &DataDir {
        self.host.shelf.directory()
    }

    /// The requests that callers of this data directory have named.
    pub fn idempotency_store(&self) -> Result<IdempotencyStore, DatabaseError> {
        self.host.shelf.requests()
    }

    /// Where what a session changed in its workspace is kept.
    pub fn changes_directory(&self, id: &SessionId) -> PathBuf {
        self.host.shelf.changes(id)
    }

    /// What a session waits for, oldest first.
    pub fn pending(&self, id: &SessionId) -> Result<Vec<PendingRequest>, SessionError> {
        if let Some(seat) = self.host.seat(id) {
            return Ok(seat.pending());
        }
        self.host.shelf.index.get(id)?;
        Ok(Vec::new())
    }

    /// What any session waits for, oldest first.
    pub fn all_pending(&self) -> Vec<PendingRequest> {
        let mut all: Vec<_> = self.host.occupied().iter().flat_map(|seat| seat.pending()).collect();
        all.sort_by(|one, other| one.asked_at.cmp(&other.asked_at));
        all
    }

    /// What was used since a time in milliseconds, one row a session, account, user, agent, model or day.
    pub async fn usage(&self, by: UsageGrouping, since_ms: i64) -> Result<Vec<UsageRow>, SessionError> {
        let host = self.host.clone();
        blocking(move || Ok(host.config.gateway.ledger().usage(by, since_ms)?)).await
    }

    /// What one session used, from its beginning; nothing yet when it made no call. One from a bundle was paid for
    /// elsewhere: its own record tells.
    pub async fn usage_of(&self, id: &SessionId) -> Result<Option<UsageRow>, SessionError> {
        self.host.shelf.index.get(id)?;
        if ImportedSession::find(self.host.shelf.directory(), id).is_some() {
            let (journal, id) = (self.journal(id)?, id.clone());
            return blocking(move || imported::usage(&*journal, &id).map(Some)).await;
        }
        let rows = self.usage(UsageGrouping::Session, 0).await?;
        Ok(rows.into_iter().find(|row| row.name == id.as_str()))
    }

    /// Takes over what processes that were killed left open: calls are settled as far as their journals know what
    /// they cost, turns end as interrupted, permissions and questions as expired. Returns the sessions this was done
    /// to. A session that was at rest is taken over when somebody uses it; in both cases its agent starts with the
    /// next message.
    pub async fn recover(&self) -> Result<Vec<SessionId>, SessionError> {
        let host = self.host.clone();
        host.shelf.keep_spares();
        blocking(move || {
            let reconciled = host.config.gateway.settle_unknown(host.shelf.directory())?;
            tracing::debug!(?reconciled, "looked up calls that were never settled");
            recovery::recover(&host.shelf)
        })
        .await
    }

    /// Ends every agent, interrupts every turn, and takes no more work. The sessions themselves stay.
    pub async fn close_all(&self) {
        self.host.closing.store(true, Ordering::SeqCst);
        self.host.tasks.close();
        let closed = async {
            for seat in self.host.occupied() {
                // An actor that is gone has closed itself.
                let _ = seat.commands.send(Box::new(Command::Close)).await;
            }
            self.host.tasks.wait().await;
        };
        if tokio::time::timeout(CLOSE_BOUND, closed).await.is_err() {
            tracing::error!("some sessions did not close in time; the next start recovers them");
        }
    }

    pub(crate) async fn ask<T>(
        &self,
        id: &SessionId,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, SessionError> {
        let seat = self.seat(id)?;
        let (reply, answer) = oneshot::channel();
        seat.commands.send(Box::new(command(reply))).await.map_err(|_| seat.unheard())?;
        answer.await.map_err(|_| seat.unheard())?
    }

    /// The seat of a session; one that sleeps is woken, without its agent.
    fn seat(&self, id: &SessionId) -> Result<Arc<Seat>, SessionError> {
        if let Some(seat) = self.host.seat(id) {
            return Ok(seat);
        }
        let record = self.host.shelf.index.get(id)?;
        recovery::refuse_damaged(&record)?;
        if record.outcome.is_some() {
            return Err(SessionError::Ended(id.clone()));
        }
        if record.owner != *self.host.shelf.owner.id() && !self.host.shelf.index.is_orphan(&record)? {
            return Err(SessionError::RunByAnotherProcess(id.clone()));
        }
        let (seat, commands) = Seat::new(id.clone());
        let (seat, is_new) = self.host.sit_or_join(&seat)?;
        if is_new {
            self.host.tasks.spawn(Actor::resume(self.host.clone(), seat.clone(), commands));
        }
        Ok(seat)
    }
}
