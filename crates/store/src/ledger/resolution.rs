//! Unknown and estimated calls that a person resolved by stating their cost.
//!
//! A resolution is stored next to the call and never changed, so the ledger shows for each amount whether a vendor or a
//! person stated it.

use protocol::{CallId, SessionId};
use rusqlite::{Connection, Row, params};

use super::LedgerError;
use super::call::{CallCharge, checked_picos};
use super::report::id;
use super::tables::LedgerTables;

/// A person's statement of the cost of an unknown or estimated call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// The cost in pico-dollars; `None` if the call cost nothing.
    pub picos: Option<u64>,
    /// The person.
    pub by: String,
    /// The reason, such as the invoice with the amount.
    pub reason: String,
}

/// A call that a person resolved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedCall {
    /// The call.
    pub call: CallId,
    /// The session of the call.
    pub session: SessionId,
    /// The account that pays.
    pub account: String,
    /// The requested model.
    pub model: String,
    /// Time of the resolution, in milliseconds since 1970.
    pub resolved_ms: i64,
    /// Amount held or estimated until then, in pico-dollars.
    pub held_picos: u64,
    /// Amount charged, in pico-dollars.
    pub spent_picos: u64,
    /// The person.
    pub by: String,
    /// The reason.
    pub reason: String,
}

/// Ends `call` as stated in `resolution`. Fails if the call is neither unknown nor estimated.
pub(super) fn resolve(
    tables: &mut LedgerTables<'_>,
    now_ms: i64,
    call: &CallId,
    resolution: &Resolution,
) -> Result<(), LedgerError> {
    let Resolution { picos, by, reason } = resolution;
    let spent = checked_picos(picos.unwrap_or(0))?;
    let sql = "INSERT INTO resolution (call_id, resolved_ms, held_picos, spent_picos, resolved_by, reason)
        SELECT call_id, ?2, held_picos + spent_picos, ?3, ?4, ?5 FROM call
        WHERE call_id = ?1 AND (state = 'unknown' OR (state = 'settled' AND estimated = 1))";
    let inserted = tables.connection.prepare_cached(sql)?.execute(params![call.as_str(), now_ms, spent, by, reason])?;
    if inserted == 0 {
        return Err(tables.out_of_order(call, "resolved")?);
    }
    match picos {
        Some(picos) => {
            let charge = CallCharge { usage: protocol::Usage::default(), picos: *picos, estimated: false };
            tables.settle(now_ms, call, &charge)
        }
        None => tables.fail(now_ms, call, reason),
    }
}

/// Returns every call that a person resolved, oldest first.
pub(super) fn resolved(connection: &Connection) -> Result<Vec<ResolvedCall>, LedgerError> {
    let sql = "SELECT call_id, session, account, model, resolved_ms, resolution.held_picos, resolution.spent_picos,
            resolved_by, resolution.reason
        FROM resolution JOIN call USING (call_id) ORDER BY resolved_ms, call_id";
    let read = |row: &Row<'_>| {
        Ok(ResolvedCall {
            call: id(row, 0)?,
            session: id(row, 1)?,
            account: row.get(2)?,
            model: row.get(3)?,
            resolved_ms: row.get(4)?,
            held_picos: row.get(5)?,
            spent_picos: row.get(6)?,
            by: row.get(7)?,
            reason: row.get(8)?,
        })
    };
    Ok(connection.prepare_cached(sql)?.query_map([], read)?.collect::<Result<_, _>>()?)
}
