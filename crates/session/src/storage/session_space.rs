//! The disk space of sessions: their stored bodies, and the free space that must be left.

use std::collections::HashSet;
use std::sync::Arc;

use base::Digest;
use gateway::BodyStore;
use store::{FileBodyStore, FileJournal, StorageMeter};

use crate::SessionError;
use crate::storage::SessionStore;

impl SessionStore {
    /// Returns the store for the bodies of a session, which count towards `storage`.
    pub(crate) fn bodies(&self, storage: Option<Arc<StorageMeter>>, compress: bool) -> Arc<dyn BodyStore> {
        Arc::new(FileBodyStore::new(self.directory()).with_storage_meter(storage).with_compression(compress))
    }

    /// Counts bodies that were stored before a restart towards the disk space of their session.
    pub(crate) fn count_stored_bodies(&self, journal: &FileJournal, digests: &HashSet<Digest>) {
        let bodies = FileBodyStore::new(self.directory());
        if let Some(storage) = journal.storage() {
            storage.set_body_bytes(digests.iter().map(|digest| bodies.stored_bytes(*digest)).sum());
        }
    }

    /// Fails if the disk has too little free space for a new session or turn.
    pub(crate) fn check_free_space(&self) -> Result<(), SessionError> {
        Ok(self.storage.free_space.check(self.directory().root())?)
    }
}
