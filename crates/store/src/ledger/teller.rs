//! Takes steps at once, by what is remembered, where that is enough; whatever needs the tables is left to the thread
//! that has them.

use std::sync::{Arc, Mutex, MutexGuard};

use protocol::CallId;

use super::daybook::{Daybook, Turn};
use super::entry::{Entry, HoldEntry, Line, Share};
use super::hold::{Charge, Hold, Progress, bounded, checked};
use super::lease::Leases;
use super::limit::{Scope, Window};
use super::memory::{Fit, Memory, OpenCall};
use super::{Durability, LedgerError};
use crate::guard::lock;
use crate::{Clock, OwnerId};

/// Takes the steps of one process.
pub(super) struct Teller {
    pub(super) owner: OwnerId,
    pub(super) boot: String,
    pub(super) durability: Durability,
    pub(super) clock: Arc<dyn Clock>,
    state: Mutex<State>,
}

/// What a step changes.
pub(super) struct State {
    daybook: Daybook,
    memory: Memory,
    leases: Leases,
    /// The disk did not take what was written. What it has is unknown from then on, whatever it says later.
    torn: Option<LedgerError>,
}

/// Our turn in the daybook, and what is remembered up to it.
pub(super) struct Desk<'a> {
    pub(super) turn: Turn<'a>,
    pub(super) memory: &'a mut Memory,
    pub(super) leases: &'a mut Leases,
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
        boot: String,
        durability: Durability,
        clock: Arc<dyn Clock>,
    ) -> Self {
        let state = State { daybook, memory: Memory::default(), leases: Leases::default(), torn: None };
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
    pub(super) fn advance(&self, desk: &mut Desk<'_>, call: &CallId, progress: Progress) -> Result<(), Untaken> {
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
    pub(super) fn settle(&self, desk: &mut Desk<'_>, call: &CallId, charge: &Charge) -> Result<(), Untaken> {
        self.step(desk, call, |open| {
            let (share, picos, usage) = (open.share.clone(), checked(charge.picos)?, bounded(charge.usage));
            Ok(Some(Entry::Settle { call: call.clone(), share, picos, usage }))
        })
    }

    /// Ends a call that cost nothing.
    pub(super) fn fail(&self, desk: &mut Desk<'_>, call: &CallId, reason: &str) -> Result<(), Untaken> {
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
        let Self { daybook, memory, leases, .. } = self;
        let turn = daybook.turn(|line| memory.fold(line)).map_err(LedgerError::files)?;
        Ok(Desk { turn, memory, leases })
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
    /// Writes a step down, and remembers it.
    pub(super) fn write(&mut self, at: i64, step: Entry) -> Result<(), LedgerError> {
        let line = Line { at, step };
        let written = line.encode().map_err(Into::into).and_then(|bytes| self.turn.append(&bytes));
        written.map_err(LedgerError::files)?;
        self.memory.wrote(&line);
        Ok(())
    }
}
