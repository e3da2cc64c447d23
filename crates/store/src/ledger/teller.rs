//! Takes steps at once, by what is remembered, where that is enough; whatever needs the tables is left to the thread
//! that has them.

use std::sync::{Arc, Mutex, MutexGuard};

use protocol::CallId;

use super::backlog::Backlog;
use super::daybook::{Daybook, Place, Turn};
use super::entry::{Entry, HoldEntry, Line, Share};
use super::hold::{Charge, Hold, Progress, bounded, checked};
use super::lease::Leases;
use super::limit::{Scope, Window};
use super::memory::{Fit, Memory, OpenCall};
use super::port::Step;
use super::{Durability, LedgerError};
use crate::guard::lock;
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
    /// The disk did not take what was written. What it has is unknown from then on, whatever it says later.
    torn: Option<LedgerError>,
}

/// Our turn in the daybook, and what is remembered up to it.
pub(super) struct Desk<'a> {
    pub(super) turn: Turn<'a>,
    pub(super) memory: &'a mut Memory,
    pub(super) leases: &'a mut Leases,
    backlog: &'a mut Backlog,
    /// Lines that are not in the daybook yet: as they will stand there, and each with its length.
    text: Vec<u8>,
    lines: Vec<(Line, u64)>,
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
    Tables,
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
        let state = State { daybook, memory, leases, backlog, torn: None };
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
    pub(super) fn take(&self, steps: &[Step]) -> Taken {
        let mut state = self.state();
        let mut desk = match state.turn() {
            Ok(desk) => desk,
            Err(error) => {
                let steps = steps.iter().map(|_| Err(error.clone().into())).collect();
                return Taken { steps, much_to_carry: false };
            }
        };
        let mut taken: Vec<_> = steps.iter().map(|step| self.take_one(&mut desk, step)).collect();
        if let Err(error) = desk.hand_in() {
            for step in taken.iter_mut().filter(|step| step.is_ok()) {
                *step = Err(error.clone().into());
            }
        }
        Taken { steps: taken, much_to_carry: desk.backlog.is_long() }
    }

    fn take_one(&self, desk: &mut Desk<'_>, step: &Step) -> Result<(), Untaken> {
        match step {
            // One that may have been held before is looked up.
            Step::Hold(hold) if !hold.fresh => Err(Untaken::Tables),
            Step::Hold(hold) => self.hold(desk, hold),
            Step::Advance(call, progress) => self.advance(desk, call, *progress),
            Step::Settle(call, charge) => self.settle(desk, call, charge),
            Step::Fail(call, reason) => self.fail(desk, call, reason),
            Step::Resolve(..) => Err(Untaken::Tables),
        }
    }

    /// Grants a hold.
    pub(super) fn hold(&self, desk: &mut Desk<'_>, hold: &Hold) -> Result<(), Untaken> {
        let (now_ms, leased) = (self.now_ms(), self.durability == Durability::Lease);
        let share = Share {
            session: hold.session.clone(),
            account: hold.account.clone(),
            key: hold.key.clone(),
            day: Window::Day.number(now_ms),
            picos: checked(hold.picos)?,
        };
        if desk.memory.open_call(&hold.call).is_some() {
            return Err(LedgerError::Duplicate(hold.call.clone()).into());
        }
        let fits = desk.memory.fits(share.parties(), &hold.limits, hold.picos, now_ms)?;
        if matches!(fits, Fit::Unread(_)) || (leased && desk.leases.missing(hold).is_some()) {
            return Err(Untaken::Tables);
        }
        desk.write(now_ms, Entry::Hold(Box::new(self.entry(hold, share, leased))))?;
        desk.leases.used(hold);
        Ok(())
    }

    fn entry(&self, hold: &Hold, share: Share, leased: bool) -> HoldEntry {
        let mut minutes: Vec<Scope> = Vec::new();
        for limit in hold.limits.iter().filter(|limit| limit.window == Window::Minute) {
            if !minutes.contains(&limit.scope) {
                minutes.push(limit.scope);
            }
        }
        HoldEntry {
            call: hold.call.clone(),
            share,
            system: hold.source.system.clone(),
            reference: hold.source.reference(&hold.call),
            user: hold.user.clone(),
            agent: hold.agent.clone(),
            model: hold.model.clone(),
            price_hash: hold.price_hash.clone(),
            sent: hold.sent,
            leased,
            minutes,
            owner: self.owner.clone(),
            boot: self.boot.clone(),
        }
    }

    /// Notes how far a call got.
    fn advance(&self, desk: &mut Desk<'_>, call: &CallId, progress: Progress) -> Result<(), Untaken> {
        self.step(desk, call, |open| {
            if open.state == progress.state() {
                return Ok(None);
            }
            if !progress.follows(open.state) {
                let (state, wanted) = (open.state.to_owned(), progress.state());
                return Err(LedgerError::OutOfOrder { call: call.clone(), state, wanted });
            }
            Ok(Some(Entry::Advance { call: call.clone(), progress }))
        })
    }

    /// Ends a call with what it cost.
    fn settle(&self, desk: &mut Desk<'_>, call: &CallId, charge: &Charge) -> Result<(), Untaken> {
        self.step(desk, call, |open| {
            let (share, picos, usage) = (open.share.clone(), checked(charge.picos)?, bounded(charge.usage));
            Ok(Some(Entry::Settle { call: call.clone(), share, picos, usage }))
        })
    }

    /// Ends a call that cost nothing.
    fn fail(&self, desk: &mut Desk<'_>, call: &CallId, reason: &str) -> Result<(), Untaken> {
        self.step(desk, call, |open| {
            let (share, reason) = (open.share.clone(), reason.to_owned());
            Ok(Some(Entry::Fail { call: call.clone(), share, reason }))
        })
    }

    /// Writes what `make` says of a call of ours that is open.
    fn step(
        &self,
        desk: &mut Desk<'_>,
        call: &CallId,
        make: impl FnOnce(&OpenCall) -> Result<Option<Entry>, LedgerError>,
    ) -> Result<(), Untaken> {
        let open = desk.memory.open_call(call).ok_or(Untaken::Tables)?;
        match make(open)? {
            Some(step) => Ok(desk.write(self.now_ms(), step)?),
            None => Ok(()),
        }
    }
}

impl State {
    /// Waits for our turn, and learns what others wrote before.
    pub(super) fn turn(&mut self) -> Result<Desk<'_>, LedgerError> {
        self.whole()?;
        let Self { daybook, memory, leases, backlog, .. } = self;
        let turn = daybook.turn(|line, place| {
            memory.fold(&line);
            backlog.push(line, place);
        });
        let turn = turn.map_err(LedgerError::files)?;
        Ok(Desk { turn, memory, leases, backlog, text: Vec::new(), lines: Vec::new() })
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
        let (line, start) = (Line { at, step }, self.text.len());
        line.encode(&mut self.text).map_err(|error| LedgerError::files(error.into()))?;
        self.memory.wrote(&line);
        self.lines.push((line, (self.text.len() - start) as u64));
        Ok(())
    }

    /// Puts what was written down into the daybook, in one go.
    pub(super) fn hand_in(&mut self) -> Result<(), LedgerError> {
        if self.lines.is_empty() {
            return Ok(());
        }
        let mut start = self.turn.length();
        let written = self.turn.append(&self.text).map_err(LedgerError::files);
        self.text.clear();
        for (line, bytes) in self.lines.drain(..).filter(|_| written.is_ok()) {
            self.backlog.push(line, Place { generation: self.turn.generation(), start, bytes });
            start += bytes;
        }
        if written.is_err() {
            // What is remembered has it all the same.
            self.memory.forget();
        }
        written
    }
}
