//! Keys of the gateway for callers that have no sandbox: who pays for one, what it may use, until when.
//!
//! Only the SHA-256 of a key is kept, beside the ledger that its calls are charged to. A revoked key stays,
//! so that what it used keeps its name.
//!
//! Not here: making a key or comparing one (`gateway`).

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

/// A key to be kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewKey {
    /// Its name; never secret.
    pub id: String,
    /// SHA-256 of the key itself.
    pub digest: [u8; 32],
    /// The account that pays.
    pub account: String,
    /// The person.
    pub user: Option<String>,
    /// Names of the models it is good for, in which `*` stands for any text.
    pub models: Vec<String>,
    /// What it may spend, in pico-dollars; none: no limit of its own.
    pub budget_picos: Option<u64>,
    /// Calls in a minute of the clock; none: no limit of its own.
    pub requests_a_minute: Option<u64>,
    /// How long it is good for; none: until it is revoked.
    pub ttl_ms: Option<i64>,
}

/// A key that is kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRecord {
    /// Its name.
    pub id: String,
    /// SHA-256 of the key itself.
    pub digest: [u8; 32],
    /// The account that pays.
    pub account: String,
    /// The person.
    pub user: Option<String>,
    /// Names of the models it is good for.
    pub models: Vec<String>,
    /// What it may spend, in pico-dollars.
    pub budget_picos: Option<u64>,
    /// Calls in a minute of the clock.
    pub requests_a_minute: Option<u64>,
    /// When it was made.
    pub created_ms: i64,
    /// Until when it is good.
    pub expires_ms: Option<i64>,
    /// When it was revoked.
    pub revoked_ms: Option<i64>,
}

impl KeyRecord {
    /// Whether it opens anything at `now_ms`.
    pub fn is_valid(&self, now_ms: i64) -> bool {
        self.revoked_ms.is_none() && self.expires_ms.is_none_or(|expires| now_ms < expires)
    }
}

/// The keys of a data directory. Several processes may have it open.
pub struct KeyStore {
    connection: Mutex<Connection>,
    clock: Arc<dyn Clock>,
    /// Grows by a byte with every change, whoever makes it: to look at its length costs less than to look into a table.
    changes: File,
    recent: Mutex<Recent>,
}

/// So many keys are remembered; then all are forgotten.
const MOST_RECENT: usize = 1_024;

/// Keys that were found, and when nothing had changed since.
#[derive(Default)]
struct Recent {
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
        Ok(Self { connection: Mutex::new(connection), clock, changes, recent: Mutex::default() })
    }

    /// Tells everybody who remembers keys to look again.
    fn changed(&self) -> Result<(), LedgerError> {
        (&self.changes).write_all(b".").map_err(LedgerError::files)
    }

    /// Keeps a key; a second one of the same name or digest is an error.
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
        self.changed()
    }

    /// Every key, oldest first, those that open nothing any more included.
    pub fn list(&self) -> Result<Vec<KeyRecord>, LedgerError> {
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("SELECT * FROM key ORDER BY created_ms, id")?;
        Ok(statement.query_map([], record)?.collect::<Result<_, _>>()?)
    }

    /// The key with this digest, if it opens something now; the same one as before where nothing has changed since.
    ///
    /// How long the look takes may tell something of the digest. It tells nothing of the key: nobody can choose
    /// a text by the beginning of its SHA-256.
    pub fn find(&self, digest: &[u8; 32]) -> Result<Option<Arc<KeyRecord>>, LedgerError> {
        let now = self.clock.now().as_millisecond();
        Ok(self.record(digest)?.filter(|key| key.is_valid(now)))
    }

    fn record(&self, digest: &[u8; 32]) -> Result<Option<Arc<KeyRecord>>, LedgerError> {
        // Looked at first: what changes after this makes what is read now worth nothing.
        let changes = self.changes.metadata().map_err(LedgerError::files)?.len();
        let mut recent = lock(&self.recent);
        if recent.changes != changes || recent.found.len() >= MOST_RECENT {
            *recent = Recent { changes, found: HashMap::new() };
        }
        if let Some(key) = recent.found.get(digest) {
            return Ok(Some(Arc::clone(key)));
        }
        let connection = lock(&self.connection);
        let mut statement = connection.prepare_cached("SELECT * FROM key WHERE digest = ?1")?;
        let found = statement.query_row([digest], record).optional()?.map(Arc::new);
        if let Some(key) = &found {
            recent.found.insert(*digest, Arc::clone(key));
        }
        Ok(found)
    }

    /// Makes a key open nothing from now on; whether there was such a key.
    pub fn revoke(&self, id: &str) -> Result<bool, LedgerError> {
        let sql = "UPDATE key SET revoked_ms = coalesce(revoked_ms, ?1) WHERE id = ?2";
        let revoked = lock(&self.connection).execute(sql, params![self.clock.now().as_millisecond(), id])? > 0;
        self.changed()?;
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
