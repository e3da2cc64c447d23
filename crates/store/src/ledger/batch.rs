//! What one transaction enters: a call that was held and settled since the last one is entered once, as it ended.

use std::collections::HashMap;

use foldhash::fast::RandomState;
use protocol::{CallId, SessionId};
use rusqlite::Connection;

use super::carry::misfit;
use super::entry::{Entry, Line, Share};
use super::hold::CallCharge;
use super::row::{self, NewCall};
use super::sums::{Place, Sums};
use super::totals::{self, Difference};
use super::{LedgerError, LimitWindow, book, lease};
use crate::OwnerId;

/// Steps that are entered together.
#[derive(Default)]
pub(super) struct Batch {
    /// Calls that were held in it, in the order of their holds.
    new: Vec<NewCall>,
    places: HashMap<CallId, usize, RandomState>,
    sums: Sums,
}

/// Calls that come together are mostly of a few parties: so many of the last ones are looked at.
const NEAR: usize = 16;

impl Batch {
    pub(super) fn take(&mut self, connection: &Connection, line: Line) -> Result<(), LedgerError> {
        let known = match line.step {
            Entry::Hold(hold) => {
                self.places.insert(hold.call.clone(), self.new.len());
                self.new.push(NewCall::new(hold, line.at));
                return Ok(());
            }
            Entry::Forget => return Ok(()),
            Entry::Advance { ref call, .. } | Entry::Settle { ref call, .. } | Entry::Fail { ref call, .. } => {
                self.places.get(call).and_then(|place| self.new.get_mut(*place))
            }
        };
        match known {
            Some(new) => new.change(line.step, line.at),
            None => self.take_late(connection, &line)?,
        }
        Ok(())
    }

    /// A step of a call that is in the tables.
    fn take_late(&mut self, connection: &Connection, line: &Line) -> Result<(), LedgerError> {
        let (now_ms, sums) = (line.at, &mut self.sums);
        let taken = match &line.step {
            Entry::Advance { call, progress } => book::advance(connection, now_ms, call, *progress),
            Entry::Settle { call, picos, usage, .. } => {
                let charge = CallCharge { usage: *usage, picos: picos.unsigned_abs() };
                book::settle(connection, sums, now_ms, call, &charge)
            }
            Entry::Fail { call, reason, .. } => book::fail(connection, sums, now_ms, call, reason),
            Entry::Hold(_) | Entry::Forget => Ok(()),
        };
        self.sums.end_step(taken.is_ok());
        match taken {
            Err(error @ (LedgerError::NotFound(_) | LedgerError::OutOfOrder { .. })) => {
                misfit(connection, &serde_json::to_string(line).unwrap_or_default(), &error.to_string())
            }
            other => other,
        }
    }

    pub(super) fn write(self, connection: &Connection) -> Result<(), LedgerError> {
        let Self { new, mut sums, .. } = self;
        add_up(&new, &mut sums);
        for call in row::enter(connection, &new)? {
            // Its hold was said to be fresh, and was not: what is there stays, and counts alone.
            totals::add(&mut sums, call.hold.share.parties(), call.hold.share.day, call.counted().negative());
            misfit(connection, call.hold.call.as_str(), "it was held before")?;
        }
        draw_leases(connection, &new)?;
        let minutes = minutes(&new);
        totals::forget_minutes(connection, minutes.iter().map(|(place, _)| place))?;
        for (place, requests) in minutes {
            sums.add(place, Difference { requests, ..Difference::default() });
        }
        sums.end_step(true);
        sums.write(connection)
    }
}

/// Adds what `calls` count for, those of the same parties and day together.
fn add_up(calls: &[NewCall], sums: &mut Sums) {
    let mut shares: Vec<(&Share, Difference)> = Vec::new();
    for call in calls {
        let share: &Share = &call.hold.share;
        match shares.iter_mut().rev().take(NEAR).find(|(known, _)| known.counts_with(share)) {
            Some((_, sum)) => *sum = sum.plus(call.counted()),
            None => shares.push((share, call.counted())),
        }
    }
    for (share, difference) in shares {
        totals::add(sums, share.parties(), share.day, difference);
    }
}

/// The requests that are counted by the minute.
fn minutes(calls: &[NewCall]) -> Vec<(Place, i64)> {
    let mut minutes: Vec<(Place, i64)> = Vec::new();
    for call in calls {
        let number = LimitWindow::Minute.number(call.created_ms);
        for scope in &call.hold.minutes {
            let parties = call.hold.share.parties();
            let same =
                |place: &Place| (place.scope, place.number) == (*scope, number) && place.name == parties.name(*scope);
            match minutes.iter_mut().rev().take(NEAR).find(|(place, _)| same(place)) {
                Some((_, requests)) => *requests += 1,
                None => minutes.push((parties.place(*scope, LimitWindow::Minute, number), 1)),
            }
        }
    }
    minutes
}

/// Notes what `calls` use of the leases of their sessions.
fn draw_leases(connection: &Connection, calls: &[NewCall]) -> Result<(), LedgerError> {
    let mut drawn: HashMap<(&OwnerId, &SessionId), i64> = HashMap::new();
    for hold in calls.iter().map(|call| &call.hold).filter(|hold| hold.leased) {
        *drawn.entry((&hold.owner, &hold.share.session)).or_default() += hold.share.picos;
    }
    drawn.into_iter().try_for_each(|((owner, session), picos)| lease::draw(connection, owner, session.as_str(), picos))
}
