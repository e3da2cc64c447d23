//! The table of sessions.

mod drift;
mod filter;
mod progress;
mod status;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use base::lock;
use protocol::SessionId;
use rusqlite::{Connection, ErrorCode, Params, named_params, params};

use self::status::replace_labels;
use super::name::{NAMES_PER_QUERY, names};
use super::record::{NewSession, SessionPatch, SessionRecord, SessionRow};
use super::{SessionIndexError, SessionOutcome};
use crate::database::{self, SqliteWal, Synchronous};
use crate::owner::is_alive;
use crate::{Clock, DataDir, OwnerId};

pub use drift::DriftRecord;
pub use filter::{LabelFilter, SessionFilter};
pub use progress::SessionProgress;
pub use status::SessionTally;

/// The migrations of the database that holds sessions, tokens, idempotency keys and drift counts.
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
    // A deleted session keeps its row, so that reports can name it and its id is not used again.
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
    // `@last` is the last session that somebody started: not a replay, an exec or an import.
    "ALTER TABLE session ADD COLUMN origin TEXT NOT NULL DEFAULT 'started';
DROP VIEW kept;
CREATE VIEW kept AS SELECT * FROM session WHERE deleted_ms IS NULL;",
    status::MIGRATION,
];

/// The most ids in the error for an ambiguous reference.
const MAX_MATCHES_SHOWN: usize = 5;

/// The index of all sessions of a data directory. Several processes may use it at once.
///
/// A change survives a crash of the process at once. To survive a power cut, it must be synced. Syncing happens after
/// the write and without the lock of the connection, so that readers do not wait for the disk.
pub struct SessionIndex {
    connection: Mutex<Connection>,
    wal: Arc<SqliteWal>,
    owners: PathBuf,
    clock: Arc<dyn Clock>,
}

impl SessionIndex {
    /// Opens the index of `directory`, or creates it.
    pub fn open(directory: &DataDir, clock: Arc<dyn Clock>) -> Result<Self, SessionIndexError> {
        let path = directory.database();
        let connection = database::open(&path, Synchronous::Normal, SCHEMA)?;
        let wal = Arc::new(SqliteWal::of(&path));
        Ok(Self { connection: Mutex::new(connection), wal, owners: directory.owners(), clock })
    }

    /// Returns when every change so far is on disk.
    pub fn sync(&self) -> Result<(), SessionIndexError> {
        self.sync_handle()()
    }

    /// Returns a function that syncs like [`Self::sync`] and does not keep the connection open.
    pub fn sync_handle(&self) -> impl Fn() -> Result<(), SessionIndexError> + Send + use<> {
        let wal = Arc::clone(&self.wal);
        move || wal.sync().map_err(SessionIndexError::Disk)
    }

    /// Creates a session and gives it a name. Fails if the id exists. Of two concurrent calls with the same id, one
    /// succeeds. The change is not synced; see [`Self::sync`].
    pub fn create(&self, new: &NewSession) -> Result<SessionRecord, SessionIndexError> {
        let mut connection = lock(&self.connection);
        for names in names(new.id.as_str()) {
            match self.insert(&mut connection, new, &names) {
                Ok(record) => return Ok(record),
                Err(error) if is_taken(&error, "session.id") => {
                    return Err(SessionIndexError::AlreadyExists(new.id.clone()));
                }
                // All names of this batch are taken.
                Err(error) if is_taken(&error, "session.name") => {}
                Err(error) => return Err(error.into()),
            }
        }
        // Unreachable: names never run out.
        Err(SessionIndexError::AlreadyExists(new.id.clone()))
    }

    /// Returns the session `id`. Fails if it does not exist.
    pub fn get(&self, id: &SessionId) -> Result<SessionRecord, SessionIndexError> {
        let found = one(&lock(&self.connection), "WHERE id = ?1", [id.as_str()])?;
        found.ok_or_else(|| SessionIndexError::NotFound(id.to_string()))
    }

    /// Returns whether a session with this id exists or existed.
    pub fn id_was_used(&self, id: &SessionId) -> Result<bool, SessionIndexError> {
        let connection = lock(&self.connection);
        Ok(connection.prepare_cached("SELECT 1 FROM session WHERE id = ?1")?.exists([id.as_str()])?)
    }

    /// Returns the session that a person refers to: by id, name, unique id prefix, or `@last`, which is the last session
    /// that somebody started: not a replay, an exec or an import.
    pub fn find(&self, reference: &str) -> Result<SessionRecord, SessionIndexError> {
        let not_found = || SessionIndexError::NotFound(reference.to_owned());
        let connection = lock(&self.connection);
        if reference == "@last" {
            return one(&connection, "WHERE origin = 'started' ORDER BY place DESC LIMIT 1", [])?.ok_or_else(not_found);
        }
        let exact = "WHERE id = ?1 OR name = ?1 ORDER BY id = ?1 DESC LIMIT 1";
        if let Some(record) = one(&connection, exact, [reference])? {
            return Ok(record);
        }
        // No character of an id sorts after `~`, so this range covers every id with the prefix and uses the index.
        let has_prefix = "WHERE ?1 <> '' AND id >= ?1 AND id < ?1 || '~' ORDER BY id LIMIT 5";
        let mut matches = many(&connection, has_prefix, [reference])?;
        match matches.pop() {
            None => Err(not_found()),
            Some(only) if matches.is_empty() => Ok(only.record),
            Some(last) => {
                let ids = matches.into_iter().chain([last]).map(|row| row.record.info.session_id.to_string());
                let matches = ids.take(MAX_MATCHES_SHOWN).collect();
                Err(SessionIndexError::Ambiguous { reference: reference.to_owned(), matches })
            }
        }
    }

    /// Applies `change` and returns the changed session, after syncing.
    pub fn update(&self, id: &SessionId, change: &SessionPatch) -> Result<SessionRecord, SessionIndexError> {
        let record = self.update_unsynced(id, change)?;
        self.sync()?;
        Ok(record)
    }

    /// Like [`Self::update`] without syncing; for data that can be read from the journal again.
    pub fn update_unsynced(&self, id: &SessionId, change: &SessionPatch) -> Result<SessionRecord, SessionIndexError> {
        let sql = format!(
            "UPDATE session SET
                agent_mode = coalesce(:agent_mode, agent_mode),
                permission_mode = coalesce(:permission_mode, permission_mode),
                model = coalesce(:model, model),
                title = coalesce(:title, title),
                native_session_id = coalesce(:native_session_id, native_session_id),
                event_count = max(event_count, coalesce(:event_count, 0)),
                labels = coalesce(:labels, labels),
                metadata = coalesce(:metadata, metadata),
                last_prompt = coalesce(:last_prompt, last_prompt),
                turns = turns + :turns,
                cost_picos = cost_picos + :cost_picos,
                denials = denials + :denials,
                status = CASE WHEN coalesce(outcome, :outcome) IS NULL THEN status ELSE 'ended' END,
                status_ms = CASE WHEN outcome IS NULL AND :outcome IS NOT NULL THEN :now ELSE status_ms END,
                outcome = coalesce(outcome, :outcome),
                updated_ms = max(updated_ms, :now)
             WHERE id = :id AND deleted_ms IS NULL RETURNING {}",
            SessionRow::COLUMNS
        );
        let values = named_params! {
            ":id": id.as_str(),
            ":agent_mode": change.agent_mode,
            ":permission_mode": change.permission_mode,
            ":model": change.model,
            ":title": change.title,
            ":native_session_id": change.native_session_id,
            ":event_count": change.event_count,
            ":labels": change.labels.as_ref().map(to_json).transpose()?,
            ":metadata": change.metadata.as_ref().map(to_json).transpose()?,
            ":last_prompt": change.last_prompt,
            ":turns": change.tally.turns,
            ":cost_picos": change.tally.cost_picos,
            ":denials": change.tally.denials,
            ":outcome": change.outcome.map(SessionOutcome::as_str),
            ":now": self.now(),
        };
        let mut connection = lock(&self.connection);
        // Without labels, one statement needs no transaction of its own.
        let Some(labels) = &change.labels else {
            return write_row(&connection, &sql, values)?.ok_or_else(|| SessionIndexError::NotFound(id.to_string()));
        };
        let transaction = connection.transaction()?;
        let row = write_row(&transaction, &sql, values)?;
        let record = row.ok_or_else(|| SessionIndexError::NotFound(id.to_string()))?;
        replace_labels(&transaction, id, labels)?;
        transaction.commit()?;
        Ok(record)
    }

    /// Stores the agent's own session id, without syncing. Cheaper than [`Self::update_unsynced`], because every new
    /// session needs it: it writes one page.
    pub fn set_native_session_id(&self, id: &SessionId, native: &str) -> Result<(), SessionIndexError> {
        let sql = "UPDATE session SET native_session_id = ?1, updated_ms = max(updated_ms, ?2)
             WHERE id = ?3 AND deleted_ms IS NULL";
        let connection = lock(&self.connection);
        connection.prepare_cached(sql)?.execute(params![native, self.now(), id.as_str()])?;
        Ok(())
    }

    /// Deletes a session that has ended, except its id and name; returns whether it existed.
    pub fn delete(&self, id: &SessionId) -> Result<bool, SessionIndexError> {
        let sql = "UPDATE session SET deleted_ms = ?1, title = NULL, directory = NULL, mcp = NULL, skills = NULL,
             labels = NULL, metadata = NULL, last_prompt = NULL
             WHERE id = ?2 AND deleted_ms IS NULL AND outcome IS NOT NULL";
        let mut connection = lock(&self.connection);
        let transaction = connection.transaction()?;
        let deleted = transaction.execute(sql, params![self.now(), id.as_str()])? > 0;
        if deleted {
            replace_labels(&transaction, id, &BTreeMap::new())?;
        }
        transaction.commit()?;
        drop(connection);
        self.sync()?;
        Ok(deleted)
    }

    /// Removes a session of `owner` that has no events yet, so that its id can be used again.
    pub fn remove_unrecorded(&self, id: &SessionId, owner: &OwnerId) -> Result<(), SessionIndexError> {
        let sql = "DELETE FROM session WHERE id = ?1 AND owner = ?2 AND event_count = 0 AND outcome IS NULL";
        lock(&self.connection).execute(sql, params![id.as_str(), owner.as_str()])?;
        Ok(())
    }

    /// Returns the sessions that have not ended although their owner is dead.
    pub fn orphans(&self) -> Result<Vec<SessionRecord>, SessionIndexError> {
        let running = many(&lock(&self.connection), "WHERE outcome IS NULL ORDER BY place", [])?;
        let mut orphans = Vec::new();
        for SessionRow { record, .. } in running {
            if !is_alive(&self.owners, &record.owner).map_err(SessionIndexError::Owner)? {
                orphans.push(record);
            }
        }
        Ok(orphans)
    }

    /// Returns whether the session has not ended although its owner is dead.
    pub fn is_orphan(&self, record: &SessionRecord) -> Result<bool, SessionIndexError> {
        let alive = || is_alive(&self.owners, &record.owner).map_err(SessionIndexError::Owner);
        Ok(record.outcome.is_none() && !alive()?)
    }

    /// Makes `owner` the owner of `orphan` and increments its epoch. Fails if another process took it over first.
    pub fn adopt(&self, orphan: &SessionRecord, owner: &OwnerId) -> Result<SessionRecord, SessionIndexError> {
        let sql = format!(
            "UPDATE session SET owner = ?1, epoch = epoch + 1, updated_ms = max(updated_ms, ?2)
             WHERE id = ?3 AND owner = ?4 AND epoch = ?5 RETURNING {}",
            SessionRow::COLUMNS
        );
        let id = &orphan.info.session_id;
        let values = params![owner.as_str(), self.now(), id.as_str(), orphan.owner.as_str(), orphan.epoch];
        let adopted = write_row(&lock(&self.connection), &sql, values)?;
        self.sync()?;
        adopted.ok_or_else(|| SessionIndexError::OwnedByAnother(id.clone()))
    }

    /// Inserts the session with the first free name of `names`.
    fn insert(
        &self,
        connection: &mut Connection,
        new: &NewSession,
        names: &[String; NAMES_PER_QUERY],
    ) -> rusqlite::Result<SessionRecord> {
        let sql = format!(
            "INSERT INTO session (id, name, agent, agent_mode, permission_mode, model, variant, directory, title, mcp,
                 skills, created_ms, updated_ms, origin, owner, labels, metadata, account, user, token, status, status_ms)
             VALUES (:id,
                 (SELECT value FROM json_each(:names) WHERE NOT EXISTS (SELECT 1 FROM session WHERE name = value) LIMIT 1),
                 :agent, :agent_mode, :permission_mode, :model, :variant, :directory, :title, :mcp,
                 :skills, coalesce(:created, :now), :now, :origin, :owner, :labels, :metadata, :account, :user, :token,
                 'idle', :now)
             RETURNING {}",
            SessionRow::COLUMNS
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
            ":origin": new.origin.as_str(),
            ":owner": new.owner.as_str(),
            ":labels": (!new.labels.is_empty()).then(|| json(serde_json::json!(new.labels))),
            ":metadata": new.metadata.clone().map(|metadata| json(metadata.into())),
            ":account": new.account,
            ":user": new.user,
            ":token": new.token,
        };
        let inserted =
            |connection: &Connection| write_row(connection, &sql, values)?.ok_or(rusqlite::Error::QueryReturnedNoRows);
        if new.labels.is_empty() {
            return inserted(connection);
        }
        let transaction = connection.transaction()?;
        let record = inserted(&transaction)?;
        replace_labels(&transaction, &new.id, &new.labels)?;
        transaction.commit()?;
        Ok(record)
    }

    fn now(&self) -> i64 {
        self.clock.now().as_millisecond()
    }
}

fn to_json(value: &impl serde::Serialize) -> Result<String, rusqlite::Error> {
    serde_json::to_string(value).map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

/// Runs `sql` and returns the inserted or changed row. Reads to the end, because the step after the last row commits
/// the change and reports its failure.
fn write_row(connection: &Connection, sql: &str, values: impl Params) -> rusqlite::Result<Option<SessionRecord>> {
    let rows =
        connection.prepare_cached(sql)?.query_map(values, SessionRow::read)?.collect::<rusqlite::Result<Vec<_>>>()?;
    Ok(rows.into_iter().next().map(|row| row.record))
}

fn many(connection: &Connection, clause: &str, values: impl Params) -> rusqlite::Result<Vec<SessionRow>> {
    let sql = format!("SELECT {} FROM kept {clause}", SessionRow::COLUMNS);
    connection.prepare_cached(&sql)?.query_map(values, SessionRow::read)?.collect()
}

fn one(connection: &Connection, clause: &str, values: impl Params) -> rusqlite::Result<Option<SessionRecord>> {
    Ok(many(connection, clause, values)?.pop().map(|row| row.record))
}

/// Returns whether a row was rejected because `column` must be unique.
fn is_taken(error: &rusqlite::Error, column: &str) -> bool {
    match error {
        rusqlite::Error::SqliteFailure(failure, Some(message)) => {
            failure.code == ErrorCode::ConstraintViolation && message.ends_with(column)
        }
        _ => false,
    }
}
