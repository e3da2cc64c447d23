//! Takes steps at once, by what is remembered, where that is enough; whatever needs the tables is left to the thread
//! that has them.

use std::sync::{Arc, Mutex, MutexGuard};

use base::lock;

use super::backlog::Backlog;
use super::daybook::{Daybook, Place, Turn};
use super::entry::{Entry, HoldEntry, Line, Share};
use super::hold::{CallCharge, CallHold, bounded, checked};
use super::lease::Leases;
use super::limit::{LimitScope, LimitWindow};
use super::memory::{Fit, Memory, OpenCall};
use super::port::LedgerOperation;
use super::totals::Parties;
use super::{Durability, LedgerError};
use crate::{Clock, OwnerId};

/// Takes the steps of one process.
pub(super) struct Teller {
    pub(super) owner: OwnerId,
    pub(super) boot: Arc<str>,
    pub(super) durability: Durability,
    pub(super) clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

/// What a step changes.
pub(super) struct State {
    daybook: Daybook,
    memory: Memory,
    leases: Leases,
    backlog: Backlog,
    draft: Draft,
    /// The disk did not take what was written. What it has is unknown from then on, whatever it says later.
    torn: Option<LedgerError>,
}

/// Lines that are not in the daybook yet: as they will stand there, and each with its length.
#[derive(Default)]
struct Draft {
    text: Vec<u8>,
    lines: Vec<(Line, u64)>,
}

/// Our turn in the daybook, and what is remembered up to it.
pub(super) struct Desk<'a> {
    pub(super) turn: Turn<'a>,
    pub(super) memory: &'a mut Memory,
    pub(super) leases: &'a mut Leases,
    backlog: &'a mut Backlog,
    draft: &'a mut Draft,
}

/// What became of steps that were asked for together.
pub(super) struct Taken {
    pub(super) steps: Vec<Result<(), Untaken>>,
    /// Whether the tables should not be left behind any longer.
    pub(super) much_to_carry: bool,
}

/// Why a step was not taken.
#[derive(Debug)]
pub(super) enum Untaken {
    /// It needs a look into the tables first.
    Tables(LedgerOperation),
    Error(LedgerError),
}

impl From<LedgerError> for Untaken {
    fn from(error: LedgerError) -> Self {
        Self::Error(error)
    }
}

impl Teller {
    pub(super) fn new(
        daybook: Daybook,
        owner: OwnerId,
        boot: Arc<str>,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let (memory, leases, backlog) = (Memory::default(), Leases::default(), Backlog::default());
        let state = State { daybook, memory, leases, backlog, draft: Draft::default(), torn: None };
        Self { owner, boot, durability, clock, state: Mutex::new(state) }
    }

    /// What steps change; nobody else of this process takes one meanwhile.
    pub(super) fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }

    /// Waits until everything that stands in the daybook is on disk. After a failure no step is taken any more.
    pub(super) fn sync(&self) -> Result<(), LedgerError> {
        let file = {
            let state = self.state();
            state.whole()?;
            state.daybook.file()
        };
        let synced = file.and_then(|file| file.sync_data()).map_err(LedgerError::files);
        if let Err(error) = &synced {
            self.state().torn = Some(error.clone());
        }
        synced
    }

    pub(super) fn now_ms(&self) -> i64 {
        self.clock.now().as_millisecond()
    }

    /// Takes `steps` in one turn, as far as what is remembered is enough.
    pub(super) fn take(&self, steps: Vec<LedgerOperation>) -> Taken {
        let mut state = self.state();
        let mut desk = match state.turn() {
            Ok(desk) => desk,
            Err(error) => {
                let steps = steps.iter().map(|_| Err(error.clone().into())).collect();
                return Taken { steps, much_to_carry: false };
            }
        };
        let now_ms = self.now_ms();
        let mut taken: Vec<_> = steps.into_iter().map(|step| self.take_one(&mut desk, now_ms, step)).collect();
        if let Err(error) = desk.hand_in() {
            for step in taken.iter_mut().filter(|step| step.is_ok()) {
                *step = Err(error.clone().into());
            }
        }
        Taken { steps: taken, much_to_carry: desk.backlog.is_long() }
    }

    fn take_one(&self, desk: &mut Desk<'_>, now_ms: i64, step: LedgerOperation) -> Result<(), Untaken> {
        match step {
            LedgerOperation::Hold(hold) => {
                // One that may have been held before is looked up.
                if !hold.fresh || !self.can_hold(desk, now_ms, &hold)? {
                    return Err(Untaken::Tables(LedgerOperation::Hold(hold)));
                }
                Ok(self.hold(desk, now_ms, *hold)?)
            }
            LedgerOperation::Resolve(..) => Err(Untaken::Tables(step)),
            LedgerOperation::Advance(ref call, _)
            | LedgerOperation::Settle(ref call, _)
            | LedgerOperation::Fail(ref call, _) => {
                let Some(open) = desk.memory.open_call(call) else { return Err(Untaken::Tables(step)) };
                match next(open, step)? {
                    Some(entry) => Ok(desk.write(now_ms, entry)?),
                    None => Ok(()),
                }
            }
        }
    }

    /// Whether `hold` can be granted by what is remembered; false: nobody can tell before the tables were read.
    pub(super) fn can_hold(&self, desk: &Desk<'_>, now_ms: i64, hold: &CallHold) -> Result<bool, LedgerError> {
        checked(hold.picos)?;
        if desk.memory.open_call(&hold.call).is_some() {
            return Err(LedgerError::Duplicate(hold.call.clone()));
        }
        let fits = desk.memory.fits(Parties::of(hold), &hold.limits, hold.picos, now_ms)?;
        let leased = self.durability != Durability::Lease || desk.leases.missing(hold).is_none();
        Ok(matches!(fits, Fit::Yes) && leased)
    }

    /// Grants `hold`, which [can be](Self::can_hold) at that time.
    pub(super) fn hold(&self, desk: &mut Desk<'_>, now_ms: i64, hold: CallHold) -> Result<(), LedgerError> {
        let leased = self.durability == Durability::Lease;
        if leased {
            desk.leases.used(&hold);
        }
        desk.write(now_ms, Entry::Hold(Box::new(self.entry(hold, now_ms, leased)?)))
    }

    fn entry(&self, hold: CallHold, now_ms: i64, leased: bool) -> Result<HoldEntry, LedgerError> {
        let mut minutes: Vec<LimitScope> = Vec::new();
        for limit in hold.limits.iter().filter(|limit| limit.window == LimitWindow::Minute) {
            if !minutes.contains(&limit.scope) {
                minutes.push(limit.scope);
            }
        }
        let CallHold { call, source, session, account, user, key, agent, model, price_hash, picos, sent, .. } = hold;
        let run = (*source.run != *session.as_str()).then_some(source.run);
        let share = Share { session, account, key, day: LimitWindow::Day.number(now_ms), picos: checked(picos)? };
        Ok(HoldEntry {
            call,
            share: Arc::new(share),
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

/// What is written when `step` is taken of a call of ours that is open; none: it is there already.
fn next(open: &OpenCall, step: LedgerOperation) -> Result<Option<Entry>, LedgerError> {
    let share = || Arc::clone(&open.share);
    Ok(match step {
        LedgerOperation::Advance(_, progress) if open.state == progress.state() => None,
        LedgerOperation::Advance(call, progress) if !progress.follows(open.state) => {
            return Err(LedgerError::OutOfOrder { call, state: open.state.to_owned(), wanted: progress.state() });
        }
        LedgerOperation::Advance(call, progress) => Some(Entry::Advance { call, progress }),
        LedgerOperation::Settle(call, CallCharge { picos, usage }) => {
            Some(Entry::Settle { call, share: share(), picos: checked(picos)?, usage: bounded(usage) })
        }
        LedgerOperation::Fail(call, reason) => Some(Entry::Fail { call, share: share(), reason }),
        LedgerOperation::Hold(_) | LedgerOperation::Resolve(..) => None,
    })
}

impl State {
    /// Waits for our turn, and learns what others wrote before.
    pub(super) fn turn(&mut self) -> Result<Desk<'_>, LedgerError> {
        self.whole()?;
        let Self { daybook, memory, leases, backlog, draft, .. } = self;
        let turn = daybook.turn(|line, place| {
            memory.fold(&line);
            backlog.push(line, place);
        });
        let turn = turn.map_err(LedgerError::files)?;
        draft.text.clear();
        draft.lines.clear();
        Ok(Desk { turn, memory, leases, backlog, draft })
    }

    /// What is known here and not in the tables yet.
    pub(super) fn take_backlog(&mut self) -> Backlog {
        self.backlog.take()
    }

    /// Bytes of the daybook, as far as is known here.
    pub(super) fn length(&self) -> u64 {
        self.daybook.length()
    }

    fn whole(&self) -> Result<(), LedgerError> {
        self.torn.clone().map_or(Ok(()), Err)
    }
}

impl Desk<'_> {
    /// Writes a step down and remembers it. It is taken when it is [handed in](Self::hand_in).
    pub(super) fn write(&mut self, at: i64, step: Entry) -> Result<(), LedgerError> {
        let (line, text) = (Line { at, step }, &mut self.draft.text);
        let start = text.len();
        line.encode(text).map_err(|error| LedgerError::files(error.into()))?;
        let bytes = (text.len() - start) as u64;
        self.memory.wrote(&line);
        self.draft.lines.push((line, bytes));
        Ok(())
    }

    /// Puts what was written down into the daybook, in one go.
    pub(super) fn hand_in(&mut self) -> Result<(), LedgerError> {
        let Draft { text, lines } = &mut *self.draft;
        if lines.is_empty() {
            return Ok(());
        }
        let mut start = self.turn.length();
        let written = self.turn.append(text).map_err(LedgerError::files);
        text.clear();
        for (line, bytes) in lines.drain(..).filter(|_| written.is_ok()) {
            self.backlog.push(line, Place { generation: self.turn.generation(), start, bytes });
            start += bytes;
        }
        if written.is_err() {
            // What is remembered has it all the same.
            self.memory.forget();
        }
        written
    }

    /// What is known here up to our turn and not in the tables yet.
    pub(super) fn take_backlog(&mut self) -> Backlog {
        self.backlog.take()
    }
}
