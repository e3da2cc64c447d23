//! How far sessions have come, by their place in the list: what the feed of all events is made of.

use std::collections::HashMap;

use base::lock;
use protocol::SessionId;
use rusqlite::{OptionalExtension, Params, Row, params};

use super::SessionIndex;
use crate::owner::is_alive;
use crate::{OwnerId, SessionIndexError};

/// How far a session has come, as the list of sessions knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SessionProgress {
    /// Its place in the list, which it keeps.
    pub place: i64,
    /// The session.
    pub id: SessionId,
    /// Number of its last event; late for one that has not ended.
    pub event_count: u64,
    /// Whether it has ended.
    pub ended: bool,
    owner: OwnerId,
}

impl SessionIndex {
    /// The sessions that were entered after the one at `place`, in that order.
    pub fn created_after(&self, place: i64) -> Result<Vec<SessionProgress>, SessionIndexError> {
        self.standings("WHERE place > ?1 ORDER BY place", [place])
    }

    /// The sessions that another process runs.
    pub fn running_elsewhere(&self, owner: &OwnerId) -> Result<Vec<SessionProgress>, SessionIndexError> {
        let all = self.standings("WHERE outcome IS NULL AND owner <> ?1 ORDER BY owner", [owner.as_str()])?;
        // An owner is asked once: it may have left thousands.
        let mut alive = HashMap::new();
        for standing in &all {
            if !alive.contains_key(&standing.owner) {
                let lives = is_alive(&self.owners, &standing.owner).map_err(SessionIndexError::Owner)?;
                alive.insert(standing.owner.clone(), lives);
            }
        }
        Ok(all.into_iter().filter(|standing| alive.get(&standing.owner) == Some(&true)).collect())
    }

    /// How far one session has come.
    pub fn progress(&self, id: &SessionId) -> Result<Option<SessionProgress>, SessionIndexError> {
        Ok(self.standings("WHERE id = ?1", [id.as_str()])?.pop())
    }

    /// The session at `place`, unless it was deleted.
    pub fn session_at(&self, place: i64) -> Result<Option<SessionId>, SessionIndexError> {
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("SELECT id FROM kept WHERE place = ?1")?;
        let id: Option<String> = statement.query_row(params![place], |row| row.get(0)).optional()?;
        Ok(id.and_then(|id| SessionId::new(id).ok()))
    }

    fn standings(&self, clause: &str, values: impl Params) -> Result<Vec<SessionProgress>, SessionIndexError> {
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
