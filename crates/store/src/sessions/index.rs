//! The table of sessions.

mod drift;
mod standing;

use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use base::lock;
use protocol::SessionId;
use rusqlite::{Connection, ErrorCode, Params, named_params, params};

use super::name::{AT_ONCE, names};
use super::record::{NewSession, Placed, SessionListCursor, SessionPage, SessionPatch, SessionRecord};
use super::{SessionIndexError, SessionOutcome};
use crate::database::{self, Synchronous, WriteAheadLog};
use crate::owner::is_alive;
use crate::{Clock, DataDir, OwnerId};

pub use drift::DriftRecord;
pub use standing::SessionProgress;

/// The steps of the database that sessions, tokens, named requests and counts of drift share.
pub(crate) const SCHEMA: &[&str] = &[
    "CREATE TABLE session (
    place INTEGER PRIMARY KEY AUTOINCREMENT,
    id TEXT NOT NULL UNIQUE,
    name TEXT NOT NULL UNIQUE,
    agent TEXT NOT NULL,
    agent_mode TEXT NOT NULL,
    permission_mode TEXT NOT NULL,
    model TEXT,
    variant TEXT,
    directory TEXT,
    title TEXT,
    mcp TEXT,
    skills TEXT,
    native_session_id TEXT,
    event_count INTEGER NOT NULL DEFAULT 0,
    created_ms INTEGER NOT NULL,
    updated_ms INTEGER NOT NULL,
    outcome TEXT,
    epoch INTEGER NOT NULL DEFAULT 1,
    owner TEXT NOT NULL
) STRICT;
CREATE INDEX session_running ON session (owner) WHERE outcome IS NULL;",
    // A deleted session keeps its row: what it cost keeps its name, and no other session can take its id.
    "ALTER TABLE session ADD COLUMN deleted_ms INTEGER;
CREATE VIEW kept AS SELECT * FROM session WHERE deleted_ms IS NULL;
CREATE TABLE token (
    id TEXT PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    name TEXT,
    scopes TEXT NOT NULL,
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER
) STRICT, WITHOUT ROWID;",
    "CREATE TABLE request (
    caller TEXT NOT NULL,
    key TEXT NOT NULL,
    digest BLOB NOT NULL CHECK (length(digest) = 32),
    begun_ms INTEGER NOT NULL,
    status INTEGER,
    headers TEXT,
    body BLOB,
    PRIMARY KEY (caller, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX request_age ON request (begun_ms);",
    "CREATE TABLE drift (
    agent TEXT NOT NULL,
    version TEXT NOT NULL,
    unparsed INTEGER NOT NULL,
    unknown INTEGER NOT NULL,
    PRIMARY KEY (agent, version)
) STRICT, WITHOUT ROWID;",
];

/// So many ids are named when a reference fits more than one.
const AMBIGUOUS_SHOWN: usize = 5;

/// Every session of a data directory. Several processes may have it open.
///
/// What is written survives the process at once. Where it must survive the power, too, the disk is waited for after
/// the write and beside it, so that nobody who only reads waits with it.
pub struct SessionIndex {
    connection: Mutex<Connection>,
    log: Arc<WriteAheadLog>,
    owners: PathBuf,
    clock: Arc<dyn Clock>,
}

impl SessionIndex {
    /// Opens the index of `directory`, or makes it.
    pub fn open(directory: &DataDir, clock: Arc<dyn Clock>) -> Result<Self, SessionIndexError> {
        let path = directory.database();
        let connection = database::open(&path, Synchronous::Normal, SCHEMA)?;
        let log = Arc::new(WriteAheadLog::of(&path));
        Ok(Self { connection: Mutex::new(connection), log, owners: directory.owners(), clock })
    }

    /// Waits until everything written so far survives the power.
    pub fn sync(&self) -> Result<(), SessionIndexError> {
        self.sync_handle()()
    }

    /// What does so later, and keeps nothing else open.
    pub fn sync_handle(&self) -> impl Fn() -> Result<(), SessionIndexError> + Send + use<> {
        let log = self.log.clone();
        move || log.sync().map_err(SessionIndexError::Disk)
    }

    /// Enters a session and gives it a name. Of two who create the same id at once, one succeeds. Nobody waits for
    /// the disk; see [`Self::sync`].
    pub fn create(&self, new: &NewSession) -> Result<SessionRecord, SessionIndexError> {
        let connection = lock(&self.connection);
        for names in names(new.id.as_str()) {
            match self.insert(&connection, new, &names) {
                Ok(record) => return Ok(record),
                Err(error) if is_taken(&error, "session.id") => {
                    return Err(SessionIndexError::AlreadyExists(new.id.clone()));
                }
                // All of them are taken.
                Err(error) if is_taken(&error, "session.name") => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Names never run out, so this is not reached.
        Err(SessionIndexError::AlreadyExists(new.id.clone()))
    }

    /// The session `id`.
    pub fn get(&self, id: &SessionId) -> Result<SessionRecord, SessionIndexError> {
        let found = one(&lock(&self.connection), "WHERE id = ?1", [id.as_str()])?;
        found.ok_or_else(|| SessionIndexError::NotFound(id.to_string()))
    }

    /// Whether there is a session `id`, or was one.
    pub fn id_was_used(&self, id: &SessionId) -> Result<bool, SessionIndexError> {
        let connection = lock(&self.connection);
        Ok(connection.prepare_cached("SELECT 1 FROM session WHERE id = ?1")?.exists([id.as_str()])?)
    }

    /// The session a person means: its id, its name, the only beginning of an id, or `@last`.
    pub fn find(&self, reference: &str) -> Result<SessionRecord, SessionIndexError> {
        let not_found = || SessionIndexError::NotFound(reference.to_owned());
        let connection = lock(&self.connection);
        if reference == "@last" {
            return one(&connection, "ORDER BY place DESC LIMIT 1", [])?.ok_or_else(not_found);
        }
        let exact = "WHERE id = ?1 OR name = ?1 ORDER BY id = ?1 DESC LIMIT 1";
        if let Some(record) = one(&connection, exact, [reference])? {
            return Ok(record);
        }
        // No character of an id sorts behind `~`, so this is every id that begins so, by the index.
        let begins = "WHERE ?1 <> '' AND id >= ?1 AND id < ?1 || '~' ORDER BY id LIMIT 5";
        let mut matches = many(&connection, begins, [reference])?;
        match matches.pop() {
            None => Err(not_found()),
            Some(only) if matches.is_empty() => Ok(only.record),
            Some(last) => {
                let ids = matches.into_iter().chain([last]).map(|placed| placed.record.info.session_id.to_string());
                let matches = ids.take(AMBIGUOUS_SHOWN).collect();
                Err(SessionIndexError::Ambiguous { reference: reference.to_owned(), matches })
            }
        }
    }

    /// At most `limit` sessions, newest first, from the beginning or from where a page before ended.
    pub fn list(&self, from: Option<SessionListCursor>, limit: usize) -> Result<SessionPage, SessionIndexError> {
        let before = from.map_or(i64::MAX, |cursor| cursor.0);
        let wanted = i64::try_from(limit).unwrap_or(i64::MAX - 1);
        let clause = "WHERE place < ?1 ORDER BY place DESC LIMIT ?2";
        // One more than asked for tells whether the list goes on.
        let mut rows = many(&lock(&self.connection), clause, [before, wanted.saturating_add(1)])?;
        let goes_on = rows.len() > limit;
        rows.truncate(limit);
        let next = rows.last().filter(|_| goes_on).map(|placed| placed.place);
        Ok(SessionPage { sessions: rows.into_iter().map(|placed| placed.record).collect(), next })
    }

    /// Changes what `change` names and returns the session as it is then.
    pub fn update(&self, id: &SessionId, change: &SessionPatch) -> Result<SessionRecord, SessionIndexError> {
        let record = self.update_unsynced(id, change)?;
        self.sync()?;
        Ok(record)
    }

    /// Like [`Self::update`], for what the journal tells again: nobody waits for the disk.
    pub fn update_unsynced(&self, id: &SessionId, change: &SessionPatch) -> Result<SessionRecord, SessionIndexError> {
        let sql = format!(
            "UPDATE session SET
                agent_mode = coalesce(:agent_mode, agent_mode),
                permission_mode = coalesce(:permission_mode, permission_mode),
                model = coalesce(:model, model),
                title = coalesce(:title, title),
                native_session_id = coalesce(:native_session_id, native_session_id),
                event_count = max(event_count, coalesce(:event_count, 0)),
                outcome = coalesce(outcome, :outcome),
                updated_ms = max(updated_ms, :now)
             WHERE id = :id AND deleted_ms IS NULL RETURNING {}",
            Placed::COLUMNS
        );
        let values = named_params! {
            ":id": id.as_str(),
            ":agent_mode": change.agent_mode,
            ":permission_mode": change.permission_mode,
            ":model": change.model,
            ":title": change.title,
            ":native_session_id": change.native_session_id,
            ":event_count": change.event_count,
            ":outcome": change.outcome.map(SessionOutcome::as_str),
            ":now": self.now(),
        };
        let connection = lock(&self.connection);
        changed(&connection, &sql, values)?.ok_or_else(|| SessionIndexError::NotFound(id.to_string()))
    }

    /// Notes the agent's own id of a session; nobody waits for the disk. Less than [`Self::update_unsynced`]: this is done for each
    /// session that is made, and touches one page.
    pub fn set_native_session_id(&self, id: &SessionId, native: &str) -> Result<(), SessionIndexError> {
        let sql = "UPDATE session SET native_session_id = ?1, updated_ms = max(updated_ms, ?2)
             WHERE id = ?3 AND deleted_ms IS NULL";
        let connection = lock(&self.connection);
        connection.prepare_cached(sql)?.execute(params![native, self.now(), id.as_str()])?;
        Ok(())
    }

    /// Forgets a session that has ended, but for its id and its name; whether it was there.
    pub fn delete(&self, id: &SessionId) -> Result<bool, SessionIndexError> {
        let sql = "UPDATE session SET deleted_ms = ?1, title = NULL, directory = NULL, mcp = NULL, skills = NULL
             WHERE id = ?2 AND deleted_ms IS NULL AND outcome IS NOT NULL";
        let deleted = lock(&self.connection).execute(sql, params![self.now(), id.as_str()])? > 0;
        self.sync()?;
        Ok(deleted)
    }

    /// Takes back that `owner` entered a session of which nothing was recorded; its id is free again.
    pub fn remove_unrecorded(&self, id: &SessionId, owner: &OwnerId) -> Result<(), SessionIndexError> {
        let sql = "DELETE FROM session WHERE id = ?1 AND owner = ?2 AND event_count = 0 AND outcome IS NULL";
        lock(&self.connection).execute(sql, params![id.as_str(), owner.as_str()])?;
        Ok(())
    }

    /// Sessions that have not ended although their owner has: killed, or crashed.
    pub fn orphans(&self) -> Result<Vec<SessionRecord>, SessionIndexError> {
        let running = many(&lock(&self.connection), "WHERE outcome IS NULL ORDER BY place", [])?;
        let mut orphans = Vec::new();
        for Placed { record, .. } in running {
            if !is_alive(&self.owners, &record.owner).map_err(SessionIndexError::Owner)? {
                orphans.push(record);
            }
        }
        Ok(orphans)
    }

    /// Whether `record` has not ended although its owner has.
    pub fn is_orphan(&self, record: &SessionRecord) -> Result<bool, SessionIndexError> {
        let alive = || is_alive(&self.owners, &record.owner).map_err(SessionIndexError::Owner);
        Ok(record.outcome.is_none() && !alive()?)
    }

    /// Makes `owner` the owner of `orphan`, unless somebody else was first. Raises the epoch.
    pub fn adopt(&self, orphan: &SessionRecord, owner: &OwnerId) -> Result<SessionRecord, SessionIndexError> {
        let sql = format!(
            "UPDATE session SET owner = ?1, epoch = epoch + 1, updated_ms = max(updated_ms, ?2)
             WHERE id = ?3 AND owner = ?4 AND epoch = ?5 RETURNING {}",
            Placed::COLUMNS
        );
        let id = &orphan.info.session_id;
        let values = params![owner.as_str(), self.now(), id.as_str(), orphan.owner.as_str(), orphan.epoch];
        let adopted = changed(&lock(&self.connection), &sql, values)?;
        self.sync()?;
        adopted.ok_or_else(|| SessionIndexError::OwnedByAnother(id.clone()))
    }

    /// Enters it under the first of `names` that is free.
    fn insert(
        &self,
        connection: &Connection,
        new: &NewSession,
        names: &[String; AT_ONCE],
    ) -> rusqlite::Result<SessionRecord> {
        let sql = format!(
            "INSERT INTO session (id, name, agent, agent_mode, permission_mode, model, variant, directory, title, mcp,
                 skills, created_ms, updated_ms, owner)
             VALUES (:id,
                 (SELECT value FROM json_each(:names) WHERE NOT EXISTS (SELECT 1 FROM session WHERE name = value) LIMIT 1),
                 :agent, :agent_mode, :permission_mode, :model, :variant, :directory, :title, :mcp,
                 :skills, coalesce(:created, :now), :now, :owner)
             RETURNING {}",
            Placed::COLUMNS
        );
        let json = |value: serde_json::Value| value.to_string();
        let names = json(names.as_slice().into());
        let mcp = new.mcp.clone().map(|servers| json(servers.into_iter().collect()));
        let values = named_params! {
            ":id": new.id.as_str(),
            ":names": names,
            ":agent": new.agent,
            ":agent_mode": new.agent_mode,
            ":permission_mode": new.permission_mode,
            ":model": new.model,
            ":variant": new.variant,
            ":directory": new.directory,
            ":title": new.title,
            ":mcp": mcp,
            ":skills": new.skills.clone().map(json),
            ":created": new.created_ms,
            ":now": self.now(),
            ":owner": new.owner.as_str(),
        };
        changed(connection, &sql, values)?.ok_or(rusqlite::Error::QueryReturnedNoRows)
    }

    fn now(&self) -> i64 {
        self.clock.now().as_millisecond()
    }
}

/// The row that `sql` made or changed. It is read to the end: the step behind the last row commits the change, and it
/// alone tells when that failed.
fn changed(connection: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<Option<SessionRecord>> {
    let rows =
        connection.prepare_cached(sql)?.query_map(values, Placed::read)?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(rows.into_iter().next().map(|placed| placed.record))
}

fn many(connection: &Connection, clause: &str, values: impl Params) -> rusqlite::Result<Vec<Placed>> {
    let sql = format!("SELECT {} FROM kept {clause}", Placed::COLUMNS);
    connection.prepare_cached(&sql)?.query_map(values, Placed::read)?.collect()
}

fn one(connection: &Connection, clause: &str, values: impl Params) -> rusqlite::Result<Option<SessionRecord>> {
    Ok(many(connection, clause, values)?.pop().map(|placed| placed.record))
}

/// Whether a row was refused because `column` must be unique and is not.
fn is_taken(error: &rusqlite::Error, column: &str) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, Some(message)) => {
            failure.code == ErrorCode::ConstraintViolation && message.ends_with(column)
        }
        _ => false,
    }
}
