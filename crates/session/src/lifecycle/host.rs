//! State that all sessions of a process share, and the registry of running sessions.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use base::{HostLimit, LimitHits, lock};
use protocol::SessionId;
use tokio_util::task::TaskTracker;

use crate::config::hide_data_dir;
use crate::lifecycle::SessionHandle;
use crate::storage::SessionStore;
use crate::{GlobalFeed, ProjectPolicy, SessionError, SessionHostConfig};

/// State that all sessions of a process share.
pub(crate) struct SessionHost {
    pub(crate) config: SessionHostConfig,
    pub(crate) store: Arc<SessionStore>,
    /// Every task that serves a session.
    pub(crate) tasks: TaskTracker,
    /// Set when the host shuts down; from then on no session starts.
    pub(crate) closing: AtomicBool,
    /// Set before the host shuts down; from then on no turn starts.
    pub(crate) draining: AtomicBool,
    /// Whether sessions go on after their agents have crashed.
    pub(crate) survives_crashes: AtomicBool,
    handles: Mutex<HashMap<SessionId, Arc<SessionHandle>>>,
    feed: Mutex<Option<Arc<GlobalFeed>>>,
}

impl SessionHost {
    pub(crate) fn new(config: SessionHostConfig, store: SessionStore) -> Self {
        Self {
            closing: AtomicBool::new(false),
            draining: AtomicBool::new(false),
            survives_crashes: AtomicBool::new(config.lifetime.survives_crashes),
            config,
            store: Arc::new(store),
            tasks: TaskTracker::new(),
            handles: Mutex::default(),
            feed: Mutex::default(),
        }
    }

    /// Returns the feed of all sessions. The first call opens it with `open`.
    pub(crate) fn feed_or_open(
        &self,
        open: impl FnOnce(Arc<SessionStore>) -> Result<GlobalFeed, SessionError>,
    ) -> Result<Arc<GlobalFeed>, SessionError> {
        let mut feed = lock(&self.feed);
        match &*feed {
            Some(feed) => Ok(feed.clone()),
            None => Ok(feed.insert(Arc::new(open(self.store.clone())?)).clone()),
        }
    }

    /// Returns the policy of a session in `directory` that did not bring its own policy.
    pub(crate) fn policy_in(&self, directory: Option<&Path>) -> Result<Arc<policy::EffectivePolicy>, SessionError> {
        let policy = match (&self.config.project_policy, directory) {
            (Some(ProjectPolicy(narrow)), Some(directory)) => narrow(&self.config.policy, directory)?,
            _ => self.config.policy.clone(),
        };
        self.hide_data_dir(policy, directory)
    }

    /// Returns `policy` for a session in `directory`. When `directory` contains the data directory, the policy hides it.
    pub(crate) fn hide_data_dir(
        &self,
        policy: Arc<policy::EffectivePolicy>,
        directory: Option<&Path>,
    ) -> Result<Arc<policy::EffectivePolicy>, SessionError> {
        directory.map_or(Ok(policy.clone()), |directory| hide_data_dir(&policy, directory, self.store.directory()))
    }

    /// Fails when the host is about to shut down, so that no turn starts.
    pub(crate) fn refuse_while_draining(&self) -> Result<(), SessionError> {
        if self.draining.load(Ordering::SeqCst) { Err(SessionError::ShuttingDown) } else { Ok(()) }
    }

    /// Registers a new session; fails when a session with its id is registered.
    pub(crate) fn register(&self, handle: &Arc<SessionHandle>) -> Result<(), SessionError> {
        self.refuse_while_draining()?;
        let mut handles = self.open_handles()?;
        if !handles.contains_key(&handle.id) {
            self.check_session_count(&handles, handle.token.as_deref())?;
        }
        match handles.entry(handle.id.clone()) {
            Entry::Occupied(_) => Err(SessionError::AlreadyExists(handle.id.clone())),
            Entry::Vacant(vacant) => {
                vacant.insert(handle.clone());
                Ok(())
            }
        }
    }

    /// Fails if one more session would be too many, of the host or of the token that creates it.
    fn check_session_count(
        &self,
        open: &HashMap<SessionId, Arc<SessionHandle>>,
        token: Option<&str>,
    ) -> Result<(), SessionError> {
        let budget = &self.config.budget;
        let of_token = || open.values().filter(|handle| handle.token.as_deref() == token).count();
        let reached = if open.len() >= budget.sessions {
            (open.len(), HostLimit::Sessions)
        } else if token.is_some() && of_token() >= budget.sessions_per_token {
            (budget.sessions_per_token, HostLimit::SessionsPerToken)
        } else {
            return Ok(());
        };
        LimitHits::count(reached.1);
        tracing::warn!(open = reached.0, limit = reached.1.key(), "refused a session: too many are open");
        Err(SessionError::TooManySessions { open: reached.0, limit: reached.1 })
    }

    /// Returns the registered handle with the id of `new`, or registers `new`. The flag says whether `new` was registered.
    pub(crate) fn register_or_get(&self, new: &Arc<SessionHandle>) -> Result<(Arc<SessionHandle>, bool), SessionError> {
        Ok(match self.open_handles()?.entry(new.id.clone()) {
            Entry::Occupied(taken) => (taken.get().clone(), false),
            Entry::Vacant(vacant) => (vacant.insert(new.clone()).clone(), true),
        })
    }

    pub(crate) fn handle(&self, id: &SessionId) -> Option<Arc<SessionHandle>> {
        self.lock_handles().get(id).cloned()
    }

    pub(crate) fn handles(&self) -> Vec<Arc<SessionHandle>> {
        self.lock_handles().values().cloned().collect()
    }

    /// Removes `handle` from the registry. A later handle of the same session stays registered.
    pub(crate) fn unregister(&self, handle: &Arc<SessionHandle>) {
        let mut handles = self.lock_handles();
        if handles.get(&handle.id).is_some_and(|registered| Arc::ptr_eq(registered, handle)) {
            handles.remove(&handle.id);
        }
    }

    /// Writes the agent's own session id to the index. On failure the row is stale; the journal has the id.
    ///
    /// Runs on this thread: the write goes to the page cache, which is cheaper than waking another thread.
    pub(crate) fn index_native_id(&self, id: &SessionId, native: &str) {
        if let Err(error) = self.store.index.set_native_session_id(id, native) {
            tracing::warn!(session = %id, %error, "cannot write the agent's session id to the index");
        }
    }

    fn open_handles(&self) -> Result<MutexGuard<'_, HashMap<SessionId, Arc<SessionHandle>>>, SessionError> {
        let handles = self.lock_handles();
        // Read under the lock: a closing host sets the flag first, and then lists the handles.
        if self.closing.load(Ordering::SeqCst) { Err(SessionError::ShuttingDown) } else { Ok(handles) }
    }

    fn lock_handles(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<SessionHandle>>> {
        lock(&self.handles)
    }
}
