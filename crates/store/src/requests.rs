//! Requests that their callers have named, and how they were answered: asked twice, done once, also across kill -9.
//!
//! A request is noted before anything is done for it. One that has no answer was broken off, or failed: it may be asked
//! again, and whoever does it must find out what became of the first time.
//!
//! Not here: what makes two requests the same (`server`).

use std::sync::{Arc, Mutex};

use base::lock;
use rusqlite::{Connection, OptionalExtension, params};

use crate::database::{self, DatabaseError, Synchronous};
use crate::sessions::SCHEMA;
use crate::{Clock, DataDir};

/// A name is remembered this long: a client repeats a request within minutes, not after days.
const REMEMBERED_MS: i64 = 24 * 60 * 60 * 1000;

/// How a request was answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResponse {
    /// HTTP status.
    pub status: u16,
    /// Headers, in their order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// What is known of a name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestLookup {
    /// Nothing: it is noted now.
    New,
    /// It is the name of another request.
    KeyReused,
    /// The same request was begun then, in milliseconds, and has no answer.
    Unanswered(i64),
    /// The same request was answered so.
    Answered(RecordedResponse),
}

/// The named requests of a data directory. Several processes may have it open.
pub struct IdempotencyStore {
    connection: Mutex<Connection>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for IdempotencyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Requests").finish_non_exhaustive()
    }
}

impl IdempotencyStore {
    /// Opens the requests of `directory`.
    pub fn open(directory: &DataDir, clock: Arc<dyn Clock>) -> Result<Self, DatabaseError> {
        let connection = database::open(&directory.database(), Synchronous::Full, SCHEMA)?;
        Ok(Self { connection: Mutex::new(connection), clock })
    }

    /// Notes the request that `caller` names `key`, unless it is known. `digest` is that of all that makes it what it is.
    pub fn begin(&self, caller: &str, key: &str, digest: &[u8; 32]) -> Result<RequestLookup, DatabaseError> {
        let now = self.clock.now().as_millisecond();
        let mut connection = lock(&self.connection);
        let transaction = connection.transaction()?;
        transaction.execute("DELETE FROM request WHERE begun_ms < ?1", [now.saturating_sub(REMEMBERED_MS)])?;
        let sql = "SELECT digest, begun_ms, status, headers, body FROM request WHERE caller = ?1 AND key = ?2";
        let found = transaction.query_row(sql, [caller, key], |row| {
            let same = row.get::<_, [u8; 32]>(0)? == *digest;
            Ok(match (same, row.get::<_, Option<u16>>(2)?) {
                (false, _) => RequestLookup::KeyReused,
                (true, None) => RequestLookup::Unanswered(row.get(1)?),
                (true, Some(status)) => {
                    let headers: String = row.get(3)?;
                    let headers = serde_json::from_str(&headers).unwrap_or_default();
                    RequestLookup::Answered(RecordedResponse { status, headers, body: row.get(4)? })
                }
            })
        });
        let known = found.optional()?;
        if known.is_none() {
            let sql = "INSERT INTO request (caller, key, digest, begun_ms) VALUES (?1, ?2, ?3, ?4)";
            transaction.execute(sql, params![caller, key, digest, now])?;
        }
        transaction.commit()?;
        Ok(known.unwrap_or(RequestLookup::New))
    }

    /// Keeps the answer to a request that was begun.
    pub fn answer(&self, caller: &str, key: &str, answered: &RecordedResponse) -> Result<(), DatabaseError> {
        let headers = serde_json::to_string(&answered.headers).unwrap_or_default();
        let sql = "UPDATE request SET status = ?3, headers = ?4, body = ?5 WHERE caller = ?1 AND key = ?2";
        lock(&self.connection).execute(sql, params![caller, key, answered.status, headers, answered.body])?;
        Ok(())
    }
}
