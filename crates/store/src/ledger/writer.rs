//! The one thread that writes: everything that waits goes into one transaction, and is answered when that
//! is on disk.

use std::iter;
use std::sync::Arc;
use std::sync::mpsc::Receiver;

use protocol::CallId;
use rusqlite::{Connection, Transaction};
use tokio::sync::oneshot;

use super::book::{self, Hand};
use super::hold::{Charge, Hold, Progress};
use super::lease::{self, Block, Leases};
use super::limit::Window;
use super::port::Answer;
use super::resolution::{self, Resolution};
use super::sums::Sums;
use super::{Durability, LedgerError};
use crate::database::Synchronous;
use crate::{Clock, OwnerId};

/// Longer transactions would let the first caller wait for the last.
const MAX_BATCH: usize = 256;

/// One step of one call.
pub(super) enum Step {
    Hold(Box<Hold>),
    Advance(CallId, Progress),
    Settle(CallId, Charge),
    Fail(CallId, String),
    Resolve(CallId, Resolution),
}

/// A step and who waits for it.
pub(super) struct Job {
    pub(super) step: Step,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// The state of the writing thread.
pub(super) struct Writer {
    pub(super) connection: Connection,
    pub(super) durability: Durability,
    pub(super) owner: OwnerId,
    pub(super) boot: String,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) leases: Leases,
}

impl Writer {
    /// Works until nobody can send a job any more.
    pub(super) fn run(mut self, jobs: &Receiver<Job>) {
        while let Ok(first) = jobs.recv() {
            let batch: Vec<Job> = iter::once(first).chain(jobs.try_iter()).take(MAX_BATCH).collect();
            let steps: Vec<&Step> = batch.iter().map(|job| &job.step).collect();
            let answers = self.write(&steps).unwrap_or_else(|error| vec![Err(error); batch.len()]);
            for (job, answer) in batch.into_iter().zip(answers) {
                // Who no longer waits has left; the step stands.
                let _ = job.answer.send(answer);
            }
        }
        // A lease that stays is given back by whoever finds it: nothing is lost but a look.
        let _ = lease::give_back(&self.connection, self.hand());
    }

    /// Takes every step in one transaction. An error means that none was taken.
    fn write(&mut self, steps: &[&Step]) -> Result<Vec<Answer>, LedgerError> {
        let blocks = self.missing_blocks(steps);
        if self.durability == Durability::Lease {
            let synchronous = if blocks.is_empty() { Synchronous::Normal } else { Synchronous::Full };
            synchronous.apply(&self.connection)?;
        }
        let hand = Hand { owner: &self.owner, boot: &self.boot, now_ms: self.clock.now().as_millisecond() };
        let leased = self.durability == Durability::Lease;
        let mut transaction = self.connection.transaction()?;
        for block in &blocks {
            lease::grant(&transaction, hand, block)?;
        }
        let (mut answers, mut sums) = (Vec::with_capacity(steps.len()), Sums::default());
        for step in steps {
            let answer = take_step(&mut transaction, &mut sums, hand, step, leased)?;
            sums.end_step(answer.is_ok());
            answers.push(answer);
        }
        sums.write(&transaction)?;
        transaction.commit()?;
        let granted = iter::zip(steps, &answers).filter_map(|(step, answer)| match step {
            Step::Hold(hold) if answer.is_ok() => Some(&**hold),
            _ => None,
        });
        let granted: Vec<&Hold> = granted.collect();
        self.leases.moved(blocks, &granted);
        Ok(answers)
    }

    fn missing_blocks(&self, steps: &[&Step]) -> Vec<Block> {
        let holds = steps.iter().filter_map(|step| match step {
            Step::Hold(hold) => Some(&**hold),
            _ => None,
        });
        match self.durability {
            Durability::Lease => self.leases.missing(holds),
            Durability::Full | Durability::Normal => Vec::new(),
        }
    }

    fn hand(&self) -> Hand<'_> {
        Hand { owner: &self.owner, boot: &self.boot, now_ms: self.clock.now().as_millisecond() }
    }
}

/// Takes one step or leaves no trace of it. An error outside means that the whole transaction is gone.
fn take_step(
    transaction: &mut Transaction<'_>,
    sums: &mut Sums,
    hand: Hand<'_>,
    step: &Step,
    leased: bool,
) -> Result<Answer, LedgerError> {
    if step.writes_once(leased) {
        let answer = step.take(transaction, sums, hand, leased);
        // On a full disk the database has already undone everything.
        return if transaction.is_autocommit() { answer.map(Ok) } else { Ok(answer) };
    }
    let savepoint = transaction.savepoint()?;
    let answer = step.take(&savepoint, sums, hand, leased);
    match answer {
        Ok(()) => savepoint.commit()?,
        // Everything is undone, and there is nothing to go back to.
        Err(error) if savepoint.is_autocommit() => return Err(error),
        Err(_) => savepoint.finish()?,
    }
    Ok(answer)
}

impl Step {
    fn take(&self, connection: &Connection, sums: &mut Sums, hand: Hand<'_>, leased: bool) -> Answer {
        match self {
            Self::Hold(hold) => book::hold(connection, sums, hand, hold)
                .and_then(|()| if leased { lease::draw(connection, hand, hold) } else { Ok(()) }),
            Self::Advance(call, progress) => book::advance(connection, hand, call, *progress),
            Self::Settle(call, charge) => book::settle(connection, sums, hand, call, charge),
            Self::Fail(call, reason) => book::fail(connection, sums, hand, call, reason),
            Self::Resolve(call, resolution) => resolution::resolve(connection, sums, hand, call, resolution),
        }
    }

    /// Whether the step is one statement that writes, which leaves no trace by itself when it fails. Most are, and
    /// a savepoint costs as much as they do.
    fn writes_once(&self, leased: bool) -> bool {
        match self {
            Self::Hold(hold) => !leased && hold.limits.iter().all(|limit| limit.window != Window::Minute),
            Self::Advance(..) | Self::Settle(..) | Self::Fail(..) => true,
            Self::Resolve(..) => false,
        }
    }
}
