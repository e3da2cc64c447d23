//! Gateway keys for callers without a sandbox: account, allowed models, limits and expiry.
//!
//! Only the SHA-256 of a key is stored, in the database of the ledger. A revoked key stays in the table, so that
//! reports can still name it.
//!
//! Not here: generating and comparing keys (`gateway`).

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Arc, Mutex};

use base::lock;
use rusqlite::{Connection, OptionalExtension, Row, named_params, params};

use crate::database::{self, Synchronous};
use crate::ledger::SCHEMA;
use crate::{Clock, DataDir, DatabaseError, LedgerError};

/// A key to store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Public id of the key.
    pub id: String,
    /// SHA-256 of the key.
    pub digest: [u8; 32],
    /// The account that pays.
    pub account: String,
    /// The user.
    pub user: Option<String>,
    /// Patterns of allowed model names; `*` matches any text.
    pub models: Vec<String>,
    /// Budget in pico-dollars; `None` means no budget for this key.
    pub budget_picos: Option<u64>,
    /// Most calls per minute of the clock; `None` means no limit for this key.
    pub requests_a_minute: Option<u64>,
    /// Validity in milliseconds; `None` means until it is revoked.
    pub ttl_ms: Option<i64>,
}

/// A stored key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Public id of the key.
    pub id: String,
    /// SHA-256 of the key.
    pub digest: [u8; 32],
    /// The account that pays.
    pub account: String,
    /// The user.
    pub user: Option<String>,
    /// Patterns of allowed model names.
    pub models: Vec<String>,
    /// Budget in pico-dollars.
    pub budget_picos: Option<u64>,
    /// Most calls per minute of the clock.
    pub requests_a_minute: Option<u64>,
    /// Time of creation, in milliseconds since 1970.
    pub created_ms: i64,
    /// Time of expiry, in milliseconds since 1970.
    pub expires_ms: Option<i64>,
    /// Time of revocation, in milliseconds since 1970.
    pub revoked_ms: Option<i64>,
}

impl KeyRecord {
    /// Returns whether the key is neither revoked nor expired at `now_ms`.
    pub fn is_valid(&self, now_ms: i64) -> bool {
        self.revoked_ms.is_none() && self.expires_ms.is_none_or(|expires| now_ms < expires)
    }
}

/// The keys of a data directory. Several processes may use it at once.
pub struct KeyStore {
    connection: Mutex<Connection>,
    clock: Arc<dyn Clock>,
    /// A file that grows by a byte with every change of any process. Reading its length is cheaper than a query.
    changes: File,
    cache: Mutex<KeyCache>,
}

/// The most keys in the cache. When it is reached, the cache is emptied.
const MAX_CACHED_KEYS: usize = 1_024;

/// Keys that were read, and the length of the change file at that time.
#[derive(Default)]
struct KeyCache {
    changes: u64,
    found: HashMap<[u8; 32], Arc<KeyRecord>>,
}

impl KeyStore {
    /// Opens the keys of `directory`.
    pub fn open(directory: &DataDir, clock: Arc<dyn Clock>) -> Result<Self, LedgerError> {
        let connection = database::open(&directory.ledger(), Synchronous::Full, SCHEMA)?;
        let path = directory.key_changes();
        let changes = OpenOptions::new().read(true).append(true).create(true).mode(0o600).open(&path);
        let changes = changes.map_err(|source| DatabaseError::Io { path, source })?;
        Ok(Self { connection: Mutex::new(connection), clock, changes, cache: Mutex::default() })
    }

    /// Invalidates the caches of all processes.
    fn invalidate_caches(&self) -> Result<(), LedgerError> {
        (&self.changes).write_all(b".").map_err(LedgerError::files)
    }

    /// Stores a key. Fails if its id or digest exists.
    pub fn create(&self, new: &NewKey) -> Result<(), LedgerError> {
        let now = self.clock.now().as_millisecond();
        let sql = "INSERT INTO key (id, digest, account, user, models, budget_picos, requests_a_minute, created_ms,
                expires_ms)
            VALUES (:id, :digest, :account, :user, :models, :budget, :requests, :now, :expires)";
        lock(&self.connection).execute(
            sql,
            named_params! {
                ":id": new.id,
                ":digest": new.digest,
                ":account": new.account,
                ":user": new.user,
                ":models": new.models.join("\n"),
                ":budget": new.budget_picos,
                ":requests": new.requests_a_minute,
                ":now": now,
                ":expires": new.ttl_ms.map(|ttl| now.saturating_add(ttl)),
            },
        )?;
        self.invalidate_caches()
    }

    /// Returns every key, oldest first, including revoked and expired keys.
    pub fn list(&self) -> Result<Vec<KeyRecord>, LedgerError> {
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("SELECT * FROM key ORDER BY created_ms, id")?;
        Ok(statement.query_map([], record)?.collect::<Result<_, _>>()?)
    }

    /// Returns the amount charged to each key that made calls, in pico-dollars, by key id.
    pub fn spent(&self) -> Result<HashMap<String, u64>, LedgerError> {
        let connection = lock(&self.connection);
        let sql = "SELECT name, spent_picos FROM total WHERE scope = 'key' AND span = 'ever'";
        let mut statement = connection.prepare_cached(sql)?;
        let amounts = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
        Ok(amounts.collect::<Result<_, _>>()?)
    }

    /// Returns the valid key with this digest.
    ///
    /// The time of the lookup may reveal something about the digest, but not about the key: a caller cannot choose a
    /// text by the first bytes of its SHA-256.
    pub fn find(&self, digest: &[u8; 32]) -> Result<Option<Arc<KeyRecord>>, LedgerError> {
        let now = self.clock.now().as_millisecond();
        Ok(self.record(digest)?.filter(|key| key.is_valid(now)))
    }

    fn record(&self, digest: &[u8; 32]) -> Result<Option<Arc<KeyRecord>>, LedgerError> {
        // Read before the query, so that a later change invalidates its result.
        let changes = self.changes.metadata().map_err(LedgerError::files)?.len();
        let mut cache = lock(&self.cache);
        if cache.changes != changes || cache.found.len() >= MAX_CACHED_KEYS {
            *cache = KeyCache { changes, found: HashMap::new() };
        }
        if let Some(key) = cache.found.get(digest) {
            return Ok(Some(Arc::clone(key)));
        }
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("SELECT * FROM key WHERE digest = ?1")?;
        let found = statement.query_row([digest], record).optional()?.map(Arc::new);
        if let Some(key) = &found {
            cache.found.insert(*digest, Arc::clone(key));
        }
        Ok(found)
    }

    /// Revokes a key; returns whether it exists.
    pub fn revoke(&self, id: &str) -> Result<bool, LedgerError> {
        let sql = "UPDATE key SET revoked_ms = coalesce(revoked_ms, ?1) WHERE id = ?2";
        let revoked = lock(&self.connection).execute(sql, params![self.clock.now().as_millisecond(), id])? > 0;
        self.invalidate_caches()?;
        Ok(revoked)
    }
}

fn record(row: &Row<'_>) -> rusqlite::Result<KeyRecord> {
    let models: String = row.get("models")?;
    Ok(KeyRecord {
        id: row.get("id")?,
        digest: row.get("digest")?,
        account: row.get("account")?,
        user: row.get("user")?,
        models: models.lines().map(str::to_owned).collect(),
        budget_picos: row.get("budget_picos")?,
        requests_a_minute: row.get("requests_a_minute")?,
        created_ms: row.get("created_ms")?,
        expires_ms: row.get("expires_ms")?,
        revoked_ms: row.get("revoked_ms")?,
    })
}
