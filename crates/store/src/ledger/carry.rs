//! Carries the steps of the daybook into the tables.
//!
//! Any process may, and each line is carried once: how far it got is written in the same transaction. A call that was
//! held and settled since the last time is entered once, as it ended.

use std::collections::HashMap;
use std::path::Path;

use protocol::{CallId, Usage};
use rusqlite::{Connection, ErrorCode, OptionalExtension, Transaction, params};

use super::backlog::Backlog;
use super::daybook::Pages;
use super::entry::{Entry, HoldEntry, Line, Share};
use super::hold::Charge;
use super::sums::{Place, Sums};
use super::totals::{self, Difference};
use super::{LedgerError, Window, book, lease};

/// One transaction takes about so much of the daybook.
const BYTES_AT_ONCE: u64 = 4 << 20;

/// How far the daybook is in the tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Carried {
    pub(super) generation: u64,
    pub(super) bytes: u64,
}

impl Carried {
    pub(super) fn read(connection: &Connection) -> Result<Self, LedgerError> {
        let read = |row: &rusqlite::Row<'_>| Ok(Self { generation: row.get(0)?, bytes: row.get(1)? });
        let sql = "SELECT generation, bytes FROM carried";
        Ok(connection.prepare_cached(sql)?.query_row([], read).optional()?.unwrap_or_default())
    }

    pub(super) fn write(self, connection: &Connection) -> Result<(), LedgerError> {
        let sql = "INSERT OR REPLACE INTO carried (id, generation, bytes) VALUES (1, ?1, ?2)";
        connection.prepare_cached(sql)?.execute(params![self.generation, self.bytes])?;
        Ok(())
    }
}

/// Carries `backlog`; false, and nothing done: it is not what follows in the tables.
pub(super) fn carry_backlog(connection: &mut Connection, backlog: Backlog) -> Result<bool, LedgerError> {
    let Backlog { generation, start, end, lines } = backlog;
    let transaction = connection.transaction()?;
    if Carried::read(&transaction)? != (Carried { generation, bytes: start }) {
        return Ok(false);
    }
    let mut batch = Batch::default();
    for line in lines {
        batch.take(&transaction, line)?;
    }
    batch.write(&transaction)?;
    Carried { generation, bytes: end }.write(&transaction)?;
    transaction.commit()?;
    Ok(true)
}

/// Carries everything that stands in the daybook at `path`, but not what is written meanwhile.
pub(super) fn carry(connection: &mut Connection, path: &Path) -> Result<(), LedgerError> {
    loop {
        let transaction = connection.transaction()?;
        let more = carry_some(&transaction, path)?;
        transaction.commit()?;
        if !more {
            return Ok(());
        }
    }
}

/// Carries what one transaction takes; true: there was more.
fn carry_some(transaction: &Transaction<'_>, path: &Path) -> Result<bool, LedgerError> {
    let Some(pages) = Pages::open(path).map_err(LedgerError::files)? else { return Ok(false) };
    let carried = Carried::read(transaction)?;
    let start = match pages.generation.cmp(&carried.generation) {
        // All of it is carried, and it is about to be replaced.
        std::cmp::Ordering::Less => return Ok(false),
        std::cmp::Ordering::Equal => carried.bytes.max(pages.first),
        std::cmp::Ordering::Greater => pages.first,
    };
    let lines = pages.lines(start, BYTES_AT_ONCE).map_err(LedgerError::files)?;
    if lines.is_empty() {
        return Ok(false);
    }
    let mut batch = Batch::default();
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(read) => batch.take(transaction, read)?,
            Err(error) => misfit(transaction, &String::from_utf8_lossy(line), &error.to_string())?,
        }
    }
    batch.write(transaction)?;
    let end = start + lines.len() as u64;
    Carried { generation: pages.generation, bytes: end }.write(transaction)?;
    Ok(lines.len() as u64 > BYTES_AT_ONCE / 2)
}

/// What one transaction enters.
#[derive(Default)]
struct Batch {
    /// Calls that were held in it, in the order of their holds.
    new: Vec<NewCall>,
    places: HashMap<CallId, usize>,
    /// What calls of the same parties add on the same day.
    shares: Vec<(Share, Difference)>,
    sums: Sums,
}

/// Calls that come together are mostly of a few parties: so many of the last ones are looked at.
const NEAR: usize = 16;

/// A call that is not in the tables yet, as far as it got.
struct NewCall {
    hold: Box<HoldEntry>,
    created_ms: i64,
    changed_ms: i64,
    state: &'static str,
    reason: Option<String>,
    held: i64,
    spent: i64,
    usage: Usage,
}

impl Batch {
    fn take(&mut self, connection: &Connection, line: Line) -> Result<(), LedgerError> {
        let at = line.at;
        let late = match &line.step {
            Entry::Hold(_) | Entry::Forget => false,
            Entry::Advance { call, .. } | Entry::Settle { call, .. } | Entry::Fail { call, .. } => {
                !self.places.contains_key(call)
            }
        };
        if late {
            return self.take_late(connection, &line);
        }
        self.add_up(&line);
        match line.step {
            Entry::Hold(hold) => self.begin(hold, at),
            Entry::Advance { call, progress } => self.change(&call, at, |new| {
                new.state = progress.state();
                new.reason = progress.reason().map(str::to_owned);
            }),
            Entry::Settle { call, picos, usage, .. } => self.change(&call, at, |new| {
                (new.state, new.held, new.spent, new.usage) = ("settled", 0, picos, usage);
            }),
            Entry::Fail { call, reason, .. } => self.change(&call, at, |new| {
                (new.state, new.held, new.reason) = ("failed", 0, Some(reason));
            }),
            Entry::Forget => {}
        }
        Ok(())
    }

    fn add_up(&mut self, line: &Line) {
        let Some((share, difference)) = line.step.change() else { return };
        match self.shares.iter_mut().rev().take(NEAR).find(|(known, _)| known.counts_with(share)) {
            Some((_, sum)) => *sum = sum.plus(difference),
            None => self.shares.push((share.clone(), difference)),
        }
        line.minutes(|parties, scope, number, difference| {
            self.sums.add(parties.place(scope, Window::Minute, number), difference);
        });
        self.sums.end_step(true);
    }

    fn begin(&mut self, hold: Box<HoldEntry>, at: i64) {
        let state = if hold.sent { "sent" } else { "intent" };
        self.places.insert(hold.call.clone(), self.new.len());
        self.new.push(NewCall {
            created_ms: at,
            changed_ms: at,
            state,
            reason: None,
            held: hold.share.picos,
            spent: 0,
            usage: Usage::default(),
            hold,
        });
    }

    fn change(&mut self, call: &CallId, at: i64, change: impl FnOnce(&mut NewCall)) {
        if let Some(new) = self.places.get(call).and_then(|place| self.new.get_mut(*place)) {
            new.changed_ms = at;
            change(new);
        }
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

    fn write(self, connection: &Connection) -> Result<(), LedgerError> {
        let Self { new, shares, mut sums, .. } = self;
        for (share, difference) in shares {
            totals::add(&mut sums, share.parties(), share.day, difference);
        }
        for call in &new {
            match call.enter(connection) {
                Err(rusqlite::Error::SqliteFailure(failure, _)) if failure.code == ErrorCode::ConstraintViolation => {
                    // Its hold was said to be fresh, and was not: what is there stays, and counts alone.
                    let difference = Difference { held: -call.held, spent: -call.spent, requests: -1 };
                    totals::add(&mut sums, call.hold.share.parties(), call.hold.share.day, difference);
                    misfit(connection, call.hold.call.as_str(), "it was held before")?;
                }
                entered => entered?,
            }
            if call.hold.leased {
                lease::draw(connection, &call.hold.owner, call.hold.share.session.as_str(), call.hold.share.picos)?;
            }
        }
        sums.end_step(true);
        totals::forget_minutes(connection, new.iter().flat_map(NewCall::minutes))?;
        sums.write(connection)
    }
}

impl NewCall {
    /// The minutes that it is counted in.
    fn minutes(&self) -> impl Iterator<Item = Place> {
        let number = Window::Minute.number(self.created_ms);
        self.hold.minutes.iter().map(move |scope| self.hold.share.parties().place(*scope, Window::Minute, number))
    }

    fn enter(&self, connection: &Connection) -> rusqlite::Result<()> {
        let Self { hold, usage, .. } = self;
        let sql =
            "INSERT INTO call (call_id, source_system, source_reference, session, account, user, key, agent, model,
                price_hash, state, reason, held_picos, spent_picos, input_tokens, output_tokens, cache_read_tokens,
                cache_write_tokens, cache_write_1h_tokens, day, created_ms, changed_ms, owner, boot)
            VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)";
        let values = params![
            hold.call.as_str(),
            hold.system,
            hold.reference,
            hold.share.session.as_str(),
            hold.share.account,
            hold.user,
            hold.share.key,
            hold.agent,
            hold.model,
            hold.price_hash,
            self.state,
            self.reason,
            self.held,
            self.spent,
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.cache_write_1h_tokens,
            hold.share.day,
            self.created_ms,
            self.changed_ms,
            hold.owner.as_str(),
            hold.boot,
        ];
        connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }
}

/// Keeps a line that does not fit what is in the tables: nothing that was written is thrown away.
fn misfit(connection: &Connection, line: &str, reason: &str) -> Result<(), LedgerError> {
    connection.prepare_cached("INSERT INTO misfit (line, reason) VALUES (?1, ?2)")?.execute([line, reason])?;
    Ok(())
}
