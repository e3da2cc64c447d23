//! Applying operations: checking them against the cached balances and writing them to the log.
//!
//! Operations that need a query are passed to the thread that owns the tables.

use std::sync::{Arc, Mutex, MutexGuard};

use base::lock;
use protocol::CallId;

use super::cached_balances::{CachedBalances, LimitCheck, OpenCall};
use super::call::{CallCharge, CallHold, HeldAmount, HoldChange, bounded_tokens, bounded_usage, checked_picos};
use super::lease::Leases;
use super::limit::{LimitScope, LimitWindow};
use super::log_entry::{CallShare, HoldEntry, LogEntry, LogLine};
use super::port::LedgerOperation;
use super::totals::CallParties;
use super::write_ahead_log::{LogLock, WriteAheadLog};
use super::{Durability, LedgerError};
use crate::{Clock, OwnerId};

/// Applies the operations of one process.
pub(super) struct OperationWriter {
    pub(super) owner: OwnerId,
    pub(super) boot: Arc<str>,
    pub(super) durability: Durability,
    pub(super) clock: Arc<dyn Clock>,
    state: Mutex<WriterState>,
}

/// The log, and this process's view of the ledger.
pub(super) struct WriterState {
    log: WriteAheadLog,
    balances: CachedBalances,
    leases: Leases,
    /// Encoded lines that are not in the log yet.
    unwritten: Vec<u8>,
    /// The error of a failed sync. From then on the content of the disk is unknown, and every operation fails.
    sync_error: Option<LedgerError>,
}

/// The locked log, with balances that include every line in it.
pub(super) struct LockedLog<'a> {
    pub(super) lock: LogLock<'a>,
    pub(super) balances: &'a mut CachedBalances,
    pub(super) leases: &'a mut Leases,
    unwritten: &'a mut Vec<u8>,
}

/// The reason why an operation was not applied here.
#[derive(Debug)]
pub(super) enum NotApplied {
    /// The operation needs a query first.
    NeedsTables(LedgerOperation),
    Failed(LedgerError),
}

impl From<LedgerError> for NotApplied {
    fn from(error: LedgerError) -> Self {
        Self::Failed(error)
    }
}

impl OperationWriter {
    pub(super) fn new(
        log: WriteAheadLog,
        owner: OwnerId,
        boot: Arc<str>,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (balances, leases) = (CachedBalances::default(), Leases::default());
        let state = WriterState { log, balances, leases, unwritten: Vec::new(), sync_error: None };
        Self { owner, boot, durability, clock, state: Mutex::new(state) }
    }

    /// Locks the state against other threads of this process.
    pub(super) fn state(&self) -> MutexGuard<'_, WriterState> {
        lock(&self.state)
    }

    /// Returns when everything in the log is on disk. After a failure, every later operation fails.
    pub(super) fn sync(&self) -> Result<(), LedgerError> {
        let file = {
            let state = self.state();
            state.check_sync_error()?;
            state.log.file()
        };
        let synced = file.and_then(|file| file.sync_data()).map_err(LedgerError::files);
        if let Err(error) = &synced {
            self.state().sync_error = Some(error.clone());
        }
        synced
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// Applies `operations` with one write, and returns a result for each. Those that need a query are returned.
    pub(super) fn apply(&self, operations: Vec<LedgerOperation>) -> Vec<Result<(), NotApplied>> {
        let mut state = self.state();
        let mut log = match state.lock_log() {
            Ok(log) => log,
            Err(error) => return operations.iter().map(|_| Err(error.clone().into())).collect(),
        };
        let now_ms = self.now_ms();
        let mut results: Vec<_> =
            operations.into_iter().map(|operation| self.apply_one(&mut log, now_ms, operation)).collect();
        if let Err(error) = log.write() {
            for result in results.iter_mut().filter(|result| result.is_ok()) {
                *result = Err(error.clone().into());
            }
        }
        results
    }

    fn apply_one(&self, log: &mut LockedLog<'_>, now_ms: i64, operation: LedgerOperation) -> Result<(), NotApplied> {
        match operation {
            LedgerOperation::Hold(hold) => {
                // A call that may have been held before must be looked up. A lease does not cover tokens, so the thread
                // syncs the log before it replies.
                let needs_sync = self.durability == Durability::Lease && hold.tokens > 0;
                if !hold.fresh || needs_sync || !self.can_hold(log, now_ms, &hold)? {
                    return Err(NotApplied::NeedsTables(LedgerOperation::Hold(hold)));
                }
                Ok(self.hold(log, now_ms, *hold)?)
            }
            LedgerOperation::Resolve(..) => Err(NotApplied::NeedsTables(operation)),
            LedgerOperation::Adjust(call, change) => {
                let share = log.balances.open_call(&call).map(|open| Arc::clone(&open.share));
                // A lease does not cover the change, so the thread syncs the log before it replies.
                match share.filter(|_| self.durability != Durability::Lease) {
                    Some(share) if can_adjust(log.balances, &share, &change)? => {
                        Ok(log.add(now_ms, adjust_entry(call, share, &change)?)?)
                    }
                    _ => Err(NotApplied::NeedsTables(LedgerOperation::Adjust(call, change))),
                }
            }
            LedgerOperation::Advance(ref call, _)
            | LedgerOperation::Settle(ref call, _)
            | LedgerOperation::Fail(ref call, _) => {
                let Some(open) = log.balances.open_call(call) else { return Err(NotApplied::NeedsTables(operation)) };
                match next_entry(open, operation)? {
                    Some(entry) => Ok(log.add(now_ms, entry)?),
                    None => Ok(()),
                }
            }
        }
    }

    /// Returns whether `hold` can be granted from the cached balances; false if the tables are needed.
    ///
    /// Fails if the hold must be refused.
    pub(super) fn can_hold(&self, log: &LockedLog<'_>, now_ms: i64, hold: &CallHold) -> Result<bool, LedgerError> {
        checked_picos(hold.picos)?;
        if log.balances.open_call(&hold.call).is_some() {
            return Err(LedgerError::Duplicate(hold.call.clone()));
        }
        let check = log.balances.check(CallParties::of(hold), &hold.limits, HeldAmount::of(hold), now_ms)?;
        let has_lease = self.durability != Durability::Lease || log.leases.missing(hold).is_none();
        Ok(matches!(check, LimitCheck::Fits) && has_lease)
    }

    /// Grants `hold`. [`Self::can_hold`] must have returned true for the same time.
    pub(super) fn hold(&self, log: &mut LockedLog<'_>, now_ms: i64, hold: CallHold) -> Result<(), LedgerError> {
        let leased = self.durability == Durability::Lease;
        if leased {
            log.leases.use_amount(&hold);
        }
        log.add(now_ms, LogEntry::Hold(Box::new(self.hold_entry(hold, now_ms, leased)?)))
    }

    fn hold_entry(&self, hold: CallHold, now_ms: i64, leased: bool) -> Result<HoldEntry, LedgerError> {
        let mut minutes: Vec<LimitScope> = Vec::new();
        for limit in hold.limits.iter().filter(|limit| limit.window == LimitWindow::Minute) {
            if !minutes.contains(&limit.scope) {
                minutes.push(limit.scope);
            }
        }
        let CallHold {
            call, source, session, account, user, key, agent, model, price_hash, picos, tokens, sent, ..
        } = hold;
        let run = (*source.run != *session.as_str()).then_some(source.run);
        let (day, picos, tokens) = (LimitWindow::Day.number(now_ms), checked_picos(picos)?, bounded_tokens(tokens));
        Ok(HoldEntry {
            call,
            share: Arc::new(CallShare { session, account, key, day, picos, tokens }),
            system: source.system,
            run,
            attempt: source.attempt,
            reference: None,
            user,
            agent,
            model,
            price_hash,
            sent,
            leased,
            minutes,
            owner: self.owner.clone(),
            boot: Arc::clone(&self.boot),
        })
    }
}

/// Returns whether the hold of `share` can be changed according to the cached balances; false if the tables are needed.
///
/// Fails if a limit would be exceeded. A smaller hold always fits.
pub(super) fn can_adjust(
    balances: &CachedBalances,
    share: &CallShare,
    change: &HoldChange,
) -> Result<bool, LedgerError> {
    let more_picos = checked_picos(change.picos)?.saturating_sub(share.picos);
    let more_tokens = bounded_tokens(change.tokens).saturating_sub(share.tokens);
    if more_picos <= 0 && more_tokens <= 0 {
        return Ok(true);
    }
    let more =
        HeldAmount { picos: u64::try_from(more_picos).unwrap_or(0), tokens: u64::try_from(more_tokens).unwrap_or(0) };
    // The call counts on the day on which it was held, and as a request it was counted then.
    let day_ms = LimitWindow::Day.start_ms(share.day);
    Ok(matches!(balances.check(share.parties(), &change.amount_limits(), more, day_ms)?, LimitCheck::Fits))
}

/// Returns the log entry that changes the hold of `share`.
pub(super) fn adjust_entry(call: CallId, share: Arc<CallShare>, change: &HoldChange) -> Result<LogEntry, LedgerError> {
    let (picos, tokens) = (checked_picos(change.picos)?, bounded_tokens(change.tokens));
    Ok(LogEntry::Adjust { call, share, picos, tokens })
}

/// Returns the log entry of `operation` on an open call of this process; `None` if the call is in that state already.
fn next_entry(open: &OpenCall, operation: LedgerOperation) -> Result<Option<LogEntry>, LedgerError> {
    let share = || Arc::clone(&open.share);
    Ok(match operation {
        LedgerOperation::Advance(_, progress) if open.state == progress.state() => None,
        LedgerOperation::Advance(call, progress) if !progress.follows(open.state) => {
            return Err(LedgerError::OutOfOrder { call, state: open.state.to_owned(), wanted: progress.state() });
        }
        LedgerOperation::Advance(call, progress) => Some(LogEntry::Advance { call, progress }),
        LedgerOperation::Settle(call, CallCharge { picos, usage, estimated }) => {
            let (picos, usage) = (checked_picos(picos)?, bounded_usage(usage));
            Some(LogEntry::Settle { call, share: share(), picos, usage, estimated })
        }
        LedgerOperation::Fail(call, reason) => Some(LogEntry::Fail { call, share: share(), reason }),
        LedgerOperation::Hold(_) | LedgerOperation::Adjust(..) | LedgerOperation::Resolve(..) => None,
    })
}

impl WriterState {
    /// Locks the log against other processes, and applies the lines that they wrote to the balances.
    pub(super) fn lock_log(&mut self) -> Result<LockedLog<'_>, LedgerError> {
        self.check_sync_error()?;
        let Self { log, balances, leases, unwritten, .. } = self;
        let lock = log.lock(|line| balances.apply(line)).map_err(LedgerError::files)?;
        unwritten.clear();
        Ok(LockedLog { lock, balances, leases, unwritten })
    }

    /// Returns the length of the log in bytes, as far as this process knows.
    pub(super) fn log_length(&self) -> u64 {
        self.log.length()
    }

    fn check_sync_error(&self) -> Result<(), LedgerError> {
        self.sync_error.clone().map_or(Ok(()), Err)
    }
}

impl LockedLog<'_> {
    /// Encodes an entry and applies it to the balances. [`Self::write`] makes it valid.
    pub(super) fn add(&mut self, at: i64, step: LogEntry) -> Result<(), LedgerError> {
        let line = LogLine { at, step };
        line.encode(self.unwritten).map_err(|error| LedgerError::files(error.into()))?;
        self.balances.apply_own(&line);
        Ok(())
    }

    /// Writes the added entries to the log with one write. On a failure, none of them is valid.
    pub(super) fn write(&mut self) -> Result<(), LedgerError> {
        if self.unwritten.is_empty() {
            return Ok(());
        }
        let written = self.lock.append(self.unwritten).map_err(LedgerError::files);
        self.unwritten.clear();
        if written.is_err() {
            // The balances contain entries that were not written.
            self.balances.clear();
        }
        written
    }
}
