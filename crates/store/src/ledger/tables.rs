//! Changes of one call in the tables. The caller opens and commits the transaction.

use protocol::{CallId, SessionId, Usage};
use rusqlite::{Connection, OptionalExtension, params};

use super::call::{CallCharge, CallHold, CallProgress, all_tokens, bounded_tokens, bounded_usage, checked_picos};
use super::log_entry::CallShare;
use super::totals::{CallParties, TotalAmounts, TotalChanges};
use super::{CallSource, LedgerError};
use crate::OwnerId;

/// The writing process, and the time of the change.
#[derive(Debug, Clone, Copy)]
pub(super) struct WriteContext<'a> {
    pub(super) owner: &'a OwnerId,
    pub(super) boot: &'a str,
    pub(super) now_ms: i64,
}

/// The tables within one transaction. Changes of totals are collected and written by [`Self::finish`].
pub(super) struct LedgerTables<'a> {
    pub(super) connection: &'a Connection,
    pub(super) totals: TotalChanges,
}

impl<'a> LedgerTables<'a> {
    pub(super) fn new(connection: &'a Connection) -> Self {
        Self { connection, totals: TotalChanges::default() }
    }

    /// Records the progress of `call`. Fails if the progress does not follow from the state of the call.
    pub(super) fn advance(&mut self, now_ms: i64, call: &CallId, progress: CallProgress) -> Result<(), LedgerError> {
        let stored = self.find(call)?;
        let state = progress.state();
        if stored.state == state {
            return Ok(());
        }
        if !progress.follows(&stored.state) {
            return Err(stored.out_of_order(call, state));
        }
        let sql = "UPDATE call SET state = ?1, changed_ms = ?2, reason = ?3 WHERE call_id = ?4";
        let values = params![state, now_ms, progress.reason(), call.as_str()];
        self.connection.prepare_cached(sql)?.execute(values)?;
        Ok(())
    }

    /// Replaces the held amount of `call`. Fails if the call has ended.
    pub(super) fn adjust(
        &mut self,
        now_ms: i64,
        call: &CallId,
        (picos, tokens): (i64, i64),
    ) -> Result<(), LedgerError> {
        let stored = self.find(call)?;
        if !stored.is_open() {
            return Err(stored.out_of_order(call, "held"));
        }
        let sql = "UPDATE call SET held_picos = ?1, changed_ms = ?2, held_tokens = ?4 WHERE call_id = ?3";
        self.connection.prepare_cached(sql)?.execute(params![picos, now_ms, call.as_str(), tokens])?;
        let (held, held_tokens) = (picos - stored.held, tokens - stored.held_tokens);
        let amounts = TotalAmounts { held, held_tokens, ..TotalAmounts::default() };
        self.totals.add_call(stored.parties(), stored.day, amounts);
        Ok(())
    }

    /// Returns the parties and the held amount of `call`. Fails if the call has ended.
    pub(super) fn share(&self, call: &CallId) -> Result<CallShare, LedgerError> {
        let stored = self.find(call)?;
        if !stored.is_open() {
            return Err(stored.out_of_order(call, "held"));
        }
        let session = SessionId::new(&*stored.session).map_err(|_| LedgerError::NotFound(call.clone()))?;
        let (account, key) = (stored.account.into(), stored.key.map(Into::into));
        Ok(CallShare { session, account, key, day: stored.day, picos: stored.held, tokens: stored.held_tokens })
    }

    /// Ends `call` with its cost. The same charge a second time changes nothing. A charge replaces an estimate.
    pub(super) fn settle(&mut self, now_ms: i64, call: &CallId, charge: &CallCharge) -> Result<(), LedgerError> {
        let (stored, picos, usage) = (self.find(call)?, checked_picos(charge.picos)?, bounded_usage(charge.usage));
        let corrects = stored.is_estimate() && !charge.estimated;
        if stored.state == "settled" && stored.spent == picos && stored.usage == usage && !corrects {
            return Ok(());
        }
        if matches!(stored.state.as_str(), "settled" | "failed") && !corrects {
            return Err(stored.out_of_order(call, "settled"));
        }
        let sql = "UPDATE call SET state = 'settled', held_picos = 0, spent_picos = ?1, changed_ms = ?2,
                input_tokens = ?3, output_tokens = ?4, cache_read_tokens = ?5, cache_write_tokens = ?6,
                cache_write_1h_tokens = ?7, estimated = ?8, held_tokens = 0, spent_tokens = ?10
            WHERE call_id = ?9";
        let counts_tokens = stored.held_tokens > 0 || stored.spent_tokens > 0;
        let spent_tokens = if counts_tokens { bounded_tokens(all_tokens(usage)) } else { 0 };
        self.connection.prepare_cached(sql)?.execute(params![
            picos,
            now_ms,
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.cache_write_1h_tokens,
            charge.estimated,
            call.as_str(),
            spent_tokens
        ])?;
        let (held, held_tokens) = (-stored.held, -stored.held_tokens);
        let (spent, newly_spent) = (picos - stored.spent, spent_tokens - stored.spent_tokens);
        let amounts = TotalAmounts { held, held_tokens, spent, spent_tokens: newly_spent, requests: 0 };
        self.totals.add_call(stored.parties(), stored.day, amounts);
        Ok(())
    }

    /// Ends `call` without a charge. A second failure changes nothing. The charge of an estimate is taken back.
    pub(super) fn fail(&mut self, now_ms: i64, call: &CallId, reason: &str) -> Result<(), LedgerError> {
        let stored = self.find(call)?;
        match stored.state.as_str() {
            "failed" => Ok(()),
            "settled" if !stored.is_estimate() => Err(stored.out_of_order(call, "failed")),
            _ => {
                let sql = "UPDATE call SET state = 'failed', held_picos = 0, spent_picos = 0, input_tokens = 0,
                        output_tokens = 0, cache_read_tokens = 0, cache_write_tokens = 0, cache_write_1h_tokens = 0,
                        estimated = 0, held_tokens = 0, spent_tokens = 0, reason = ?1, changed_ms = ?2
                    WHERE call_id = ?3";
                self.connection.prepare_cached(sql)?.execute(params![reason, now_ms, call.as_str()])?;
                let (held, held_tokens) = (-stored.held, -stored.held_tokens);
                let (spent, spent_tokens) = (-stored.spent, -stored.spent_tokens);
                let amounts = TotalAmounts { held, held_tokens, spent, spent_tokens, requests: 0 };
                self.totals.add_call(stored.parties(), stored.day, amounts);
                Ok(())
            }
        }
    }

    /// Returns whether the call or its source was held before.
    pub(super) fn is_known(&self, hold: &CallHold) -> Result<bool, LedgerError> {
        let sql = "SELECT count(*) FROM call WHERE call_id = ?1 OR (source_system = ?2 AND source_reference = ?3)";
        let CallSource { system, run, attempt } = &hold.source;
        let values = params![hold.call.as_str(), system, CallSource::reference(run, *attempt, &hold.call)];
        Ok(self.connection.prepare_cached(sql)?.query_row(values, |row| row.get::<_, u64>(0))? > 0)
    }

    /// Returns the error for `call`, whose state does not allow `wanted`; fails if the call does not exist.
    pub(super) fn out_of_order(&self, call: &CallId, wanted: &'static str) -> Result<LedgerError, LedgerError> {
        Ok(self.find(call)?.out_of_order(call, wanted))
    }

    /// Writes the collected changes of totals.
    pub(super) fn finish(self) -> Result<(), LedgerError> {
        self.totals.write(self.connection)
    }

    fn find(&self, call: &CallId) -> Result<StoredCall, LedgerError> {
        let sql = "SELECT session, account, key, state, held_picos, spent_picos, day, input_tokens, output_tokens,
                cache_read_tokens, cache_write_tokens, cache_write_1h_tokens, estimated, held_tokens, spent_tokens
            FROM call WHERE call_id = ?1";
        let read = |row: &rusqlite::Row<'_>| {
            Ok(StoredCall {
                session: row.get(0)?,
                account: row.get(1)?,
                key: row.get(2)?,
                state: row.get(3)?,
                held: row.get(4)?,
                spent: row.get(5)?,
                day: row.get(6)?,
                usage: read_usage(row, 7)?,
                estimated: row.get(12)?,
                held_tokens: row.get(13)?,
                spent_tokens: row.get(14)?,
            })
        };
        let stored = self.connection.prepare_cached(sql)?.query_row([call.as_str()], read).optional()?;
        stored.ok_or_else(|| LedgerError::NotFound(call.clone()))
    }
}

/// The columns of a call that a change needs.
struct StoredCall {
    session: String,
    account: String,
    key: Option<String>,
    state: String,
    held: i64,
    spent: i64,
    usage: Usage,
    estimated: bool,
    day: i64,
    held_tokens: i64,
    spent_tokens: i64,
}

impl StoredCall {
    fn is_open(&self) -> bool {
        matches!(self.state.as_str(), "intent" | "sent" | "streaming")
    }

    /// Returns whether the call is charged for the most that it can have cost.
    fn is_estimate(&self) -> bool {
        self.state == "settled" && self.estimated
    }

    fn parties(&self) -> CallParties<'_> {
        CallParties { session: &self.session, account: &self.account, key: self.key.as_deref() }
    }

    fn out_of_order(self, call: &CallId, wanted: &'static str) -> LedgerError {
        LedgerError::OutOfOrder { call: call.clone(), state: self.state, wanted }
    }
}

/// Reads five columns of token counts, starting at column `first`.
pub(super) fn read_usage(row: &rusqlite::Row<'_>, first: usize) -> rusqlite::Result<Usage> {
    Ok(Usage {
        input_tokens: row.get(first)?,
        output_tokens: row.get(first + 1)?,
        cache_read_tokens: row.get(first + 2)?,
        cache_write_tokens: row.get(first + 3)?,
        cache_write_1h_tokens: row.get(first + 4)?,
    })
}
