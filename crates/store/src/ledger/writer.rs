//! The one thread that has the tables: carries the daybook into them, takes the steps that need them, and waits for
//! the disk for whoever wants to be sure.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use rusqlite::Connection;
use tokio::sync::oneshot;

use super::backlog::Backlog;
use super::book::{self, Hand};
use super::carry::{self, Carried};
use super::daybook::Turn;
use super::entry::Entry;
use super::hold::CallHold;
use super::lease;
use super::memory::{Fit, Memory};
use super::port::{Answer, LedgerOperation};
use super::recovery::{Recovered, recover};
use super::resolution;
use super::sums::Sums;
use super::teller::{Desk, Teller};
use super::totals::{self, Parties};
use super::{Durability, LedgerError};
use crate::database::Synchronous;

/// The tables are at most so far behind the daybook.
const CARRY_AFTER: Duration = Duration::from_millis(200);
/// A daybook that is longer is replaced by an empty one.
const REPLACE_AFTER_BYTES: u64 = 8 << 20;

/// What is asked of the thread.
pub(super) enum Job {
    /// To take a step that needs the tables.
    Take(LedgerOperation, oneshot::Sender<Answer>),
    /// To answer when everything that stands in the daybook is on disk.
    Sync(oneshot::Sender<Answer>),
    /// Something stands in the daybook.
    Stir,
    /// So much does that it should be carried now.
    Carry,
}

/// What the thread knows of what there is to carry, so that nobody tells it twice.
#[derive(Debug, Default)]
pub(super) struct Stirred {
    pub(super) any: AtomicBool,
    pub(super) much: AtomicBool,
}

/// When the daybook is to be carried.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    /// Nothing new stands in it.
    No,
    Soon,
    Now,
}

/// The state of the thread.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) daybook: PathBuf,
    pub(super) teller: Arc<Teller>,
    pub(super) stirred: Arc<Stirred>,
}

impl Writer {
    /// Works until nobody can send a job any more.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        let mut due: Option<Instant> = None;
        loop {
            let first = match due {
                None => jobs.recv().map_err(|_| RecvTimeoutError::Disconnected),
                Some(due) => jobs.recv_timeout(due.saturating_duration_since(Instant::now())),
            };
            match first {
                Ok(first) => match self.work(std::iter::once(first).chain(jobs.try_iter())) {
                    Due::No => {}
                    Due::Soon => _ = due.get_or_insert_with(|| Instant::now() + CARRY_AFTER),
                    Due::Now => due = Some(Instant::now()),
                },
                Err(RecvTimeoutError::Timeout) => {
                    self.stirred.any.store(false, Ordering::Release);
                    self.stirred.much.store(false, Ordering::Release);
                    // What could not be carried stands in the daybook, and is carried with what comes next.
                    due = self.carry_on().is_err().then(|| Instant::now() + CARRY_AFTER * 10);
                }
                Err(RecvTimeoutError::Disconnected) => break,
            }
        }
        // What is left is carried by the next who opens the ledger; a lease that stays is given back by whoever finds it.
        let _ = self.carry_on();
        let _ = lease::give_back(&self.connection, self.hand());
    }

    /// Does what was asked; says when what stands in the daybook is to be carried.
    fn work(&mut self, jobs: impl Iterator<Item = Job>) -> Due {
        let (mut waiting, mut due) = (Vec::new(), Due::No);
        for job in jobs {
            match job {
                Job::Stir => due = due.max(Due::Soon),
                Job::Carry => due = Due::Now,
                Job::Sync(answer) => waiting.push(answer),
                Job::Take(step, answer) => {
                    due = due.max(Due::Soon);
                    match self.take(step) {
                        Ok(()) if self.teller.durability == Durability::Full => waiting.push(answer),
                        // Who no longer waits has left; the step stands.
                        taken => drop(answer.send(taken)),
                    }
                }
            }
        }
        if !waiting.is_empty() {
            let synced = self.teller.sync();
            for answer in waiting {
                let _ = answer.send(synced.clone());
            }
        }
        due
    }

    /// Takes a step with the tables at hand.
    fn take(&mut self, step: LedgerOperation) -> Answer {
        let teller = Arc::clone(&self.teller);
        let mut state = teller.state();
        let mut desk = state.turn()?;
        self.carry(desk.take_backlog())?;
        match step {
            LedgerOperation::Hold(hold) => self.hold(*hold, &mut desk),
            LedgerOperation::Advance(call, progress) => self
                .change_tables(&mut desk, |connection, _, now_ms| book::advance(connection, now_ms, &call, progress)),
            LedgerOperation::Settle(call, charge) => self.change_tables(&mut desk, |connection, sums, now_ms| {
                book::settle(connection, sums, now_ms, &call, &charge)
            }),
            LedgerOperation::Fail(call, reason) => self.change_tables(&mut desk, |connection, sums, now_ms| {
                book::fail(connection, sums, now_ms, &call, &reason)
            }),
            LedgerOperation::Resolve(call, resolution) => self.change_tables(&mut desk, |connection, sums, now_ms| {
                resolution::resolve(connection, sums, now_ms, &call, &resolution)
            }),
        }
    }

    /// Grants a hold, with whatever it needs from the tables.
    fn hold(&mut self, hold: CallHold, desk: &mut Desk<'_>) -> Answer {
        if !hold.fresh && book::is_known(&self.connection, &hold)? {
            return Err(LedgerError::Duplicate(hold.call));
        }
        loop {
            self.learn(&hold, desk.memory)?;
            self.lease(&hold, desk.leases)?;
            let now_ms = self.teller.now_ms();
            // Where it cannot, a new minute or day has begun since: its sum is not read yet.
            if self.teller.can_hold(desk, now_ms, &hold)? {
                self.teller.hold(desk, now_ms, hold)?;
                return desk.hand_in();
            }
        }
    }

    /// Reads the sums that a hold is to be held against.
    fn learn(&self, hold: &CallHold, memory: &mut Memory) -> Result<(), LedgerError> {
        let (parties, now_ms) = (Parties::of(hold), || self.teller.now_ms());
        while let Fit::Unread(places) = memory.fits(parties, &hold.limits, hold.picos, now_ms())? {
            for place in places {
                let sum = totals::read(&self.connection, &place)?;
                memory.learn(place, sum);
            }
        }
        Ok(())
    }

    /// Grants the block that a hold needs.
    fn lease(&mut self, hold: &CallHold, leases: &mut lease::Leases) -> Result<(), LedgerError> {
        if self.teller.durability != Durability::Lease {
            return Ok(());
        }
        if let Some(block) = leases.missing(hold) {
            let teller = &self.teller;
            let hand = Hand { owner: &teller.owner, boot: &teller.boot, now_ms: teller.now_ms() };
            for_good(&mut self.connection, |connection| lease::grant(connection, hand, &block))?;
            leases.granted(block);
        }
        Ok(())
    }

    /// Takes a step in the tables, of a call that is none of our open ones. Everybody forgets the sums they know.
    fn change_tables(
        &mut self,
        desk: &mut Desk<'_>,
        step: impl FnOnce(&Connection, &mut Sums, i64) -> Result<(), LedgerError>,
    ) -> Answer {
        let now_ms = self.teller.now_ms();
        desk.write(now_ms, Entry::Forget)?;
        desk.hand_in()?;
        let change = |connection: &mut Connection| {
            let (transaction, mut sums) = (connection.transaction()?, Sums::default());
            step(&transaction, &mut sums, now_ms)?;
            sums.end_step(true);
            sums.write(&transaction)?;
            Ok(transaction.commit()?)
        };
        if self.teller.durability == Durability::Normal {
            return change(&mut self.connection);
        }
        for_good(&mut self.connection, change)
    }

    /// Carries `backlog`, or where it is not what follows in the tables, everything that stands in the daybook.
    fn carry(&mut self, backlog: Backlog) -> Result<(), LedgerError> {
        if !carry::carry_backlog(&mut self.connection, backlog)? {
            carry::carry(&mut self.connection, &self.daybook)?;
        }
        Ok(())
    }

    /// Carries the daybook into the tables, and replaces it where it has become long.
    fn carry_on(&mut self) -> Result<(), LedgerError> {
        let backlog = self.teller.state().take_backlog();
        self.carry(backlog)?;
        let mut state = self.teller.state();
        if state.length() < REPLACE_AFTER_BYTES {
            return Ok(());
        }
        let mut desk = state.turn()?;
        replace(&mut self.connection, &self.daybook, &mut desk.turn)
    }

    fn hand(&self) -> Hand<'_> {
        Hand { owner: &self.teller.owner, boot: &self.teller.boot, now_ms: self.teller.now_ms() }
    }

    /// Makes the tables and the daybook agree, and looks after what dead owners left.
    pub(super) fn begin(&mut self, owners: &Path) -> Result<Recovered, LedgerError> {
        let teller = Arc::clone(&self.teller);
        let mut state = teller.state();
        let mut desk = state.turn()?;
        carry::carry(&mut self.connection, &self.daybook)?;
        let carried = Carried::read(&self.connection)?;
        // A replacement that was not finished; or lines that a power cut took from the file and not from the tables.
        let read = Carried { generation: desk.turn.generation(), bytes: desk.turn.length() };
        if carried > read {
            replace(&mut self.connection, &self.daybook, &mut desk.turn)?;
            drop(desk);
            desk = state.turn()?;
        }
        desk.write(teller.now_ms(), Entry::Forget)?;
        desk.hand_in()?;
        let hand = Hand { owner: &teller.owner, boot: &teller.boot, now_ms: teller.now_ms() };
        recover(&mut self.connection, owners, hand)
    }
}

/// Carries what is left, and replaces the daybook by an empty one. Whatever happens on the way, no line is carried
/// twice and none is lost: the tables have moved on to the new one, for good, before the old one goes.
fn replace(connection: &mut Connection, path: &Path, turn: &mut Turn<'_>) -> Result<(), LedgerError> {
    carry::carry(connection, path)?;
    let generation = Carried::read(connection)?.generation.max(turn.generation()) + 1;
    for_good(connection, |connection| Carried { generation, bytes: 0 }.write(connection))?;
    turn.replace(generation).map_err(LedgerError::files)
}

/// Runs `change` so that what it commits survives the power.
fn for_good<T>(
    connection: &mut Connection,
    change: impl FnOnce(&mut Connection) -> Result<T, LedgerError>,
) -> Result<T, LedgerError> {
    Synchronous::Full.apply(connection)?;
    let changed = change(connection);
    Synchronous::Normal.apply(connection)?;
    changed
}
