//! What this process remembers of the ledger, so that a step needs no look into the tables: the sums that limits were
//! held against, and its own calls that are open.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use protocol::CallId;

use super::entry::{Entry, Line, Share};
use super::limit::{LimitAmount, LimitScope, LimitWindow, UsageLimit};
use super::sums::Place;
use super::totals::{Difference, Parties};
use super::{CallProgress, LedgerError, LimitExceeded};

/// The sums of so many names are remembered; then all are forgotten, and read again where they are needed.
const MOST_NAMES: usize = 2_048;

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Of all calls together, which each step changes.
    everything: Windows,
    /// Of everybody else, by scope in the order in which scopes are declared.
    sums: [HashMap<Box<str>, Windows, RandomState>; LimitScope::ALL.len()],
    open: HashMap<CallId, OpenCall, RandomState>,
}

/// The sums of one name, in the order in which windows are declared; those that were not asked for are not known.
type Windows = [Option<Sum>; 3];

/// A sum, in the last window of its kind that was asked for.
#[derive(Debug, Clone, Copy)]
struct Sum {
    number: i64,
    amount: Difference,
}

/// A call of ours that has not ended.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) share: Arc<Share>,
    pub(super) state: &'static str,
}

/// Whether a hold fits.
pub(super) enum Fit {
    Yes,
    /// Nobody can tell before these were read.
    Unread(Vec<Place>),
}

impl Memory {
    /// Takes over a line of the daybook, whoever wrote it.
    pub(super) fn fold(&mut self, line: &Line) {
        if matches!(line.step, Entry::Forget) {
            self.forget();
        }
        let Some((share, difference)) = line.step.change() else { return };
        for scope in LimitScope::ALL {
            if let Some(windows) = self.windows_mut(share.parties(), scope) {
                add(windows, LimitWindow::Ever, 0, difference);
                add(windows, LimitWindow::Day, share.day, difference);
            }
        }
        let Entry::Hold(hold) = &line.step else { return };
        for scope in &hold.minutes {
            if let Some(windows) = self.windows_mut(share.parties(), *scope) {
                let one = Difference { requests: 1, ..Difference::default() };
                add(windows, LimitWindow::Minute, LimitWindow::Minute.number(line.at), one);
            }
        }
    }

    /// Forgets everything: the tables know it.
    pub(super) fn forget(&mut self) {
        self.forget_sums();
        self.open.clear();
    }

    /// Remembers the sum at `place`, as it is in the tables now.
    pub(super) fn learn(&mut self, place: Place, amount: Difference) {
        if self.sums.iter().map(HashMap::len).sum::<usize>() >= MOST_NAMES {
            self.forget_sums();
        }
        let Place { scope, name, window, number } = place;
        let windows = match scope {
            LimitScope::Everything => &mut self.everything,
            _ => self.sums[scope as usize].entry(name.into()).or_default(),
        };
        windows[window as usize] = Some(Sum { number, amount });
    }

    fn windows(&self, parties: Parties<'_>, scope: LimitScope) -> Option<&Windows> {
        match scope {
            LimitScope::Everything => Some(&self.everything),
            _ => self.sums[scope as usize].get(parties.name(scope)),
        }
    }

    fn windows_mut(&mut self, parties: Parties<'_>, scope: LimitScope) -> Option<&mut Windows> {
        match scope {
            LimitScope::Everything => Some(&mut self.everything),
            _ => self.sums[scope as usize].get_mut(parties.name(scope)),
        }
    }

    fn forget_sums(&mut self) {
        self.everything = Windows::default();
        self.sums.iter_mut().for_each(HashMap::clear);
    }

    /// Whether a call of `parties` fits every limit. What is held by all together must be a number, too.
    pub(super) fn fits(
        &self,
        parties: Parties<'_>,
        limits: &[UsageLimit],
        picos: u64,
        now_ms: i64,
    ) -> Result<Fit, LedgerError> {
        let mut unread = Vec::new();
        match self.sum(parties, LimitScope::Everything, LimitWindow::Ever, 0) {
            Some(sum) if sum.room() < picos => return Err(LedgerError::TooMuch(picos)),
            Some(_) => {}
            None => unread.push(parties.place(LimitScope::Everything, LimitWindow::Ever, 0)),
        }
        for limit in limits {
            let number = limit.window.number(now_ms);
            match self.sum(parties, limit.scope, limit.window, number) {
                Some(sum) => sum.check(limit, picos)?,
                None => unread.push(parties.place(limit.scope, limit.window, number)),
            }
        }
        Ok(if unread.is_empty() { Fit::Yes } else { Fit::Unread(unread) })
    }

    fn sum(&self, parties: Parties<'_>, scope: LimitScope, window: LimitWindow, number: i64) -> Option<Difference> {
        let sum = self.windows(parties, scope)?[window as usize]?;
        (sum.number == number).then_some(sum.amount)
    }

    /// A call of ours that is open.
    pub(super) fn open_call(&self, call: &CallId) -> Option<&OpenCall> {
        self.open.get(call)
    }

    /// Takes over a line that we wrote.
    pub(super) fn wrote(&mut self, line: &Line) {
        self.fold(line);
        match &line.step {
            Entry::Hold(hold) => {
                let state = if hold.sent { "sent" } else { "intent" };
                self.open.insert(hold.call.clone(), OpenCall { share: Arc::clone(&hold.share), state });
            }
            // Of one whose answer was lost nobody here knows more than the tables do.
            Entry::Settle { call, .. }
            | Entry::Fail { call, .. }
            | Entry::Advance { call, progress: CallProgress::Lost } => {
                self.open.remove(call);
            }
            Entry::Advance { call, progress } => {
                if let Some(open) = self.open.get_mut(call) {
                    open.state = progress.state();
                }
            }
            Entry::Forget => {}
        }
    }
}

/// Adds `difference` to the sum of that window, if it is known.
fn add(windows: &mut Windows, window: LimitWindow, number: i64, difference: Difference) {
    if let Some(sum) = windows[window as usize].as_mut().filter(|sum| sum.number == number) {
        sum.amount = sum.amount.plus(difference);
    }
}

impl Difference {
    /// What can still be held without an overflow of the sum.
    fn room(self) -> u64 {
        let used = self.held.unsigned_abs().saturating_add(self.spent.unsigned_abs());
        i64::MAX.unsigned_abs().saturating_sub(used)
    }

    fn check(self, limit: &UsageLimit, picos: u64) -> Result<(), LimitExceeded> {
        let (spent, held, asked) = match limit.max {
            LimitAmount::Picos(_) => (self.spent, self.held, picos),
            LimitAmount::Requests(_) => (self.requests, 0, 1),
        };
        let (spent, held) = (spent.unsigned_abs(), held.unsigned_abs());
        if spent.saturating_add(held).saturating_add(asked) > limit.max.amount() {
            return Err(LimitExceeded { limit: limit.clone(), spent, held, asked });
        }
        Ok(())
    }
}
