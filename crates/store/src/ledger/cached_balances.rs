//! Totals and open calls that this process keeps in memory, so that most operations need no query.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use protocol::CallId;

use super::call::HeldAmount;
use super::limit::{LimitAmount, LimitScope, LimitWindow, UsageLimit};
use super::log_entry::{CallShare, LogEntry, LogLine};
use super::totals::{CallParties, TotalAmounts, TotalKey};
use super::{CallProgress, LedgerError, LimitExceeded};

/// The most names with cached totals. When it is reached, the cache is emptied.
const MAX_NAMES: usize = 2_048;

/// Cached totals, and the open calls of this process.
#[derive(Debug, Default)]
pub(super) struct CachedBalances {
    /// Totals of all calls together, which every operation changes.
    everything: WindowTotals,
    /// Totals of sessions, accounts and keys, indexed by scope.
    totals: [HashMap<Box<str>, WindowTotals, RandomState>; LimitScope::ALL.len()],
    open_calls: HashMap<CallId, OpenCall, RandomState>,
}

/// The totals of one name, indexed by window; `None` until they are read from the tables.
type WindowTotals = [Option<CachedTotal>; 3];

/// The total of one window: of the last day or minute that was asked for.
#[derive(Debug, Clone, Copy)]
struct CachedTotal {
    number: i64,
    amounts: TotalAmounts,
}

/// A call of this process that has not ended.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) share: Arc<CallShare>,
    pub(super) state: &'static str,
}

/// The result of checking a hold against its limits.
pub(super) enum LimitCheck {
    Fits,
    /// These totals must be read from the tables first.
    MissingTotals(Vec<TotalKey>),
}

impl CachedBalances {
    /// Applies a line of the log to the cached totals. The line may come from any process.
    pub(super) fn apply(&mut self, line: &LogLine) {
        if matches!(line.step, LogEntry::Forget) {
            self.clear();
        }
        let Some((share, change)) = line.step.total_change() else { return };
        for scope in LimitScope::ALL {
            if let Some(windows) = self.windows_mut(share.parties(), scope) {
                add(windows, LimitWindow::Ever, 0, change);
                add(windows, LimitWindow::Day, share.day, change);
            }
        }
        let LogEntry::Hold(hold) = &line.step else { return };
        for scope in &hold.minutes {
            if let Some(windows) = self.windows_mut(share.parties(), *scope) {
                let one_request = TotalAmounts { requests: 1, ..TotalAmounts::default() };
                add(windows, LimitWindow::Minute, LimitWindow::Minute.number(line.at), one_request);
            }
        }
    }

    /// Applies a line that this process wrote, which may open or end one of its calls.
    pub(super) fn apply_own(&mut self, line: &LogLine) {
        self.apply(line);
        match &line.step {
            LogEntry::Hold(hold) => {
                let state = if hold.sent { "sent" } else { "intent" };
                self.open_calls.insert(hold.call.clone(), OpenCall { share: Arc::clone(&hold.share), state });
            }
            // The tables know as much about a call whose response was lost as this process.
            LogEntry::Settle { call, .. }
            | LogEntry::Fail { call, .. }
            | LogEntry::Advance { call, progress: CallProgress::Lost } => {
                self.open_calls.remove(call);
            }
            LogEntry::Adjust { call, share, picos, tokens } => {
                if let Some(open) = self.open_calls.get_mut(call) {
                    open.share = Arc::new(share.with_amount(*picos, *tokens));
                }
            }
            LogEntry::Advance { call, progress } => {
                if let Some(open) = self.open_calls.get_mut(call) {
                    open.state = progress.state();
                }
            }
            LogEntry::Forget => {}
        }
    }

    /// Empties the cache. Everything can be read from the tables again.
    pub(super) fn clear(&mut self) {
        self.clear_totals();
        self.open_calls.clear();
    }

    /// Caches a total that was read from the tables.
    pub(super) fn insert(&mut self, key: TotalKey, amounts: TotalAmounts) {
        if self.totals.iter().map(HashMap::len).sum::<usize>() >= MAX_NAMES {
            self.clear_totals();
        }
        let TotalKey { scope, name, window, number } = key;
        let windows = match scope {
            LimitScope::Everything => &mut self.everything,
            _ => self.totals[scope as usize].entry(name.into()).or_default(),
        };
        windows[window as usize] = Some(CachedTotal { number, amounts });
    }

    /// Checks a call of `parties` against every limit, and that the total of all holds does not overflow.
    ///
    /// Fails if a limit would be exceeded.
    pub(super) fn check(
        &self,
        parties: CallParties<'_>,
        limits: &[UsageLimit],
        amount: HeldAmount,
        now_ms: i64,
    ) -> Result<LimitCheck, LedgerError> {
        let mut missing = Vec::new();
        match self.total(parties, LimitScope::Everything, LimitWindow::Ever, 0) {
            Some(total) if total.remaining() < amount.picos => return Err(LedgerError::TooMuch(amount.picos)),
            Some(_) => {}
            None => missing.push(parties.total_key(LimitScope::Everything, LimitWindow::Ever, 0)),
        }
        for limit in limits {
            let number = limit.window.number(now_ms);
            match self.total(parties, limit.scope, limit.window, number) {
                Some(total) => total.check(limit, amount)?,
                None => missing.push(parties.total_key(limit.scope, limit.window, number)),
            }
        }
        Ok(if missing.is_empty() { LimitCheck::Fits } else { LimitCheck::MissingTotals(missing) })
    }

    /// Returns the open call of this process with that id.
    pub(super) fn open_call(&self, call: &CallId) -> Option<&OpenCall> {
        self.open_calls.get(call)
    }

    fn windows_mut(&mut self, parties: CallParties<'_>, scope: LimitScope) -> Option<&mut WindowTotals> {
        match scope {
            LimitScope::Everything => Some(&mut self.everything),
            _ => self.totals[scope as usize].get_mut(parties.name(scope)),
        }
    }

    fn total(
        &self,
        parties: CallParties<'_>,
        scope: LimitScope,
        window: LimitWindow,
        number: i64,
    ) -> Option<TotalAmounts> {
        let windows = match scope {
            LimitScope::Everything => &self.everything,
            _ => self.totals[scope as usize].get(parties.name(scope))?,
        };
        windows[window as usize].filter(|total| total.number == number).map(|total| total.amounts)
    }

    fn clear_totals(&mut self) {
        self.everything = WindowTotals::default();
        self.totals.iter_mut().for_each(HashMap::clear);
    }
}

/// Adds `change` to the total of that window, if it is cached.
fn add(windows: &mut WindowTotals, window: LimitWindow, number: i64, change: TotalAmounts) {
    if let Some(total) = windows[window as usize].as_mut().filter(|total| total.number == number) {
        total.amounts = total.amounts.plus(change);
    }
}

impl TotalAmounts {
    /// Returns the amount that can still be held without an overflow of the total.
    fn remaining(self) -> u64 {
        let used = self.held.unsigned_abs().saturating_add(self.spent.unsigned_abs());
        i64::MAX.unsigned_abs().saturating_sub(used)
    }

    fn check(self, limit: &UsageLimit, amount: HeldAmount) -> Result<(), LimitExceeded> {
        let (spent, held, asked) = match limit.max {
            LimitAmount::Picos(_) => (self.spent, self.held, amount.picos),
            LimitAmount::Tokens(_) => (self.spent_tokens, self.held_tokens, amount.tokens),
            LimitAmount::Requests(_) => (self.requests, 0, 1),
        };
        let (spent, held) = (spent.unsigned_abs(), held.unsigned_abs());
        if spent.saturating_add(held).saturating_add(asked) > limit.max.amount() {
            return Err(LimitExceeded { limit: limit.clone(), spent, held, asked });
        }
        Ok(())
    }
}
