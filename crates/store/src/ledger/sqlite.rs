//! The ledger in one file, for every process of a data directory.

use std::path::Path;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};

use protocol::CallId;
use rusqlite::Connection;

use super::book::Hand;
use super::hold::{Charge, Hold, Progress};
use super::lease::Leases;
use super::recovery::recover;
use super::report::{self, Audit, By, UnknownCall, UsageRow};
use super::resolution::{self, Resolution, ResolvedCall};
use super::schema::SCHEMA;
use super::writer::{Job, Step, Writer};
use super::{Ledger, LedgerError, Reply};
use crate::database::{self, Synchronous};
use crate::guard::lock;
use crate::{Clock, DataDir, Owner, OwnerId};

/// What an answered step survives.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durability {
    /// The process and the power: every answer waits for the disk.
    #[default]
    Full,
    /// The same for every limit, but a call waits for the disk only when its session's block is used up.
    /// After a power cut what is left of the blocks is held as unknown.
    Lease,
    /// The process; a power cut may take the last steps with it.
    Normal,
}

/// A ledger, and what the hosts before it had left.
pub struct OpenedLedger {
    /// Ready for calls.
    pub ledger: SqliteLedger,
    /// Calls that were never sent; their holds are free again.
    pub released: u64,
    /// Calls that may have cost something; see [`Ledger::unknowns`].
    pub unknown: u64,
}

/// The ledger in a database file: one thread writes, in batches, and nobody else waits for it.
pub struct SqliteLedger {
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    reader: Mutex<Connection>,
    boot: String,
    /// Held by a ledger that is its own owner; let go after the last step is taken.
    _owner: Option<Owner>,
}

impl SqliteLedger {
    /// Opens the ledger of `directory` for an owner of its own, which lives as long as it does.
    pub fn claim(
        directory: &DataDir,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Result<OpenedLedger, LedgerError> {
        let owner = Owner::claim(directory).map_err(Arc::new)?;
        Self::start(directory, owner.id().clone(), Some(owner), durability, clock)
    }

    /// Opens the ledger of `directory`, or makes it, and looks after what dead owners left. `owner` must live as
    /// long as the ledger.
    pub fn open(
        directory: &DataDir,
        owner: &Owner,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Result<OpenedLedger, LedgerError> {
        Self::start(directory, owner.id().clone(), None, durability, clock)
    }

    fn start(
        directory: &DataDir,
        owner: OwnerId,
        kept: Option<Owner>,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Result<OpenedLedger, LedgerError> {
        let synchronous = match durability {
            Durability::Full | Durability::Lease => Synchronous::Full,
            Durability::Normal => Synchronous::Normal,
        };
        let mut connection = database::open(&directory.ledger(), synchronous, SCHEMA)?;
        let reader = database::open(&directory.ledger(), synchronous, SCHEMA)?;
        let boot = boot_id().map_err(|error| LedgerError::Recovery(error.into()))?;
        let hand = Hand { owner: &owner, boot: &boot, now_ms: clock.now().as_millisecond() };
        let recovered = recover(&mut connection, &directory.owners(), hand)?;
        let leases = Leases::default();
        let writer = Writer { connection, durability, owner, boot: boot.clone(), clock, leases };
        let (jobs, received) = mpsc::channel();
        let thread = thread::Builder::new().name("ledger".into()).spawn(move || writer.run(&received));
        let thread = thread.map_err(|error| LedgerError::Recovery(error.into()))?;
        let reader = Mutex::new(reader);
        let ledger = Self { jobs: Some(jobs), thread: Some(thread), reader, boot, _owner: kept };
        Ok(OpenedLedger { ledger, released: recovered.released, unknown: recovered.unknown })
    }

    /// Adds everything up again and compares.
    pub fn audit(&self) -> Result<Audit, LedgerError> {
        report::audit(&lock(&self.reader))
    }

    /// Closes an unknown call on a person's word, and keeps whose word it was.
    pub fn resolve(&self, call: CallId, resolution: Resolution) -> Reply {
        self.send(Step::Resolve(call, resolution))
    }

    /// Every call that was closed on a person's word, oldest first.
    pub fn resolved(&self) -> Result<Vec<ResolvedCall>, LedgerError> {
        resolution::resolved(&lock(&self.reader))
    }

    fn send(&self, step: Step) -> Reply {
        let (answer, reply) = Reply::new();
        if let Some(jobs) = &self.jobs {
            // Where the thread is gone the job is dropped, and its reply says so.
            let _ = jobs.send(Job { step, answer });
        }
        reply
    }
}

impl Ledger for SqliteLedger {
    fn hold(&self, hold: Hold) -> Reply {
        self.send(Step::Hold(Box::new(hold)))
    }

    fn advance(&self, call: CallId, progress: Progress) -> Reply {
        self.send(Step::Advance(call, progress))
    }

    fn settle(&self, call: CallId, charge: Charge) -> Reply {
        self.send(Step::Settle(call, charge))
    }

    fn fail(&self, call: CallId, reason: String) -> Reply {
        self.send(Step::Fail(call, reason))
    }

    fn unknowns(&self) -> Result<Vec<UnknownCall>, LedgerError> {
        report::unknowns(&lock(&self.reader), &self.boot)
    }

    fn usage(&self, by: By, since_ms: i64) -> Result<Vec<UsageRow>, LedgerError> {
        report::usage(&lock(&self.reader), by, since_ms)
    }
}

impl Drop for SqliteLedger {
    /// Waits until every step that was asked for is taken.
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Tells one run of the kernel from the next: between two, the last transactions may be lost.
fn boot_id() -> std::io::Result<String> {
    let text = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"))?;
    Ok(text.trim().to_owned())
}
