//! Requests with an idempotency key and their responses: a repeated request is executed once, also across kill -9.
//!
//! A request is stored before it is executed. A request without a response was interrupted or failed. It may be
//! repeated, and the caller must then find out the result of the first execution.
//!
//! Not here: when two requests are the same (`server`).

use std::sync::{Arc, Mutex};

use base::lock;
use rusqlite::{Connection, OptionalExtension, params};

use crate::database::{self, DatabaseError, Synchronous};
use crate::sessions::SCHEMA;
use crate::{Clock, DataDir};

/// How long a key is stored. A client repeats a request within minutes, not after days.
const RETENTION_MS: i64 = 24 * 60 * 60 * 1000;

/// The response to a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedResponse {
    /// HTTP status.
    pub status: u16,
    /// Headers in their order.
    pub headers: Vec<(String, String)>,
    /// The body.
    pub body: Vec<u8>,
}

/// The result of looking up an idempotency key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RequestLookup {
    /// The key is new; the request is stored now.
    New,
    /// The key belongs to a different request.
    KeyReused,
    /// The same request started at this time, in milliseconds, and has no response.
    Unanswered(i64),
    /// The same request has this response.
    Answered(RecordedResponse),
}

/// The requests with idempotency keys of a data directory. Several processes may use it at once.
pub struct IdempotencyStore {
    connection: Mutex<Connection>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for IdempotencyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IdempotencyStore").finish_non_exhaustive()
    }
}

impl IdempotencyStore {
    /// Opens the store of `directory`.
    pub fn open(directory: &DataDir, clock: Arc<dyn Clock>) -> Result<Self, DatabaseError> {
        let connection = database::open(&directory.database(), Synchronous::Full, SCHEMA)?;
        Ok(Self { connection: Mutex::new(connection), clock })
    }

    /// Looks up the request of `caller` with `key`, and stores it if it is new.
    ///
    /// `digest` covers everything that identifies the request. A different digest means that the key is reused.
    pub fn begin(&self, caller: &str, key: &str, digest: &[u8; 32]) -> Result<RequestLookup, DatabaseError> {
        let now = self.clock.now().as_millisecond();
        let mut connection = lock(&self.connection);
        let transaction = connection.transaction()?;
        transaction.execute("DELETE FROM request WHERE begun_ms < ?1", [now.saturating_sub(RETENTION_MS)])?;
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

    /// Stores the response to a request.
    pub fn answer(&self, caller: &str, key: &str, response: &RecordedResponse) -> Result<(), DatabaseError> {
        let headers = serde_json::to_string(&response.headers).unwrap_or_default();
        let sql = "UPDATE request SET status = ?3, headers = ?4, body = ?5 WHERE caller = ?1 AND key = ?2";
        lock(&self.connection).execute(sql, params![caller, key, response.status, headers, response.body])?;
        Ok(())
    }
}
