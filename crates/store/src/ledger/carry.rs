//! Carries the steps of the daybook into the tables.
//!
//! Any process may, and each line is carried once: how far it got is written in the same transaction.

use std::path::Path;

use rusqlite::{Connection, OptionalExtension, Transaction, params};

use super::LedgerError;
use super::backlog::Backlog;
use super::batch::Batch;
use super::daybook::Pages;

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
    let (generation, end) = (backlog.generation, backlog.end);
    let transaction = connection.transaction()?;
    let carried = Carried::read(&transaction)?;
    // Whoever asks the tables may have carried some of it before.
    let lines = (carried.generation == generation).then(|| backlog.after(carried.bytes)).flatten();
    let Some(lines) = lines else { return Ok(false) };
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

/// Keeps a line that does not fit what is in the tables: nothing that was written is thrown away.
pub(super) fn misfit(connection: &Connection, line: &str, reason: &str) -> Result<(), LedgerError> {
    connection.prepare_cached("INSERT INTO misfit (line, reason) VALUES (?1, ?2)")?.execute([line, reason])?;
    Ok(())
}
