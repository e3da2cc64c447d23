//! What this process remembers of the ledger, so that a step needs no look into the tables: the sums that limits were
//! held against, and its own calls that are open.

use std::collections::HashMap;

use protocol::CallId;

use super::entry::{Entry, Line, Share};
use super::limit::{Limit, Most, Scope, Window};
use super::sums::Place;
use super::totals::{Difference, Parties};
use super::{LedgerError, Progress, Refusal};

/// So many sums are remembered; then all are forgotten, and read again where they are needed.
const MOST_SUMS: usize = 2_048;

/// What is remembered.
#[derive(Debug, Default)]
pub(super) struct Memory {
    sums: HashMap<(Scope, Window), HashMap<String, Sum>>,
    open: HashMap<CallId, OpenCall>,
}

/// A sum, in the last window of its kind that was asked for.
#[derive(Debug, Clone, Copy)]
struct Sum {
    number: i64,
    amount: Difference,
}

/// A call of ours that has not ended.
#[derive(Debug)]
pub(super) struct OpenCall {
    pub(super) share: Share,
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
        let sums = &mut self.sums;
        line.differences(|parties, scope, window, number, difference| {
            let sum = sums.get_mut(&(scope, window)).and_then(|sums| sums.get_mut(parties.name(scope)));
            if let Some(sum) = sum.filter(|sum| sum.number == number) {
                sum.amount = sum.amount.plus(difference);
            }
        });
    }

    /// Forgets everything: the tables know it.
    pub(super) fn forget(&mut self) {
        self.sums.clear();
        self.open.clear();
    }

    /// Remembers the sum at `place`, as it is in the tables now.
    pub(super) fn learn(&mut self, place: Place, amount: Difference) {
        if self.sums.values().map(HashMap::len).sum::<usize>() >= MOST_SUMS {
            self.sums.clear();
        }
        let Place { scope, name, window, number } = place;
        self.sums.entry((scope, window)).or_default().insert(name, Sum { number, amount });
    }

    /// Whether a call of `parties` fits every limit. What is held by all together must be a number, too.
    pub(super) fn fits(
        &self,
        parties: Parties<'_>,
        limits: &[Limit],
        picos: u64,
        now_ms: i64,
    ) -> Result<Fit, LedgerError> {
        let mut unread = Vec::new();
        match self.sum(parties, Scope::Everything, Window::Ever, 0) {
            Some(sum) if sum.room() < picos => return Err(LedgerError::TooMuch(picos)),
            Some(_) => {}
            None => unread.push(parties.place(Scope::Everything, Window::Ever, 0)),
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

    fn sum(&self, parties: Parties<'_>, scope: Scope, window: Window, number: i64) -> Option<Difference> {
        let sum = self.sums.get(&(scope, window))?.get(parties.name(scope))?;
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
                self.open.insert(hold.call.clone(), OpenCall { share: hold.share.clone(), state });
            }
            // Of one whose answer was lost nobody here knows more than the tables do.
            Entry::Settle { call, .. }
            | Entry::Fail { call, .. }
            | Entry::Advance { call, progress: Progress::Lost } => {
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

impl Difference {
    /// What can still be held without an overflow of the sum.
    fn room(self) -> u64 {
        let used = self.held.unsigned_abs().saturating_add(self.spent.unsigned_abs());
        i64::MAX.unsigned_abs().saturating_sub(used)
    }

    fn check(self, limit: &Limit, picos: u64) -> Result<(), Refusal> {
        let (spent, held, asked) = match limit.most {
            Most::Picos(_) => (self.spent, self.held, picos),
            Most::Requests(_) => (self.requests, 0, 1),
        };
        let (spent, held) = (spent.unsigned_abs(), held.unsigned_abs());
        if spent.saturating_add(held).saturating_add(asked) > limit.most.amount() {
            return Err(Refusal { limit: limit.clone(), spent, held, asked });
        }
        Ok(())
    }
}
