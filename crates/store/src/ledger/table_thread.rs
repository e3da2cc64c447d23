//! The thread that owns the tables: it runs checkpoints, applies operations that need queries, and syncs the log.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use protocol::CallId;
use rusqlite::Connection;
use tokio::sync::oneshot;

use super::cached_balances::{CachedBalances, LimitCheck};
use super::call::{CallHold, HeldAmount, HoldChange};
use super::checkpoint::{self, LogPosition};
use super::lease;
use super::limit::{LimitWindow, UsageLimit};
use super::log_entry::LogEntry;
use super::operation_writer::{LockedLog, OperationWriter, adjust_entry, can_adjust};
use super::port::{LedgerOperation, OperationResult};
use super::recovery::{RecoveredCalls, recover};
use super::resolution;
use super::tables::{LedgerTables, WriteContext};
use super::totals::{self, CallParties};
use super::write_ahead_log::LogLock;
use super::{Durability, LedgerError};
use crate::database::Synchronous;

/// The longest time between a write to the log and the checkpoint.
const CHECKPOINT_INTERVAL: Duration = Duration::from_millis(200);
/// A longer log is replaced by an empty one after a checkpoint.
const MAX_LOG_BYTES: u64 = 8 << 20;

/// A job for the thread.
pub(super) enum TableJob {
    /// Apply an operation that needs a query.
    Apply(LedgerOperation, oneshot::Sender<OperationResult>),
    /// Answer when everything in the log is on disk.
    Sync(oneshot::Sender<OperationResult>),
    /// Run a checkpoint soon.
    Checkpoint,
}

/// The state of the thread.
pub(super) struct TableThread {
    pub(super) connection: Connection,
    pub(super) log_path: PathBuf,
    pub(super) writer: Arc<OperationWriter>,
    /// Whether a checkpoint was requested, so that callers wake the thread only once.
    pub(super) checkpoint_requested: Arc<AtomicBool>,
}

impl TableThread {
    /// Runs jobs until every sender is gone.
    pub(super) fn run(mut self, jobs: &Receiver<TableJob>) {
        let mut checkpoint_at: Option<Instant> = None;
        loop {
            let first = match checkpoint_at {
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(at) => jobs.recv_timeout(at.saturating_duration_since(Instant::now())),
            };
            match first {
                Ok(first) => {
                    if self.run_jobs(std::iter::once(first).chain(jobs.try_iter())) {
                        checkpoint_at.get_or_insert_with(|| Instant::now() + CHECKPOINT_INTERVAL);
                    }
                }
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => break,
            }
            if checkpoint_at.is_some_and(|at| at <= Instant::now()) {
                self.checkpoint_requested.store(false, Ordering::Release);
                // After a failure, the lines are still in the log; the checkpoint is tried again later.
                let failed = self.checkpoint().is_err();
                checkpoint_at = failed.then(|| Instant::now() + CHECKPOINT_INTERVAL * 10);
            }
        }
        // If these fail, the next process that opens the ledger runs the checkpoint and returns the leases.
        let _ = self.checkpoint();
        let _ = lease::give_back(&self.connection, self.context());
    }

    /// Runs `jobs`; returns whether a checkpoint is needed.
    fn run_jobs(&mut self, jobs: impl Iterator<Item = TableJob>) -> bool {
        let (mut waiting, mut needs_checkpoint) = (Vec::new(), false);
        for job in jobs {
            match job {
                TableJob::Checkpoint => needs_checkpoint = true,
                TableJob::Sync(answer) => waiting.push(answer),
                TableJob::Apply(operation, answer) => {
                    needs_checkpoint = true;
                    let is_uncovered = is_uncovered_by_leases(&operation);
                    let needs_sync = match self.writer.durability {
                        Durability::Full => true,
                        Durability::Lease => is_uncovered,
                        Durability::Normal => false,
                    };
                    match self.apply(operation) {
                        Ok(()) if needs_sync => waiting.push(answer),
                        // The caller may be gone; the operation is applied all the same.
                        result => drop(answer.send(result)),
                    }
                }
            }
        }
        if !waiting.is_empty() {
            let synced = self.writer.sync();
            for answer in waiting {
                let _ = answer.send(synced.clone());
            }
        }
        needs_checkpoint
    }

    /// Applies an operation with up-to-date tables.
    fn apply(&mut self, operation: LedgerOperation) -> OperationResult {
        let writer = Arc::clone(&self.writer);
        let mut state = writer.state();
        let mut log = state.lock_log()?;
        checkpoint::run(&mut self.connection, &self.log_path)?;
        match operation {
            LedgerOperation::Hold(hold) => self.hold(*hold, &mut log),
            LedgerOperation::Adjust(call, change) => self.adjust(call, &change, &mut log),
            LedgerOperation::Advance(call, progress) => {
                self.change_tables(&mut log, |tables, now_ms| tables.advance(now_ms, &call, progress))
            }
            LedgerOperation::Settle(call, charge) => {
                self.change_tables(&mut log, |tables, now_ms| tables.settle(now_ms, &call, &charge))
            }
            LedgerOperation::Fail(call, reason) => {
                self.change_tables(&mut log, |tables, now_ms| tables.fail(now_ms, &call, &reason))
            }
            LedgerOperation::Resolve(call, resolution) => {
                self.change_tables(&mut log, |tables, now_ms| resolution::resolve(tables, now_ms, &call, &resolution))
            }
        }
    }

    /// Grants a hold after reading the totals and the lease that it needs.
    fn hold(&mut self, hold: CallHold, log: &mut LockedLog<'_>) -> OperationResult {
        if !hold.fresh && LedgerTables::new(&self.connection).is_known(&hold)? {
            return Err(LedgerError::Duplicate(hold.call));
        }
        loop {
            self.read_totals(&hold, log.balances)?;
            self.grant_lease(&hold, log.leases)?;
            let now_ms = self.writer.now_ms();
            // False only if a new minute or day has started: then its total is not read yet.
            if self.writer.can_hold(log, now_ms, &hold)? {
                self.writer.hold(log, now_ms, hold)?;
                return log.write();
            }
        }
    }

    /// Changes the hold of an open call after reading the totals that its limits need.
    fn adjust(&mut self, call: CallId, change: &HoldChange, log: &mut LockedLog<'_>) -> OperationResult {
        let open = log.balances.open_call(&call).map(|open| Arc::clone(&open.share));
        let share = match open {
            Some(share) => share,
            None => Arc::new(LedgerTables::new(&self.connection).share(&call)?),
        };
        while !can_adjust(log.balances, &share, change)? {
            let day_ms = LimitWindow::Day.start_ms(share.day);
            self.read_missing(
                share.parties(),
                &change.amount_limits(),
                HeldAmount::default(),
                || day_ms,
                log.balances,
            )?;
        }
        log.add(self.writer.now_ms(), adjust_entry(call, share, change)?)?;
        log.write()
    }

    /// Reads the totals that the limits of `hold` need.
    fn read_totals(&self, hold: &CallHold, balances: &mut CachedBalances) -> Result<(), LedgerError> {
        let now_ms = || self.writer.now_ms();
        self.read_missing(CallParties::of(hold), &hold.limits, HeldAmount::of(hold), now_ms, balances)
    }

    /// Reads the totals of `parties` that `limits` need. Fails if `amount` more would exceed one of them.
    fn read_missing(
        &self,
        parties: CallParties<'_>,
        limits: &[UsageLimit],
        amount: HeldAmount,
        now_ms: impl Fn() -> i64,
        balances: &mut CachedBalances,
    ) -> Result<(), LedgerError> {
        while let LimitCheck::MissingTotals(keys) = balances.check(parties, limits, amount, now_ms())? {
            for key in keys {
                let amounts = totals::read(&self.connection, &key)?;
                balances.insert(key, amounts);
            }
        }
        Ok(())
    }

    /// Grants the lease block that `hold` needs, if any.
    fn grant_lease(&mut self, hold: &CallHold, leases: &mut lease::Leases) -> Result<(), LedgerError> {
        if self.writer.durability != Durability::Lease {
            return Ok(());
        }
        if let Some(block) = leases.missing(hold) {
            let writer = Arc::clone(&self.writer);
            let context = write_context(&writer);
            with_full_sync(&mut self.connection, |connection| lease::grant(connection, context, &block))?;
            leases.add(block);
        }
        Ok(())
    }

    /// Changes a call that is not an open call of this process, directly in the tables. All processes drop their
    /// cached balances.
    fn change_tables(
        &mut self,
        log: &mut LockedLog<'_>,
        change: impl FnOnce(&mut LedgerTables<'_>, i64) -> Result<(), LedgerError>,
    ) -> OperationResult {
        let now_ms = self.writer.now_ms();
        log.add(now_ms, LogEntry::Forget)?;
        log.write()?;
        let change = |connection: &mut Connection| {
            let transaction = connection.transaction()?;
            let mut tables = LedgerTables::new(&transaction);
            change(&mut tables, now_ms)?;
            tables.finish()?;
            Ok(transaction.commit()?)
        };
        if self.writer.durability == Durability::Normal {
            return change(&mut self.connection);
        }
        with_full_sync(&mut self.connection, change)
    }

    /// Runs a checkpoint, and replaces a log that has become too long.
    fn checkpoint(&mut self) -> Result<(), LedgerError> {
        checkpoint::run(&mut self.connection, &self.log_path)?;
        let mut state = self.writer.state();
        if state.log_length() < MAX_LOG_BYTES {
            return Ok(());
        }
        let mut log = state.lock_log()?;
        replace_log(&mut self.connection, &self.log_path, &mut log.lock)
    }

    fn context(&self) -> WriteContext<'_> {
        write_context(&self.writer)
    }

    /// Makes the tables and the log consistent, and recovers the calls of dead processes.
    pub(super) fn recover(&mut self, owners: &Path) -> Result<RecoveredCalls, LedgerError> {
        let writer = Arc::clone(&self.writer);
        let mut state = writer.state();
        let mut log = state.lock_log()?;
        checkpoint::run(&mut self.connection, &self.log_path)?;
        let copied = LogPosition::read(&self.connection)?;
        // The tables can be ahead of the log: a replacement was interrupted, or a power cut removed lines of the log.
        let log_end = LogPosition { generation: log.lock.generation(), bytes: log.lock.length() };
        if copied > log_end {
            replace_log(&mut self.connection, &self.log_path, &mut log.lock)?;
            drop(log);
            log = state.lock_log()?;
        }
        log.add(writer.now_ms(), LogEntry::Forget)?;
        log.write()?;
        recover(&mut self.connection, owners, write_context(&writer))
    }
}

/// Returns whether no lease covers `operation`: a lease covers held money, but not held tokens or later changes.
fn is_uncovered_by_leases(operation: &LedgerOperation) -> bool {
    match operation {
        LedgerOperation::Adjust(..) => true,
        LedgerOperation::Hold(hold) => hold.tokens > 0,
        _ => false,
    }
}

fn write_context(writer: &OperationWriter) -> WriteContext<'_> {
    WriteContext { owner: &writer.owner, boot: &writer.boot, now_ms: writer.now_ms() }
}

/// Runs a checkpoint and replaces the log by an empty one.
///
/// The new position is on disk before the old log is removed, so a crash at any point loses no line and applies none
/// twice.
fn replace_log(connection: &mut Connection, path: &Path, lock: &mut LogLock<'_>) -> Result<(), LedgerError> {
    checkpoint::run(connection, path)?;
    let generation = LogPosition::read(connection)?.generation.max(lock.generation()) + 1;
    with_full_sync(connection, |connection| LogPosition { generation, bytes: 0 }.write(connection))?;
    lock.replace(generation).map_err(LedgerError::files)
}

/// Runs `change` with full synchronisation, so that its commit survives a power cut.
fn with_full_sync<T>(
    connection: &mut Connection,
    change: impl FnOnce(&mut Connection) -> Result<T, LedgerError>,
) -> Result<T, LedgerError> {
    Synchronous::Full.apply(connection)?;
    let changed = change(connection);
    Synchronous::Normal.apply(connection)?;
    changed
}
