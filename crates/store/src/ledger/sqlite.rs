//! The ledger in one file, for every process of a data directory.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Sender};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};

use base::lock;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::carry::{self, Carried};
use super::daybook::Daybook;
use super::port::{Answer, LedgerOperation};
use super::report::{self, LedgerAudit, UnknownCall, UsageGrouping, UsageRow};
use super::resolution::{self, ResolvedCall};
use super::schema::SCHEMA;
use super::teller::{Teller, Untaken};
use super::writer::{Job, Stirred, Writer};
use super::{Ledger, LedgerError, LedgerReply};
use crate::database::{self, Synchronous};
use crate::{Clock, DataDir, OwnerId, ProcessOwner};

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

/// The ledger in a database file, and a daybook before it: a step is taken where it is asked for, and one thread has
/// the tables.
pub struct SqliteLedger {
    teller: Arc<Teller>,
    jobs: Option<Sender<Job>>,
    thread: Option<JoinHandle<()>>,
    reader: Mutex<Connection>,
    daybook: PathBuf,
    /// What the thread knows of what there is to carry.
    stirred: Arc<Stirred>,
    /// Held by a ledger that is its own owner; let go after the last step is taken.
    _owner: Option<ProcessOwner>,
}

impl SqliteLedger {
    /// Opens the ledger of `directory` for an owner of its own, which lives as long as it does.
    pub fn claim(
        directory: &DataDir,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Result<OpenedLedger, LedgerError> {
        let owner = ProcessOwner::claim(directory).map_err(Arc::new)?;
        Self::start(directory, owner.id().clone(), Some(owner), durability, clock)
    }

    /// Opens the ledger of `directory`, or makes it, and looks after what dead owners left. `owner` must live as
    /// long as the ledger.
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
        kept: Option<ProcessOwner>,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Result<OpenedLedger, LedgerError> {
        let connection = database::open(&directory.ledger(), Synchronous::Normal, SCHEMA)?;
        let reader = database::open(&directory.ledger(), Synchronous::Normal, SCHEMA)?;
        let boot = boot_id().map_err(|error| LedgerError::Recovery(error.into()))?;
        let path = directory.write_ahead_log();
        let last = Carried::read(&connection)?.generation;
        let daybook = Daybook::open(&path, last).map_err(LedgerError::files)?;
        let teller = Arc::new(Teller::new(daybook, owner, boot, durability, clock));
        let stirred = Arc::new(Stirred::default());
        let (daybook, shared) = (path.clone(), Arc::clone(&teller));
        let mut writer = Writer { connection, daybook, teller: shared, stirred: Arc::clone(&stirred) };
        let recovered = writer.begin(&directory.owners())?;
        let (jobs, received) = mpsc::channel();
        let thread = thread::Builder::new().name("ledger".into()).spawn(move || writer.run(&received));
        let thread = thread.map_err(|error| LedgerError::Recovery(error.into()))?;
        let (jobs, thread, reader) = (Some(jobs), Some(thread), Mutex::new(reader));
        let ledger = Self { teller, jobs, thread, reader, daybook: path, stirred, _owner: kept };
        Ok(OpenedLedger { ledger, released: recovered.released, unknown: recovered.unknown })
    }

    /// Adds everything up again and compares.
    pub fn audit(&self) -> Result<LedgerAudit, LedgerError> {
        report::audit(&*self.tables()?)
    }

    /// Every call that was closed on a person's word, oldest first.
    pub fn resolved(&self) -> Result<Vec<ResolvedCall>, LedgerError> {
        resolution::resolved(&*self.tables()?)
    }

    /// The tables, with everything in them that stands in the daybook.
    fn tables(&self) -> Result<MutexGuard<'_, Connection>, LedgerError> {
        let mut reader = lock(&self.reader);
        carry::carry(&mut reader, &self.daybook)?;
        Ok(reader)
    }

    /// What is said of a step that was taken here, or could not be.
    fn reply(&self, taken: Result<(), Untaken>) -> LedgerReply {
        match taken {
            Err(Untaken::Tables(step)) => self.ask(|answer| Job::Take(step, answer)),
            Err(Untaken::Error(error)) => LedgerReply::here(Err(error)),
            Ok(()) => match self.teller.durability {
                Durability::Full => self.ask(Job::Sync),
                Durability::Lease | Durability::Normal => LedgerReply::here(Ok(())),
            },
        }
    }

    fn ask(&self, job: impl FnOnce(oneshot::Sender<Answer>) -> Job) -> LedgerReply {
        let (answer, reply) = LedgerReply::later();
        if let Some(jobs) = &self.jobs {
            // Where the thread is gone the job is dropped, and its reply says so.
            let _ = jobs.send(job(answer));
        }
        reply
    }

    /// Has the thread know that there is something to carry, or much of it; it is woken once for either, not for each
    /// step.
    fn stir(&self, much: bool) {
        let (known, job) = if much { (&self.stirred.much, Job::Carry) } else { (&self.stirred.any, Job::Stir) };
        if !known.swap(true, Ordering::AcqRel)
            && let Some(jobs) = &self.jobs
        {
            let _ = jobs.send(job);
        }
    }
}

impl Ledger for SqliteLedger {
    fn submit(&self, steps: Vec<LedgerOperation>) -> Vec<LedgerReply> {
        let taken = self.teller.take(steps);
        if taken.steps.iter().any(Result::is_ok) {
            self.stir(taken.much_to_carry);
        }
        taken.steps.into_iter().map(|taken| self.reply(taken)).collect()
    }

    fn unknowns(&self) -> Result<Vec<UnknownCall>, LedgerError> {
        report::unknowns(&*self.tables()?, &self.teller.boot)
    }

    fn usage(&self, by: UsageGrouping, since_ms: i64) -> Result<Vec<UsageRow>, LedgerError> {
        report::usage(&*self.tables()?, by, since_ms)
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
fn boot_id() -> std::io::Result<Arc<str>> {
    let text = std::fs::read_to_string(Path::new("/proc/sys/kernel/random/boot_id"))?;
    Ok(text.trim().into())
}
