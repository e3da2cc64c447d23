//! Event counts of sessions, from which the event feed is built.

use std::collections::HashMap;

use base::lock;
use protocol::SessionId;
use rusqlite::{OptionalExtension, Params, Row, params};

use super::SessionIndex;
use crate::owner::is_alive;
use crate::{OwnerId, SessionIndexError};

/// The number of events of a session, as the sessions index knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionProgress {
    /// The row number of the session; it never changes.
    pub place: i64,
    /// The session.
    pub id: SessionId,
    /// Number of the last event. It may lag behind the journal until the session ends.
    pub event_count: u64,
    /// Whether the session has ended.
    pub ended: bool,
    owner: OwnerId,
}

impl SessionIndex {
    /// Returns the sessions created after the session in row `place`, oldest first.
    pub fn created_after(&self, place: i64) -> Result<Vec<SessionProgress>, SessionIndexError> {
        self.read_progress("WHERE place > ?1 ORDER BY place", [place])
    }

    /// Returns the sessions that other live processes run.
    pub fn running_elsewhere(&self, owner: &OwnerId) -> Result<Vec<SessionProgress>, SessionIndexError> {
        let all = self.read_progress("WHERE outcome IS NULL AND owner <> ?1 ORDER BY owner", [owner.as_str()])?;
        // Each owner is checked once, because it may have thousands of sessions.
        let mut alive = HashMap::new();
        for progress in &all {
            if !alive.contains_key(&progress.owner) {
                let is_owner_alive = is_alive(&self.owners, &progress.owner).map_err(SessionIndexError::Owner)?;
                alive.insert(progress.owner.clone(), is_owner_alive);
            }
        }
        Ok(all.into_iter().filter(|progress| alive.get(&progress.owner) == Some(&true)).collect())
    }

    /// Returns the progress of one session; `None` if it does not exist.
    pub fn progress(&self, id: &SessionId) -> Result<Option<SessionProgress>, SessionIndexError> {
        Ok(self.read_progress("WHERE id = ?1", [id.as_str()])?.pop())
    }

    /// Returns the session in row `place`; `None` if it was deleted.
    pub fn session_at(&self, place: i64) -> Result<Option<SessionId>, SessionIndexError> {
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("SELECT id FROM kept WHERE place = ?1")?;
        let id: Option<String> = statement.query_row(params![place], |row| row.get(0)).optional()?;
        Ok(id.and_then(|id| SessionId::new(id).ok()))
    }

    fn read_progress(&self, clause: &str, values: impl Params) -> Result<Vec<SessionProgress>, SessionIndexError> {
        let sql = format!("SELECT place, id, event_count, outcome IS NOT NULL AS ended, owner FROM kept {clause}");
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached(&sql)?;
        let rows = statement.query_map(values, read)?.collect::<Result<_, _>>();
        Ok(rows?)
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<SessionProgress> {
    let id: String = row.get("id")?;
    let id = SessionId::new(id).map_err(|_| rusqlite::Error::InvalidQuery)?;
    let (place, event_count, ended) = (row.get("place")?, row.get("event_count")?, row.get("ended")?);
    Ok(SessionProgress { place, id, event_count, ended, owner: OwnerId::from_database(row.get("owner")?) })
}
