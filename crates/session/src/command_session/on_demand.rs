//! A command session whose journal is created by the first network event, or by changes of the workspace at its end.
//!
//! Most commands of `viv exec` use no network and change nothing. Those leave no file in the data directory, and do not
//! wait for one.

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};

use agents::McpServers;
use base::{WORKSPACE, lock};
use egress::Egress;
use policy::EffectivePolicy;
use protocol::{
    Event, EventBody, EventDraft, KeyEnforcements, SessionEnded, SessionId, SessionRegistered, WorkspaceChanged,
};
use sandbox::{OverlayLayers, Sandbox, SandboxBackend, SavedChanges};
use store::{
    DataDir, FileJournal, Journal, JournalError, NewSession, SessionOrigin, SessionPatch, StorageExceeded, StoredRange,
    SystemClock,
};
use tokio::sync::watch;
use tokio_util::task::TaskTracker;

use super::environment::CommandEnvironment;
use super::{CommandSession, Registration};
use crate::lifecycle::{
    Listeners, NO_AGENT, Recorder, SandboxCredentials, SessionPlan, git_config, summarize_changes, workspace_at,
};
use crate::skills::SkillSources;
use crate::storage::{SessionStore, run_blocking};
use crate::{HostBudget, HostVariables, SessionError, SessionOptions};

/// Settings of a command session that is recorded on demand.
pub struct OnDemandSettings {
    /// The session.
    pub id: SessionId,
    /// Title in the list of sessions.
    pub title: String,
    /// Directory of the host at `/workspace`; an empty one without it.
    pub workspace: Option<PathBuf>,
    /// Directory of the host at `/deps`, read-only.
    pub dependencies: Option<PathBuf>,
    /// Rules for the sandbox.
    pub policy: Arc<EffectivePolicy>,
    /// Makes the sandbox.
    pub backend: Arc<dyn SandboxBackend>,
    /// Proxy for the network.
    pub egress: Egress,
    /// Variables of the host that `env.pass` of the policy can name.
    pub variables: HostVariables,
    /// Directory for the journal.
    pub data_dir: PathBuf,
    /// The most that this process spends for the session.
    pub budget: HostBudget,
}

/// Makes the sandbox and serves its egress port.
pub(super) async fn open(settings: OnDemandSettings) -> Result<CommandSession, SessionError> {
    let OnDemandSettings { id, title, workspace, dependencies, policy, backend, egress, variables, data_dir, budget } =
        settings;
    let options = SessionOptions { dependencies, ..SessionOptions::default() };
    let workspace = workspace.map(|path| path.canonicalize().unwrap_or(path));
    let workspace_at = workspace_at(&*backend, workspace.as_deref(), &policy);
    let plan = Arc::new(SessionPlan { workspace_at, ..plan(id, title, workspace, options, policy) });
    plan.check_workspace(&data_dir)?;
    let credentials = SandboxCredentials::issue(&egress, &plan)?;
    let files = credentials.files().into_iter().chain([git_config(&variables, &plan)]);
    let spec = plan.sandbox_spec(&variables, Vec::new(), files.collect());
    let sandbox = backend.create(spec).await?;
    let journal = Arc::new(OnDemandJournal::new(data_dir, plan.clone(), backend.name(), &*sandbox, budget));
    let recorder = Recorder::new(journal.clone());
    let listeners = match Listeners::open_egress(&egress, &plan, &recorder, &*sandbox, &credentials, &journal.budget) {
        Ok(listeners) => listeners,
        Err(error) => {
            sandbox.destroy().await?;
            return Err(error);
        }
    };
    let mut environment = CommandEnvironment::bare();
    listeners.add_variables(&mut environment.env);
    variables.pass(&sandbox.toolchains(), &plan.policy, &mut environment.env);
    let (registration, tasks) = (Registration::OnDemand(journal), TaskTracker::new());
    Ok(CommandSession {
        plan,
        recorder,
        sandbox,
        listeners,
        environment,
        registration,
        tasks,
        background: Mutex::default(),
    })
}

/// Returns the plan of a session that runs commands without an agent.
fn plan(
    id: SessionId,
    title: String,
    directory: Option<PathBuf>,
    options: SessionOptions,
    policy: Arc<EffectivePolicy>,
) -> SessionPlan {
    SessionPlan {
        policy_digest: policy.digest().to_owned(),
        policy,
        id,
        agent: NO_AGENT.to_owned(),
        agent_version: None,
        agent_mode: None,
        permission_mode: None,
        model: None,
        upstream: None,
        title: Some(title),
        labels: std::collections::BTreeMap::new(),
        rules: Vec::new(),
        environment: std::collections::BTreeMap::new(),
        metadata: None,
        directory,
        workspace_at: WORKSPACE.into(),
        options,
        epoch: 1,
        native_session_id: None,
        was_replay: false,
        mcp: McpServers::default(),
        skills: SkillSources::default(),
        forked_from: None,
        continues: false,
        policy_changes: Vec::new(),
        terminal: None,
    }
}

fn is_empty(changes: &WorkspaceChanged) -> bool {
    changes.added.is_empty() && changes.modified.is_empty() && changes.deleted.is_empty()
}

/// A journal that is created when the first event is stored.
pub(super) struct OnDemandJournal {
    data_dir: PathBuf,
    plan: Arc<SessionPlan>,
    sandbox_id: String,
    backend: String,
    /// The policy as the sandbox enforces it, key by key.
    enforced: KeyEnforcements,
    budget: HostBudget,
    /// The limit of disk space that a record reached.
    storage_reached: watch::Sender<Option<StorageExceeded>>,
    last: watch::Sender<u64>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    created: Option<Created>,
    /// Events that are stored only if the journal is created.
    deferred: Vec<EventDraft>,
}

/// The journal, once there is one.
#[derive(Clone)]
struct Created {
    store: Arc<SessionStore>,
    journal: Arc<FileJournal>,
}

impl OnDemandJournal {
    fn new(
        data_dir: PathBuf,
        plan: Arc<SessionPlan>,
        backend: &str,
        sandbox: &dyn Sandbox,
        budget: HostBudget,
    ) -> Self {
        Self {
            data_dir,
            plan,
            sandbox_id: sandbox.id().to_owned(),
            backend: backend.to_owned(),
            enforced: sandbox.effective(),
            budget,
            storage_reached: watch::Sender::new(None),
            last: watch::Sender::new(0),
            state: Mutex::default(),
        }
    }

    /// Stores an event if the journal exists; otherwise when it is created, which may be never.
    pub(super) fn defer(&self, body: EventBody) -> Result<(), JournalError> {
        let mut state = self.state();
        let draft = EventDraft::daemon(body);
        if let Some(created) = &state.created {
            return self.write(created, &[draft]).map(drop);
        }
        state.deferred.push(draft);
        Ok(())
    }

    /// Saves the changes of the workspace for review, and records their summary. Does nothing if nothing changed.
    pub(super) async fn save_changes(&self, layers: OverlayLayers) -> Result<(), SessionError> {
        if !layers.has_entries() {
            return Ok(());
        }
        let into = DataDir::open(&self.data_dir)?.change_set(&self.plan.id);
        let saved = move || -> Result<WorkspaceChanged, SessionError> {
            let changes = summarize_changes(&SavedChanges::save_final(&layers, &into).map_err(SessionError::Changes)?);
            if is_empty(&changes) {
                // A file that was written and removed, or touched, is not worth a session.
                sandbox::discard(&into).map_err(SessionError::Changes)?;
            }
            Ok(changes)
        };
        let changes = run_blocking(saved).await?;
        if !is_empty(&changes) {
            self.store(&[EventDraft::daemon(EventBody::WorkspaceChanged(changes))])?;
        }
        Ok(())
    }

    /// Closes the journal and updates the list of sessions; does nothing if no event was stored.
    pub(super) async fn end(&self, ended: SessionEnded) -> Result<(), SessionError> {
        let Some(Created { store, journal }) = self.state().created.clone() else { return Ok(()) };
        let outcome = Some(ended.reason.into());
        let event_count = Some(journal.append(EventDraft::daemon(EventBody::SessionEnded(ended)))?.sequence);
        journal.sync()?;
        store.update(&self.plan.id, SessionPatch { event_count, outcome, ..SessionPatch::default() }).await
    }

    /// Waits until a record is refused because the session has no disk space left, and returns the limit.
    pub(super) async fn storage_reached(&self) -> StorageExceeded {
        let mut reached = self.storage_reached.subscribe();
        let exceeded = reached.wait_for(Option::is_some).await.ok().and_then(|exceeded| *exceeded);
        match exceeded {
            Some(exceeded) => exceeded,
            None => std::future::pending().await,
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    fn create(&self) -> Result<Created, SessionError> {
        let store =
            Arc::new(SessionStore::open(DataDir::open(&self.data_dir)?, Arc::new(SystemClock), self.budget.storage)?);
        let (journal, _) = store
            .register(&NewSession { origin: SessionOrigin::Exec, ..self.plan.index_row(store.owner.id().clone()) })?;
        store.check_free_space()?;
        let (now, enforced) = (store.now_unix_secs(), self.enforced.clone());
        let effective = self.plan.effective_policy_at(now, &self.backend, enforced, &self.budget);
        let registered = SessionRegistered {
            session_id: self.plan.id.clone(),
            sandbox_id: self.sandbox_id.clone(),
            task_name: None,
        };
        let opening = [
            EventBody::PolicyEffective(effective),
            EventBody::SessionRegistered(registered),
            EventBody::SessionStarted(self.plan.started_event()),
        ];
        journal.store(&opening.map(EventDraft::daemon))?;
        Ok(Created { store, journal })
    }

    fn write(&self, created: &Created, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        let stored = created.journal.store(drafts).inspect_err(|error| {
            if let JournalError::StorageLimit(exceeded) = error {
                self.storage_reached.send_replace(Some(*exceeded));
            }
        })?;
        self.last.send_replace(*created.journal.last().borrow());
        Ok(stored)
    }
}

impl Journal for OnDemandJournal {
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        let mut state = self.state();
        let created = if let Some(created) = &state.created {
            created.clone()
        } else {
            let created = self.create().map_err(|error| JournalError::Io {
                doing: "begin",
                path: self.data_dir.clone(),
                source: io::Error::other(error),
            })?;
            let deferred = std::mem::take(&mut state.deferred);
            if !deferred.is_empty() {
                self.write(&created, &deferred)?;
            }
            state.created.insert(created).clone()
        };
        self.write(&created, drafts)
    }

    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        let created = self.state().created.clone();
        created.map_or_else(|| Ok(Vec::new()), |created| created.journal.after(sequence, limit))
    }

    fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn sync(&self) -> Result<(), JournalError> {
        let created = self.state().created.clone();
        created.map_or(Ok(()), |created| created.journal.sync())
    }
}
