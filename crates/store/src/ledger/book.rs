//! The steps of a call, each inside a transaction that somebody else opened.

use protocol::{CallId, Usage};
use rusqlite::{Connection, OptionalExtension, params};

use super::hold::{CallCharge, CallHold, CallProgress, bounded, checked};
use super::sums::Sums;
use super::totals::{self, Difference, Parties};
use super::{CallSource, LedgerError};
use crate::OwnerId;

/// Who writes, and when.
#[derive(Debug, Clone, Copy)]
pub(super) struct Hand<'a> {
    pub(super) owner: &'a OwnerId,
    pub(super) boot: &'a str,
    pub(super) now_ms: i64,
}

/// Whether the call or its source was held before.
pub(super) fn is_known(connection: &Connection, hold: &CallHold) -> Result<bool, LedgerError> {
    let sql = "SELECT count(*) FROM call WHERE call_id = ?1 OR (source_system = ?2 AND source_reference = ?3)";
    let CallSource { system, run, attempt } = &hold.source;
    let values = params![hold.call.as_str(), system, CallSource::reference(run, *attempt, &hold.call)];
    Ok(connection.prepare_cached(sql)?.query_row(values, |row| row.get::<_, u64>(0))? > 0)
}

/// Notes how far `call` got.
pub(super) fn advance(
    connection: &Connection,
    now_ms: i64,
    call: &CallId,
    progress: CallProgress,
) -> Result<(), LedgerError> {
    let found = find(connection, call)?;
    let state = progress.state();
    if found.state == state {
        return Ok(());
    }
    if !progress.follows(&found.state) {
        return Err(found.out_of_order(call, state));
    }
    let reason = progress.reason();
    let sql = "UPDATE call SET state = ?1, changed_ms = ?2, reason = ?3 WHERE call_id = ?4";
    connection.prepare_cached(sql)?.execute(params![state, now_ms, reason, call.as_str()])?;
    Ok(())
}

/// Ends `call` with what it cost.
pub(super) fn settle(
    connection: &Connection,
    sums: &mut Sums,
    now_ms: i64,
    call: &CallId,
    charge: &CallCharge,
) -> Result<(), LedgerError> {
    let (found, picos, usage) = (find(connection, call)?, checked(charge.picos)?, bounded(charge.usage));
    if found.state == "settled" && found.spent == picos && found.usage == usage {
        return Ok(());
    }
    if found.is_over() {
        return Err(found.out_of_order(call, "settled"));
    }
    let sql = "UPDATE call SET state = 'settled', held_picos = 0, spent_picos = ?1, changed_ms = ?2,
            input_tokens = ?3, output_tokens = ?4, cache_read_tokens = ?5, cache_write_tokens = ?6,
            cache_write_1h_tokens = ?7
        WHERE call_id = ?8";
    connection.prepare_cached(sql)?.execute(params![
        picos,
        now_ms,
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
        call.as_str()
    ])?;
    let difference = Difference { held: -found.held, spent: picos, requests: 0 };
    totals::add(sums, found.parties(), found.day, difference);
    Ok(())
}

/// Ends `call` without a charge.
pub(super) fn fail(
    connection: &Connection,
    sums: &mut Sums,
    now_ms: i64,
    call: &CallId,
    reason: &str,
) -> Result<(), LedgerError> {
    let found = find(connection, call)?;
    match found.state.as_str() {
        "failed" => Ok(()),
        "settled" => Err(found.out_of_order(call, "failed")),
        _ => {
            let sql =
                "UPDATE call SET state = 'failed', held_picos = 0, reason = ?1, changed_ms = ?2 WHERE call_id = ?3";
            connection.prepare_cached(sql)?.execute(params![reason, now_ms, call.as_str()])?;
            let difference = Difference { held: -found.held, ..Difference::default() };
            totals::add(sums, found.parties(), found.day, difference);
            Ok(())
        }
    }
}

/// A call as the next step needs it.
struct Found {
    session: String,
    account: String,
    key: Option<String>,
    state: String,
    held: i64,
    spent: i64,
    usage: Usage,
    day: i64,
}

impl Found {
    fn parties(&self) -> Parties<'_> {
        Parties { session: &self.session, account: &self.account, key: self.key.as_deref() }
    }

    fn is_over(&self) -> bool {
        matches!(self.state.as_str(), "settled" | "failed")
    }

    fn out_of_order(self, call: &CallId, wanted: &'static str) -> LedgerError {
        LedgerError::OutOfOrder { call: call.clone(), state: self.state, wanted }
    }
}

/// Why `call` cannot be `wanted`: it is elsewhere, or nowhere.
pub(super) fn out_of_order(
    connection: &Connection,
    call: &CallId,
    wanted: &'static str,
) -> Result<LedgerError, LedgerError> {
    Ok(find(connection, call)?.out_of_order(call, wanted))
}

fn find(connection: &Connection, call: &CallId) -> Result<Found, LedgerError> {
    let sql = "SELECT session, account, key, state, held_picos, spent_picos, day, input_tokens, output_tokens,
            cache_read_tokens, cache_write_tokens, cache_write_1h_tokens
        FROM call WHERE call_id = ?1";
    let read = |row: &rusqlite::Row<'_>| {
        Ok(Found {
            session: row.get(0)?,
            account: row.get(1)?,
            key: row.get(2)?,
            state: row.get(3)?,
            held: row.get(4)?,
            spent: row.get(5)?,
            day: row.get(6)?,
            usage: read_usage(row, 7)?,
        })
    };
    let found = connection.prepare_cached(sql)?.query_row([call.as_str()], read).optional()?;
    found.ok_or_else(|| LedgerError::NotFound(call.clone()))
}

/// Five columns of tokens, from `first` on.
pub(super) fn read_usage(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<Usage> {
    Ok(Usage {
        input_tokens: row.get(first)?,
        output_tokens: row.get(first + 1)?,
        cache_read_tokens: row.get(first + 2)?,
        cache_write_tokens: row.get(first + 3)?,
        cache_write_1h_tokens: row.get(first + 4)?,
    })
}
