//! SQLite databases that several processes may have open.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

/// How long one process waits for the transaction of another.
const BUSY_TIMEOUT: Duration = Duration::from_secs(10);

/// Pages in the WAL before SQLite copies them into the database: sixteen megabytes.
const CHECKPOINT_PAGES: u32 = 4_096;

/// The cache of one connection in KiB. The rest is in the page cache, which all processes share.
const CACHE_KIB: i32 = 512;

/// A database could not be opened or used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// SQLite returned an error.
    #[error("database operation failed")]
    Sqlite(#[from] rusqlite::Error),
    /// The file could not be created.
    #[error("cannot create the database `{path}`")]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        #[source]
        source: io::Error,
    },
    /// A later version of this program changed the schema.
    #[error("the database `{path}` has schema version {found}, this program supports {known}; use a newer viv")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Schema version of the file.
        found: u32,
        /// Highest schema version that this program supports.
        known: u32,
    },
}

/// The durability of a committed transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Synchronous {
    /// Survives a crash of the process and a power cut.
    Full,
    /// Survives a crash of the process. A power cut may lose the last transactions.
    Normal,
}

impl Synchronous {
    /// Applies this durability to later transactions of `connection`.
    pub(crate) fn apply(self, connection: &Connection) -> rusqlite::Result<()> {
        let word = match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        };
        connection.pragma_update(None, "synchronous", word)
    }
}

/// The `-wal` file of a database.
///
/// Syncing it has the effect of `synchronous = FULL`, without holding the lock of the connection.
#[derive(Debug)]
pub(crate) struct SqliteWal {
    path: PathBuf,
    /// Opened at the first sync. The file stays the same while any process has the database open.
    file: OnceLock<File>,
}

impl SqliteWal {
    /// Returns the `-wal` file of the database at `path`.
    pub(crate) fn of(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push("-wal");
        Self { path: name.into(), file: OnceLock::new() }
    }

    /// Returns when every committed transaction is on disk.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if let Some(file) = self.file.get() {
            return file.sync_data();
        }
        let opened = File::open(&self.path)?;
        self.file.get_or_init(|| opened).sync_data()
    }
}

/// Opens the database at `path`, or creates it, and runs the migrations of `schema` that it lacks.
///
/// The first migration creates version 1. Fails if the database has a later version than `schema`.
pub(crate) fn open(path: &Path, synchronous: Synchronous, schema: &[&str]) -> Result<Connection, DatabaseError> {
    // SQLite would create a file that everybody can read. Its WAL files get the mode of this file.
    let created = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    created.map_err(|source| DatabaseError::Io { path: path.to_owned(), source })?;
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY_TIMEOUT)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    synchronous.apply(&connection)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // The commit that reaches this size copies all pages, which takes long, so the size is large.
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.set_prepared_statement_cache_capacity(64);
    // A deferred transaction that reads first would fail to write after another process wrote.
    connection.set_transaction_behavior(TransactionBehavior::Immediate);
    migrate(&mut connection, path, schema)?;
    Ok(connection)
}

/// Runs all migrations of `schema` that the database lacks, or none.
fn migrate(connection: &mut Connection, path: &Path, schema: &[&str]) -> Result<(), DatabaseError> {
    let known = u32::try_from(schema.len()).unwrap_or(u32::MAX);
    if version(connection)? == known {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    // Another process may have run the migrations while this one waited.
    let found = version(&transaction)?;
    if found > known {
        return Err(DatabaseError::TooNew { path: path.to_owned(), found, known });
    }
    for migration in schema.iter().skip(found as usize) {
        transaction.execute_batch(migration)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}

fn version(connection: &Connection) -> Result<u32, DatabaseError> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}
