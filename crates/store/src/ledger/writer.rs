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
use super::port::Answer;
use super::resolution::{self, Resolution};
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
        let mut answers = Vec::with_capacity(steps.len());
        for step in steps {
            answers.push(take_step(&mut transaction, hand, step, leased)?);
        }
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
    hand: Hand<'_>,
    step: &Step,
    leased: bool,
) -> Result<Answer, LedgerError> {
    let savepoint = transaction.savepoint()?;
    let answer = match step {
        Step::Hold(hold) => book::hold(&savepoint, hand, hold)
            .and_then(|()| if leased { lease::draw(&savepoint, hand, hold) } else { Ok(()) }),
        Step::Advance(call, progress) => book::advance(&savepoint, hand, call, *progress),
        Step::Settle(call, charge) => book::settle(&savepoint, hand, call, charge),
        Step::Fail(call, reason) => book::fail(&savepoint, hand, call, reason),
        Step::Resolve(call, resolution) => resolution::resolve(&savepoint, hand, call, resolution),
    };
    match answer {
        Ok(()) => savepoint.commit()?,
        // On a full disk the database has already undone everything, and there is nothing to go back to.
        Err(error) if savepoint.is_autocommit() => return Err(error),
        Err(_) => savepoint.finish()?,
    }
    Ok(answer)
}
