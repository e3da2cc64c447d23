//! What all sessions of a process share, and who sits where.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use base::lock;
use protocol::SessionId;
use tokio_util::task::TaskTracker;

use crate::seat::Seat;
use crate::shelf::Shelf;
use crate::workspaces::hide_data;
use crate::{GlobalFeed, ProjectPolicy, SessionError, SessionHostConfig};

/// State that all sessions of a process share.
pub(crate) struct SessionHost {
    pub(crate) config: SessionHostConfig,
    pub(crate) shelf: Arc<Shelf>,
    /// Every task that serves a session.
    pub(crate) tasks: TaskTracker,
    /// Set when the host shuts down; from then on no session starts.
    pub(crate) closing: AtomicBool,
    seats: Mutex<HashMap<SessionId, Arc<Seat>>>,
    everything: Mutex<Option<Arc<GlobalFeed>>>,
}

impl SessionHost {
    pub(crate) fn new(config: SessionHostConfig, shelf: Shelf) -> Self {
        Self {
            config,
            shelf: Arc::new(shelf),
            tasks: TaskTracker::new(),
            closing: AtomicBool::new(false),
            seats: Mutex::default(),
            everything: Mutex::default(),
        }
    }

    /// The events of all sessions: opened when they are first asked for, and then kept.
    pub(crate) fn everything(
        &self,
        open: impl FnOnce(Arc<Shelf>) -> Result<GlobalFeed, SessionError>,
    ) -> Result<Arc<GlobalFeed>, SessionError> {
        let mut everything = lock(&self.everything);
        match &*everything {
            Some(everything) => Ok(everything.clone()),
            None => Ok(everything.insert(Arc::new(open(self.shelf.clone())?)).clone()),
        }
    }

    /// What a session in `directory` may do when nobody chose another policy for it.
    pub(crate) fn policy_in(&self, directory: Option<&Path>) -> Result<Arc<policy::EffectivePolicy>, SessionError> {
        let policy = match (&self.config.project_policy, directory) {
            (Some(ProjectPolicy(narrow)), Some(directory)) => narrow(&self.config.policy, directory)?,
            _ => self.config.policy.clone(),
        };
        self.hide_data(policy, directory)
    }

    /// `policy` for a session in `directory`: where that holds the data directory, the session does not see it.
    pub(crate) fn hide_data(
        &self,
        policy: Arc<policy::EffectivePolicy>,
        directory: Option<&Path>,
    ) -> Result<Arc<policy::EffectivePolicy>, SessionError> {
        directory.map_or(Ok(policy.clone()), |directory| hide_data(&policy, directory, self.shelf.directory()))
    }

    /// Takes a seat for a new session, unless somebody sits there.
    pub(crate) fn sit(&self, seat: &Arc<Seat>) -> Result<(), SessionError> {
        match self.seats()?.entry(seat.id.clone()) {
            Entry::Occupied(_) => Err(SessionError::AlreadyExists(seat.id.clone())),
            Entry::Vacant(vacant) => {
                vacant.insert(seat.clone());
                Ok(())
            }
        }
    }

    /// The seat of `id`, or `new` if nobody sits there; and whether it is the new one.
    pub(crate) fn sit_or_join(&self, new: &Arc<Seat>) -> Result<(Arc<Seat>, bool), SessionError> {
        Ok(match self.seats()?.entry(new.id.clone()) {
            Entry::Occupied(taken) => (taken.get().clone(), false),
            Entry::Vacant(vacant) => (vacant.insert(new.clone()).clone(), true),
        })
    }

    pub(crate) fn seat(&self, id: &SessionId) -> Option<Arc<Seat>> {
        self.all_seats().get(id).cloned()
    }

    pub(crate) fn occupied(&self) -> Vec<Arc<Seat>> {
        self.all_seats().values().cloned().collect()
    }

    /// The actor of `seat` is done; a later one of the same session is left alone.
    pub(crate) fn leave(&self, seat: &Arc<Seat>) {
        let mut seats = self.all_seats();
        if seats.get(&seat.id).is_some_and(|seated| Arc::ptr_eq(seated, seat)) {
            seats.remove(&seat.id);
        }
    }

    /// Keeps the list of sessions up to date. The journal holds the truth, so a failure costs a stale row.
    ///
    /// It goes into the page cache, which takes less than to wake another thread for it.
    pub(crate) fn note_native(&self, id: &SessionId, native: &str) {
        if let Err(error) = self.shelf.index.name_native(id, native) {
            tracing::warn!(session = %id, %error, "cannot note the agent's own name of a session");
        }
    }

    fn seats(&self) -> Result<MutexGuard<'_, HashMap<SessionId, Arc<Seat>>>, SessionError> {
        let seats = self.all_seats();
        // Looked at under the lock: whoever closes the host sets it first and then asks who sits where.
        if self.closing.load(Ordering::SeqCst) { Err(SessionError::ShuttingDown) } else { Ok(seats) }
    }

    fn all_seats(&self) -> MutexGuard<'_, HashMap<SessionId, Arc<Seat>>> {
        lock(&self.seats)
    }
}
