//! Status and counts of sessions in the index.
//!
//! The process that runs a session writes its status; for a session whose process is dead, the status is `asleep`.
//!
//! Not here: filters by status (`filter.rs`).

use std::collections::BTreeMap;

use base::lock;
use protocol::{EventBody, SessionId, SessionStatus};
use rusqlite::{Connection, params};

use super::SessionIndex;
use crate::owner::is_alive;
use crate::{OwnerId, SessionIndexError};

/// Adds status, labels, owner and counts. `session_text` finds sessions by parts of their texts.
pub(super) const MIGRATION: &str = "ALTER TABLE session ADD COLUMN status TEXT NOT NULL DEFAULT 'asleep';
ALTER TABLE session ADD COLUMN status_ms INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN labels TEXT;
ALTER TABLE session ADD COLUMN metadata TEXT;
ALTER TABLE session ADD COLUMN account TEXT;
ALTER TABLE session ADD COLUMN user TEXT;
ALTER TABLE session ADD COLUMN token TEXT;
ALTER TABLE session ADD COLUMN turns INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN cost_picos INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN denials INTEGER NOT NULL DEFAULT 0;
ALTER TABLE session ADD COLUMN last_prompt TEXT;
ALTER TABLE session ADD COLUMN interrupted INTEGER NOT NULL DEFAULT 0;
UPDATE session SET status_ms = updated_ms, status = iif(outcome IS NULL, 'asleep', 'ended');
DROP VIEW kept;
CREATE VIEW kept AS SELECT * FROM session WHERE deleted_ms IS NULL;
CREATE INDEX session_by_status ON session (status);
CREATE INDEX session_by_agent ON session (agent);
CREATE INDEX session_by_account ON session (account) WHERE account IS NOT NULL;
CREATE INDEX session_by_user ON session (user) WHERE user IS NOT NULL;
CREATE INDEX session_by_creation ON session (created_ms);
CREATE INDEX session_awake ON session (owner) WHERE status <> 'asleep' AND status <> 'ended';
CREATE INDEX session_interrupted ON session (interrupted) WHERE interrupted = 1;
CREATE TABLE session_label (
    key TEXT NOT NULL,
    value TEXT NOT NULL,
    place INTEGER NOT NULL,
    PRIMARY KEY (key, value, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_label_of ON session_label (place);
CREATE VIRTUAL TABLE session_text USING fts5 (
    id, name, title, last_prompt, content = 'session', content_rowid = 'place', tokenize = 'trigram', detail = 'none'
);
INSERT INTO session_text (session_text) VALUES ('rebuild');
CREATE TRIGGER session_text_insert AFTER INSERT ON session BEGIN
    INSERT INTO session_text (rowid, id, name, title, last_prompt)
    VALUES (new.place, new.id, new.name, new.title, new.last_prompt);
END;
CREATE TRIGGER session_text_delete AFTER DELETE ON session BEGIN
    INSERT INTO session_text (session_text, rowid, id, name, title, last_prompt)
    VALUES ('delete', old.place, old.id, old.name, old.title, old.last_prompt);
END;
CREATE TRIGGER session_text_update AFTER UPDATE OF title, last_prompt ON session
WHEN old.title IS NOT new.title OR old.last_prompt IS NOT new.last_prompt BEGIN
    INSERT INTO session_text (session_text, rowid, id, name, title, last_prompt)
    VALUES ('delete', old.place, old.id, old.name, old.title, old.last_prompt);
    INSERT INTO session_text (rowid, id, name, title, last_prompt)
    VALUES (new.place, new.id, new.name, new.title, new.last_prompt);
END;";

/// Counts of a session, or what is added to them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SessionTally {
    /// Turns that have ended.
    pub turns: u64,
    /// Cost of model calls in pico-dollars.
    pub cost_picos: i64,
    /// Connections that the policy denied.
    pub denials: u64,
}

impl SessionTally {
    /// Counts an event.
    pub fn count(&mut self, body: &EventBody) {
        match body {
            EventBody::TurnEnded(_) => self.turns += 1,
            EventBody::LlmCall(call) => self.cost_picos = self.cost_picos.saturating_add(call.cost_picos),
            EventBody::EgressDenied(_) => self.denials += 1,
            _ => {}
        }
    }

    /// Returns what has to be added to `known` to get these counts.
    #[must_use]
    pub fn since(self, known: Self) -> Self {
        Self {
            turns: self.turns.saturating_sub(known.turns),
            cost_picos: self.cost_picos.saturating_sub(known.cost_picos),
            denials: self.denials.saturating_sub(known.denials),
        }
    }
}

impl SessionIndex {
    /// Stores what a session does now, without syncing. A session that has ended does not change.
    pub fn set_status(&self, id: &SessionId, status: SessionStatus, since_ms: i64) -> Result<(), SessionIndexError> {
        let sql = "UPDATE session SET status = ?1, status_ms = ?2, interrupted = 0, updated_ms = max(updated_ms, ?2)
             WHERE id = ?3 AND deleted_ms IS NULL AND outcome IS NULL";
        lock(&self.connection).prepare_cached(sql)?.execute(params![status.as_str(), since_ms, id.as_str()])?;
        Ok(())
    }

    /// Sets the status of sessions whose process is dead to `asleep`, and marks those that worked or had queued messages.
    pub fn put_orphans_to_sleep(&self) -> Result<(), SessionIndexError> {
        let sql = "UPDATE session SET interrupted = status <> 'idle', status = 'asleep', status_ms = ?1
             WHERE status <> 'asleep' AND status <> 'ended' AND outcome IS NULL AND owner = ?2";
        for owner in self.owners_of_awake_sessions()? {
            if !is_alive(&self.owners, &owner).map_err(SessionIndexError::Owner)? {
                lock(&self.connection).prepare_cached(sql)?.execute(params![self.now(), owner.as_str()])?;
            }
        }
        Ok(())
    }

    /// Returns the sessions that worked or had queued messages when their process died, oldest first.
    pub fn interrupted(&self) -> Result<Vec<SessionId>, SessionIndexError> {
        self.put_orphans_to_sleep()?;
        let connection = lock(&self.connection);
        let sql = "SELECT id FROM kept WHERE interrupted = 1 AND outcome IS NULL ORDER BY place";
        let mut statement = connection.prepare_cached(sql)?;
        let ids = statement.query_map([], |row| row.get::<_, String>(0))?.collect::<rusqlite::Result<Vec<_>>>()?;
        Ok(ids.into_iter().filter_map(|id| SessionId::new(id).ok()).collect())
    }

    /// Returns the owners of sessions that are not asleep.
    fn owners_of_awake_sessions(&self) -> Result<Vec<OwnerId>, SessionIndexError> {
        let connection = lock(&self.connection);
        // The conditions are those of the index, which alone is read.
        let sql = "SELECT DISTINCT owner FROM session WHERE status <> 'asleep' AND status <> 'ended'";
        let mut statement = connection.prepare_cached(sql)?;
        let owners = statement.query_map([], |row| Ok(OwnerId::from_database(row.get(0)?)))?.collect::<Result<_, _>>();
        Ok(owners?)
    }
}

/// Replaces the rows by which lists find a session by its labels.
pub(super) fn replace_labels(
    connection: &Connection,
    id: &SessionId,
    labels: &BTreeMap<String, String>,
) -> rusqlite::Result<()> {
    let place = "(SELECT place FROM session WHERE id = ?1)";
    connection.prepare_cached(&format!("DELETE FROM session_label WHERE place = {place}"))?.execute([id.as_str()])?;
    let insert = format!("INSERT INTO session_label (place, key, value) VALUES ({place}, ?2, ?3)");
    for (key, value) in labels {
        connection.prepare_cached(&insert)?.execute(params![id.as_str(), key, value])?;
    }
    Ok(())
}
