//! The ledger in a SQLite database with a write-ahead log, shared by all processes of a data directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use base::lock;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::checkpoint::{self, LogPosition};
use super::operation_writer::{NotApplied, OperationWriter};
use super::port::{LedgerOperation, OperationResult};
use super::report::{self, EstimatedCall, LedgerAudit, UnknownCall, UsageGrouping, UsageRow};
use super::resolution::{self, ResolvedCall};
use super::schema::SCHEMA;
use super::table_thread::{TableJob, TableThread};
use super::write_ahead_log::WriteAheadLog;
use super::{Ledger, LedgerError, LedgerReply};
use crate::database::{self, Synchronous};
use crate::{Clock, DataDir, OwnerId, ProcessOwner};

/// The failures that an answered operation survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// A crash of the process and a power cut: every answer waits for the disk.
    #[default]
    Full,
    /// A crash of the process. Limits survive a power cut too: a call waits for the disk only when the lease of its
    /// session is used up, and after a power cut the unused leases are held as unknown calls.
    Lease,
    /// A crash of the process. A power cut may lose the last operations.
    Normal,
}

/// A ledger, and the calls that dead processes had left open.
pub struct OpenedLedger {
    /// The ledger, ready for operations.
    pub ledger: SqliteLedger,
    /// Number of calls that were never sent; their holds are released.
    pub released: u64,
    /// Number of calls that may have cost something; see [`Ledger::unknowns`].
    pub unknown: u64,
}

/// A ledger that applies operations on the caller's thread by writing them to the log. One thread owns the tables.
pub struct SqliteLedger {
    writer: Arc<OperationWriter>,
    jobs: Option<Sender<TableJob>>,
    thread: Option<JoinHandle<()>>,
    reader: Mutex<Connection>,
    log_path: PathBuf,
    /// Whether the thread was asked for a checkpoint that it has not started.
    checkpoint_requested: Arc<AtomicBool>,
    /// The owner of a ledger that was opened by [`Self::claim`]; released after the last operation.
    _owner: Option<ProcessOwner>,
}

impl SqliteLedger {
    /// Opens the ledger of `directory` with a new owner that lives as long as the ledger.
    pub fn claim(
        directory: &DataDir,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Result<OpenedLedger, LedgerError> {
        let owner = ProcessOwner::claim(directory).map_err(Arc::new)?;
        Self::start(directory, owner.id().clone(), Some(owner), durability, clock)
    }

    /// Opens the ledger of `directory`, or creates it, and recovers the calls of dead owners.
    ///
    /// `owner` must live as long as the ledger.
    pub fn open(
        directory: &DataDir,
        owner: &ProcessOwner,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Result<OpenedLedger, LedgerError> {
        Self::start(directory, owner.id().clone(), None, durability, clock)
    }

    fn start(
        directory: &DataDir,
        owner: OwnerId,
        own_owner: Option<ProcessOwner>,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Result<OpenedLedger, LedgerError> {
        let connection = database::open(&directory.ledger(), Synchronous::Normal, SCHEMA)?;
        let reader = database::open(&directory.ledger(), Synchronous::Normal, SCHEMA)?;
        let boot = boot_id().map_err(|error| LedgerError::Recovery(error.into()))?;
        let log_path = directory.write_ahead_log();
        let last_generation = LogPosition::read(&connection)?.generation;
        let log = WriteAheadLog::open(&log_path, last_generation).map_err(LedgerError::files)?;
        let writer = Arc::new(OperationWriter::new(log, owner, boot, durability, clock));
        let checkpoint_requested = Arc::new(AtomicBool::new(false));
        let mut tables = TableThread {
            connection,
            log_path: log_path.clone(),
            writer: Arc::clone(&writer),
            checkpoint_requested: Arc::clone(&checkpoint_requested),
        };
        let recovered = tables.recover(&directory.owners())?;
        let (jobs, received) = mpsc::channel();
        let thread = thread::Builder::new().name("ledger".into()).spawn(move || tables.run(&received));
        let thread = thread.map_err(|error| LedgerError::Recovery(error.into()))?;
        let (jobs, thread, reader) = (Some(jobs), Some(thread), Mutex::new(reader));
        let ledger = Self { writer, jobs, thread, reader, log_path, checkpoint_requested, _owner: own_owner };
        Ok(OpenedLedger { ledger, released: recovered.released, unknown: recovered.unknown })
    }

    /// Computes all totals from the calls and compares them with the stored totals.
    pub fn audit(&self) -> Result<LedgerAudit, LedgerError> {
        report::audit(&*self.tables()?)
    }

    /// Returns the calls that are charged for the most that they can have cost, oldest first.
    pub fn estimates(&self) -> Result<Vec<EstimatedCall>, LedgerError> {
        report::estimates(&*self.tables()?)
    }

    /// Returns every call that a person resolved, oldest first.
    pub fn resolved(&self) -> Result<Vec<ResolvedCall>, LedgerError> {
        resolution::resolved(&*self.tables()?)
    }

    /// Returns a connection to tables that contain every line of the log.
    fn tables(&self) -> Result<MutexGuard<'_, Connection>, LedgerError> {
        let mut reader = lock(&self.reader);
        checkpoint::run(&mut reader, &self.log_path)?;
        Ok(reader)
    }

    /// Returns the reply to an operation, and passes it to the thread if that must query or sync.
    fn reply(&self, result: Result<(), NotApplied>) -> LedgerReply {
        match result {
            Err(NotApplied::NeedsTables(operation)) => self.send(|answer| TableJob::Apply(operation, answer)),
            Err(NotApplied::Failed(error)) => LedgerReply::ready(Err(error)),
            Ok(()) => match self.writer.durability {
                Durability::Full => self.send(TableJob::Sync),
                Durability::Lease | Durability::Normal => LedgerReply::ready(Ok(())),
            },
        }
    }

    fn send(&self, job: impl FnOnce(oneshot::Sender<OperationResult>) -> TableJob) -> LedgerReply {
        let (answer, reply) = LedgerReply::pending();
        if let Some(jobs) = &self.jobs {
            // If the thread is gone, the job is dropped and the reply is `LedgerError::Stopped`.
            let _ = jobs.send(job(answer));
        }
        reply
    }

    /// Asks the thread for a checkpoint, unless that was done since the last one.
    fn request_checkpoint(&self) {
        if !self.checkpoint_requested.swap(true, Ordering::AcqRel)
            && let Some(jobs) = &self.jobs
        {
            let _ = jobs.send(TableJob::Checkpoint);
        }
    }
}

impl Ledger for SqliteLedger {
    fn submit(&self, operations: Vec<LedgerOperation>) -> Vec<LedgerReply> {
        let results = self.writer.apply(operations);
        if results.iter().any(Result::is_ok) {
            self.request_checkpoint();
        }
        results.into_iter().map(|result| self.reply(result)).collect()
    }

    fn unknowns(&self) -> Result<Vec<UnknownCall>, LedgerError> {
        report::unknowns(&*self.tables()?, &self.writer.boot)
    }

    fn usage(&self, by: UsageGrouping, since_ms: i64) -> Result<Vec<UsageRow>, LedgerError> {
        report::usage(&*self.tables()?, by, since_ms)
    }
}

impl Drop for SqliteLedger {
    /// Waits until every submitted operation is applied.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Returns the id of this boot. Transactions of an earlier boot may have been lost in a power cut.
fn boot_id() -> std::io::Result<Arc<str>> {
    let text = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"))?;
    Ok(text.trim().into())
}
