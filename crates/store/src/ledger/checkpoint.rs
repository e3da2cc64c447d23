//! Checkpoints: copying the write-ahead log into the tables.
//!
//! Any process may run a checkpoint. The position in the log is written in the same transaction as the copied lines, so
//! each line is applied exactly once.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::path::Path;

use foldhash::fast::RandomState;
use protocol::{CallId, SessionId};
use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::call::CallCharge;
use super::log_entry::{LogEntry, LogLine};
use super::new_call::NewCall;
use super::tables::LedgerTables;
use super::totals::{TotalAmounts, TotalChanges};
use super::write_ahead_log::LogReader;
use super::{LedgerError, LimitWindow, lease};
use crate::OwnerId;

/// The most bytes of the log that one transaction copies.
const MAX_TRANSACTION_BYTES: u64 = 4 << 20;

/// The end of the part of the log that is in the tables.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct LogPosition {
    pub(super) generation: u64,
    pub(super) bytes: u64,
}

impl LogPosition {
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

/// Copies every line of the log at `path` into the tables, except lines that are written during the checkpoint.
pub(super) fn run(connection: &mut Connection, path: &Path) -> Result<(), LedgerError> {
    loop {
        let transaction = connection.transaction()?;
        let has_more = copy_lines(&transaction, path)?;
        transaction.commit()?;
        if !has_more {
            return Ok(());
        }
    }
}

/// Copies the lines of one transaction; returns whether there may be more.
fn copy_lines(transaction: &Transaction<'_>, path: &Path) -> Result<bool, LedgerError> {
    let Some(log) = LogReader::open(path).map_err(LedgerError::files)? else { return Ok(false) };
    let position = LogPosition::read(transaction)?;
    let start = match log.generation.cmp(&position.generation) {
        // This file is copied completely and about to be replaced.
        Ordering::Less => return Ok(false),
        Ordering::Equal => position.bytes.max(log.first),
        Ordering::Greater => log.first,
    };
    let lines = log.lines(start, MAX_TRANSACTION_BYTES).map_err(LedgerError::files)?;
    if lines.is_empty() {
        return Ok(false);
    }
    let mut batch = LineBatch::new(transaction);
    for line in lines.split_inclusive(|byte| *byte == b'\n') {
        match serde_json::from_slice(line) {
            Ok(line) => batch.apply(line)?,
            Err(error) => keep_rejected(transaction, &String::from_utf8_lossy(line), &error.to_string())?,
        }
    }
    batch.finish()?;
    let end = start + lines.len() as u64;
    LogPosition { generation: log.generation, bytes: end }.write(transaction)?;
    Ok(lines.len() as u64 > MAX_TRANSACTION_BYTES / 2)
}

/// The lines of one transaction.
struct LineBatch<'a> {
    tables: LedgerTables<'a>,
    /// Calls held in this batch, in the order of their holds.
    new_calls: Vec<NewCall>,
    indexes: HashMap<CallId, usize, RandomState>,
}

impl<'a> LineBatch<'a> {
    fn new(connection: &'a Connection) -> Self {
        Self { tables: LedgerTables::new(connection), new_calls: Vec::new(), indexes: HashMap::default() }
    }

    fn apply(&mut self, line: LogLine) -> Result<(), LedgerError> {
        let new_call = match line.step {
            LogEntry::Hold(hold) => {
                self.indexes.insert(hold.call.clone(), self.new_calls.len());
                self.new_calls.push(NewCall::new(hold, line.at));
                return Ok(());
            }
            LogEntry::Forget => return Ok(()),
            LogEntry::Advance { ref call, .. }
            | LogEntry::Adjust { ref call, .. }
            | LogEntry::Settle { ref call, .. }
            | LogEntry::Fail { ref call, .. } => {
                self.indexes.get(call).and_then(|index| self.new_calls.get_mut(*index))
            }
        };
        match new_call {
            Some(new_call) => new_call.apply(line.step, line.at),
            None => self.apply_to_tables(&line)?,
        }
        Ok(())
    }

    /// Applies a line of a call that is in the tables. A line that does not fit its call is kept as rejected.
    fn apply_to_tables(&mut self, line: &LogLine) -> Result<(), LedgerError> {
        let applied = match &line.step {
            LogEntry::Advance { call, progress } => self.tables.advance(line.at, call, *progress),
            LogEntry::Adjust { call, picos, tokens, .. } => self.tables.adjust(line.at, call, (*picos, *tokens)),
            LogEntry::Settle { call, picos, usage, estimated, .. } => {
                let charge = CallCharge { usage: *usage, picos: picos.unsigned_abs(), estimated: *estimated };
                self.tables.settle(line.at, call, &charge)
            }
            LogEntry::Fail { call, reason, .. } => self.tables.fail(line.at, call, reason),
            LogEntry::Hold(_) | LogEntry::Forget => Ok(()),
        };
        match applied {
            Err(error @ (LedgerError::NotFound(_) | LedgerError::OutOfOrder { .. })) => {
                let text = serde_json::to_string(line).unwrap_or_default();
                keep_rejected(self.tables.connection, &text, &error.to_string())
            }
            other => other,
        }
    }

    /// Inserts the new calls and writes totals and leases.
    fn finish(mut self) -> Result<(), LedgerError> {
        for call in &self.new_calls {
            if call.insert(self.tables.connection)? {
                add_totals(&mut self.tables.totals, call);
            } else {
                // The hold was declared fresh, but the call exists: the row in the tables stays and counts alone.
                keep_rejected(self.tables.connection, call.hold.call.as_str(), "the call was held before")?;
            }
        }
        draw_leases(self.tables.connection, &self.new_calls)?;
        self.tables.finish()
    }
}

fn add_totals(totals: &mut TotalChanges, call: &NewCall) {
    let parties = call.hold.share.parties();
    totals.add_call(parties, call.hold.share.day, call.amounts());
    let number = LimitWindow::Minute.number(call.created_ms);
    for scope in &call.hold.minutes {
        let one_request = TotalAmounts { requests: 1, ..TotalAmounts::default() };
        totals.add(parties.total_key(*scope, LimitWindow::Minute, number), one_request);
    }
}

/// Records the amounts that `calls` use of the leases of their sessions.
fn draw_leases(connection: &Connection, calls: &[NewCall]) -> Result<(), LedgerError> {
    let mut drawn: HashMap<(&OwnerId, &SessionId), i64> = HashMap::new();
    for hold in calls.iter().map(|call| &call.hold).filter(|hold| hold.leased) {
        *drawn.entry((&hold.owner, &hold.share.session)).or_default() += hold.share.picos;
    }
    drawn.into_iter().try_for_each(|((owner, session), picos)| lease::draw(connection, owner, session.as_str(), picos))
}

/// Keeps a line that contradicts the tables, so that nothing that was written is lost.
fn keep_rejected(connection: &Connection, line: &str, reason: &str) -> Result<(), LedgerError> {
    connection.prepare_cached("INSERT INTO misfit (line, reason) VALUES (?1, ?2)")?.execute([line, reason])?;
    Ok(())
}
