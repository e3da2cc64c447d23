//! What one transaction enters: a call that was held and settled since the last one is entered once, as it ended.

use std::collections::HashMap;
use std::sync::Arc;

use foldhash::fast::RandomState;
use protocol::{CallId, SessionId};
use rusqlite::Connection;

use super::carry::misfit;
use super::entry::{Entry, HoldEntry, Line, Share};
use super::hold::Charge;
use super::row::{self, NewCall};
use super::sums::{Place, Sums};
use super::totals::{self, Difference};
use super::{LedgerError, Window, book, lease};
use crate::OwnerId;

/// Steps that are entered together.
#[derive(Default)]
pub(super) struct Batch {
    /// Calls that were held in it, in the order of their holds.
    new: Vec<NewCall>,
    places: HashMap<CallId, usize, RandomState>,
    /// What calls of the same parties add on the same day.
    shares: Vec<(Arc<Share>, Difference)>,
    /// Requests that are counted by the minute.
    minutes: Vec<(Place, i64)>,
    sums: Sums,
}

/// Calls that come together are mostly of a few parties: so many of the last ones are looked at.
const NEAR: usize = 16;

impl Batch {
    pub(super) fn take(&mut self, connection: &Connection, line: Line) -> Result<(), LedgerError> {
        let place = match &line.step {
            Entry::Hold(_) => self.new.len(),
            Entry::Forget => return Ok(()),
            Entry::Advance { call, .. } | Entry::Settle { call, .. } | Entry::Fail { call, .. } => {
                match self.places.get(call) {
                    Some(place) => *place,
                    None => return self.take_late(connection, &line),
                }
            }
        };
        self.add_up(&line);
        match line.step {
            Entry::Hold(hold) => self.begin(hold, line.at),
            step => {
                if let Some(new) = self.new.get_mut(place) {
                    new.change(step, line.at);
                }
            }
        }
        Ok(())
    }

    fn add_up(&mut self, line: &Line) {
        let Some((share, difference)) = line.step.change() else { return };
        match self.shares.iter_mut().rev().take(NEAR).find(|(known, _)| known.counts_with(share)) {
            Some((_, sum)) => *sum = sum.plus(difference),
            None => self.shares.push((Arc::clone(share), difference)),
        }
        line.minutes(|parties, scope, number| {
            let same =
                |place: &Place| (place.scope, place.number) == (scope, number) && place.name == parties.name(scope);
            match self.minutes.iter_mut().rev().take(NEAR).find(|(place, _)| same(place)) {
                Some((_, requests)) => *requests += 1,
                None => self.minutes.push((parties.place(scope, Window::Minute, number), 1)),
            }
        });
    }

    fn begin(&mut self, hold: Box<HoldEntry>, at: i64) {
        self.places.insert(hold.call.clone(), self.new.len());
        self.new.push(NewCall::new(hold, at));
    }

    /// A step of a call that is in the tables.
    fn take_late(&mut self, connection: &Connection, line: &Line) -> Result<(), LedgerError> {
        let (now_ms, sums) = (line.at, &mut self.sums);
        let taken = match &line.step {
            Entry::Advance { call, progress } => book::advance(connection, now_ms, call, *progress),
            Entry::Settle { call, picos, usage, .. } => {
                let charge = Charge { usage: *usage, picos: picos.unsigned_abs() };
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
        let Self { new, shares, minutes, mut sums, .. } = self;
        for (share, difference) in shares {
            totals::add(&mut sums, share.parties(), share.day, difference);
        }
        for call in row::enter(connection, &new)? {
            // Its hold was said to be fresh, and was not: what is there stays, and counts alone.
            totals::add(&mut sums, call.hold.share.parties(), call.hold.share.day, call.undone());
            misfit(connection, call.hold.call.as_str(), "it was held before")?;
        }
        draw_leases(connection, &new)?;
        totals::forget_minutes(connection, minutes.iter().map(|(place, _)| place))?;
        for (place, requests) in minutes {
            sums.add(place, Difference { requests, ..Difference::default() });
        }
        sums.end_step(true);
        sums.write(connection)
    }
}

/// Notes what `calls` use of the leases of their sessions.
fn draw_leases(connection: &Connection, calls: &[NewCall]) -> Result<(), LedgerError> {
    let mut drawn: HashMap<(&OwnerId, &SessionId), i64> = HashMap::new();
    for hold in calls.iter().map(|call| &call.hold).filter(|hold| hold.leased) {
        *drawn.entry((&hold.owner, &hold.share.session)).or_default() += hold.share.picos;
    }
    drawn.into_iter().try_for_each(|((owner, session), picos)| lease::draw(connection, owner, session.as_str(), picos))
}
