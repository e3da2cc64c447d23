//! Access tokens of the session API, with their scopes and expiry.
//!
//! Only the SHA-256 of a token is stored. A revoked token stays in the table, so that the audit log can still name it.
//! Gateway keys are in another table (`keys`); a token is never accepted as a key, nor a key as a token.
//!
//! Not here: the routes that a scope allows (`server`).

use std::sync::{Arc, Mutex};

use base::lock;
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use crate::database::{self, DatabaseError, Synchronous};
use crate::sessions::SCHEMA;
use crate::{Clock, DataDir};

/// A token to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewToken {
    /// Public id, shown in lists and in the audit log.
    pub id: String,
    /// SHA-256 of the token.
    pub digest: [u8; 32],
    /// Name given by the user.
    pub name: Option<String>,
    /// Scopes, as the API spells them.
    pub scopes: Vec<String>,
    /// Validity in milliseconds; `None` means until it is revoked.
    pub ttl_ms: Option<i64>,
}

/// A stored token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenRecord {
    /// Public id, shown in lists and in the audit log.
    pub id: String,
    /// Name given by the user.
    pub name: Option<String>,
    /// Scopes, as the API spells them.
    pub scopes: Vec<String>,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: i64,
    /// Time of expiry, in milliseconds since 1970.
    pub expires_ms: Option<i64>,
    /// Time of revocation, in milliseconds since 1970.
    pub revoked_ms: Option<i64>,
}

impl TokenRecord {
    /// Returns whether the token is neither revoked nor expired at `now_ms`.
    pub fn is_valid(&self, now_ms: i64) -> bool {
        self.revoked_ms.is_none() && self.expires_ms.is_none_or(|expires| now_ms < expires)
    }
}

/// The tokens of a data directory. Several processes may use it at once.
pub struct TokenStore {
    connection: Mutex<Connection>,
    clock: Arc<dyn Clock>,
}

impl std::fmt::Debug for TokenStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("TokenStore").finish_non_exhaustive()
    }
}

impl TokenStore {
    /// Opens the tokens of `directory`.
    pub fn open(directory: &DataDir, clock: Arc<dyn Clock>) -> Result<Self, DatabaseError> {
        let connection = database::open(&directory.database(), Synchronous::Full, SCHEMA)?;
        Ok(Self { connection: Mutex::new(connection), clock })
    }

    /// Stores a token. Fails if its id or digest exists.
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

    /// Returns every token, oldest first, including revoked and expired tokens.
    pub fn list(&self) -> Result<Vec<TokenRecord>, DatabaseError> {
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("SELECT * FROM token ORDER BY created_ms, id")?;
        Ok(statement.query_map([], record)?.collect::<Result<_, _>>()?)
    }

    /// Returns the valid token with this digest.
    ///
    /// A caller cannot choose a digest byte by byte, so the time of the lookup reveals nothing about stored tokens.
    pub fn find(&self, digest: &[u8; 32]) -> Result<Option<TokenRecord>, DatabaseError> {
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("SELECT * FROM token WHERE digest = ?1")?;
        let found = statement.query_row([digest], record).optional()?;
        let now = self.clock.now().as_millisecond();
        Ok(found.filter(|token| token.is_valid(now)))
    }

    /// Revokes a token; returns whether it exists.
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
