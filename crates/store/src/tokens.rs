//! Tokens of the session API: what each is good for, and until when.
//!
//! Only the SHA-256 of a token is kept. A revoked token stays in the list, so that the audit log keeps its names.
//! Keys of the gateway are kept elsewhere (`keys`): neither is ever looked up in the place of the other.
//!
//! Not here: what a scope opens (`server`).

use std::sync::{Arc, Mutex};

use base::lock;
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use crate::database::{self, DatabaseError, Synchronous};
use crate::sessions::SCHEMA;
use crate::{Clock, DataDir};

/// A token to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Its name in lists and in the audit log; never secret.
    pub id: String,
    /// SHA-256 of the token itself.
    pub digest: [u8; 32],
    /// What people call it.
    pub name: Option<String>,
    /// What it is good for, as the API spells it.
    pub scopes: Vec<String>,
    /// How long it is good for; none: until it is revoked.
    pub ttl_ms: Option<i64>,
}

/// A token that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// Its name in lists and in the audit log.
    pub id: String,
    /// What people call it.
    pub name: Option<String>,
    /// What it is good for.
    pub scopes: Vec<String>,
    /// When it was made.
    pub created_ms: i64,
    /// Until when it is good.
    pub expires_ms: Option<i64>,
    /// When it was revoked.
    pub revoked_ms: Option<i64>,
}

impl TokenRecord {
    /// Whether it opens anything at `now_ms`.
    pub fn is_valid(&self, now_ms: i64) -> bool {
        self.revoked_ms.is_none() && self.expires_ms.is_none_or(|expires| now_ms < expires)
    }
}

/// The tokens of a data directory. Several processes may have it open.
pub struct TokenStore {
    connection: Mutex<Connection>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for TokenStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Tokens").finish_non_exhaustive()
    }
}

impl TokenStore {
    /// Opens the tokens of `directory`.
    pub fn open(directory: &DataDir, clock: Arc<dyn Clock>) -> Result<Self, DatabaseError> {
        let connection = database::open(&directory.database(), Synchronous::Full, SCHEMA)?;
        Ok(Self { connection: Mutex::new(connection), clock })
    }

    /// Keeps a token; a second one of the same id or digest is an error.
    pub fn create(&self, new: &NewToken) -> Result<(), DatabaseError> {
        let now = self.clock.now().as_millisecond();
        let sql = "INSERT INTO token (id, digest, name, scopes, created_ms, expires_ms)
            VALUES (:id, :digest, :name, :scopes, :now, :expires)";
        lock(&self.connection).execute(
            sql,
            named_params! {
                ":id": new.id,
                ":digest": new.digest,
                ":name": new.name,
                ":scopes": new.scopes.join(" "),
                ":now": now,
                ":expires": new.ttl_ms.map(|ttl| now.saturating_add(ttl)),
            },
        )?;
        Ok(())
    }

    /// Every token, oldest first, those that open nothing any more included.
    pub fn list(&self) -> Result<Vec<TokenRecord>, DatabaseError> {
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("SELECT * FROM token ORDER BY created_ms, id")?;
        Ok(statement.query_map([], record)?.collect::<Result<_, _>>()?)
    }

    /// The token with this digest, if it opens something now. The lookup is by a digest that a caller cannot choose
    /// byte by byte, so its time tells nothing about the tokens that are kept.
    pub fn find(&self, digest: &[u8; 32]) -> Result<Option<TokenRecord>, DatabaseError> {
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("SELECT * FROM token WHERE digest = ?1")?;
        let found = statement.query_row([digest], record).optional()?;
        let now = self.clock.now().as_millisecond();
        Ok(found.filter(|token| token.is_valid(now)))
    }

    /// Makes a token open nothing from now on; whether there was such a token.
    pub fn revoke(&self, id: &str) -> Result<bool, DatabaseError> {
        let sql = "UPDATE token SET revoked_ms = coalesce(revoked_ms, ?1) WHERE id = ?2";
        Ok(lock(&self.connection).execute(sql, params![self.clock.now().as_millisecond(), id])? > 0)
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<TokenRecord> {
    let scopes: String = row.get("scopes")?;
    Ok(TokenRecord {
        id: row.get("id")?,
        name: row.get("name")?,
        scopes: scopes.split_whitespace().map(str::to_owned).collect(),
        created_ms: row.get("created_ms")?,
        expires_ms: row.get("expires_ms")?,
        revoked_ms: row.get("revoked_ms")?,
    })
}
