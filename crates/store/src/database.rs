//! A database file that several processes may have open.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use rusqlite::{Connection, TransactionBehavior};

/// How long one process waits for the transaction of another.
const BUSY: Duration = Duration::from_secs(10);

/// Sixteen megabytes of changes that are not in their place yet.
const CHECKPOINT_PAGES: u32 = 4_096;

/// What one connection keeps of the file, in kibibytes. The rest is as near as the page cache, which all processes share.
const CACHE_KIB: i32 = 512;

/// Why a database could not be used.
#[derive(Debug, thiserror::Error)]
pub enum DatabaseError {
    /// The database itself said no.
    #[error("the database failed")]
    Sqlite(#[from] rusqlite::Error),
    /// The file could not be made.
    #[error("cannot make the database `{path}`")]
    Io {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// A later version of this program has changed it.
    #[error("the database `{path}` has schema {found}, this program knows {known}; use the newer program")]
    TooNew {
        /// The file.
        path: PathBuf,
        /// Schema of the file.
        found: u32,
        /// Schema this program knows.
        known: u32,
    },
}

/// How surely a committed transaction is on disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Synchronous {
    /// Survives the process and the power.
    Full,
    /// Survives the process; the last transactions may go with the power.
    Normal,
}

impl Synchronous {
    /// Makes it so from the next transaction on.
    pub(crate) fn apply(self, connection: &Connection) -> rusqlite::Result<()> {
        let word = match self {
            Self::Full => "FULL",
            Self::Normal => "NORMAL",
        };
        connection.pragma_update(None, "synchronous", word)
    }
}

/// Where a database in WAL mode writes its transactions, until they are copied to their place.
///
/// To sync it is what `synchronous = FULL` does at each commit, only without the lock of the connection.
#[derive(Debug)]
pub(crate) struct WriteAheadLog {
    path: PathBuf,
    /// Opened when there is something in it; it stays the same file as long as anybody has the database open.
    file: OnceLock<File>,
}

impl WriteAheadLog {
    /// That of the database at `path`.
    pub(crate) fn of(path: &Path) -> Self {
        let mut name = path.as_os_str().to_owned();
        name.push("-wal");
        Self { path: name.into(), file: OnceLock::new() }
    }

    /// Waits until every transaction that was committed before survives the power.
    pub(crate) fn sync(&self) -> io::Result<()> {
        if let Some(file) = self.file.get() {
            return file.sync_data();
        }
        let opened = File::open(&self.path)?;
        self.file.get_or_init(|| opened).sync_data()
    }
}

/// Opens the database at `path` and brings it to the last of `schema`, whose first step makes version 1.
pub(crate) fn open(path: &Path, synchronous: Synchronous, schema: &[&str]) -> Result<Connection, DatabaseError> {
    // Left alone, SQLite makes it readable for everybody; its WAL files take the mode of this one.
    let made = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path);
    made.map_err(|source| DatabaseError::Io { path: path.to_owned(), source })?;
    let mut connection = Connection::open(path)?;
    connection.busy_timeout(BUSY)?;
    connection.pragma_update(None, "journal_mode", "WAL")?;
    synchronous.apply(&connection)?;
    connection.pragma_update(None, "foreign_keys", true)?;
    // Whoever commits the last of these pages waits until all are where they belong, so it shall be seldom.
    connection.pragma_update(None, "wal_autocheckpoint", CHECKPOINT_PAGES)?;
    connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
    connection.set_prepared_statement_cache_capacity(64);
    // A transaction that reads first and writes later would fail where another wrote in between.
    connection.set_transaction_behavior(TransactionBehavior::Immediate);
    migrate(&mut connection, path, schema)?;
    Ok(connection)
}

/// Runs the steps of `schema` that the database has not seen, all or none.
fn migrate(connection: &mut Connection, path: &Path, schema: &[&str]) -> Result<(), DatabaseError> {
    let known = u32::try_from(schema.len()).unwrap_or(u32::MAX);
    if version(connection)? == known {
        return Ok(());
    }
    let transaction = connection.transaction()?;
    // Asked again: another process may have run them while we waited.
    let found = version(&transaction)?;
    if found > known {
        return Err(DatabaseError::TooNew { path: path.to_owned(), found, known });
    }
    for step in schema.iter().skip(found as usize) {
        transaction.execute_batch(step)?;
    }
    transaction.pragma_update(None, "user_version", known)?;
    transaction.commit()?;
    Ok(())
}

fn version(connection: &Connection) -> Result<u32, DatabaseError> {
    Ok(connection.pragma_query_value(None, "user_version", |row| row.get(0))?)
}
