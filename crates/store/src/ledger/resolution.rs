//! Unknown calls that a person closed, and who that was.
//!
//! What somebody decides by hand is written beside the call and never changed: the ledger says of each sum whether a
//! vendor counted it or a person did.

use protocol::{CallId, SessionId};
use rusqlite::{Connection, Row, params};

use super::LedgerError;
use super::book;
use super::hold::{CallCharge, checked};
use super::report::id;
use super::sums::Sums;

/// A person's word on what an unknown call cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolution {
    /// What it cost; nothing where it is none.
    pub picos: Option<u64>,
    /// Who says so.
    pub by: String,
    /// Why: where the sum was found.
    pub reason: String,
}

/// A call that a person closed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ResolvedCall {
    /// The call.
    pub call: CallId,
    /// Its session.
    pub session: SessionId,
    /// The account that pays.
    pub account: String,
    /// The model asked for.
    pub model: String,
    /// When it was closed.
    pub resolved_ms: i64,
    /// What was held for it until then.
    pub held_picos: u64,
    /// What it is charged with.
    pub spent_picos: u64,
    /// Who closed it.
    pub by: String,
    /// Why.
    pub reason: String,
}

/// Closes `call`, which must be unknown.
pub(super) fn resolve(
    connection: &Connection,
    sums: &mut Sums,
    now_ms: i64,
    call: &CallId,
    resolution: &Resolution,
) -> Result<(), LedgerError> {
    let Resolution { picos, by, reason } = resolution;
    let spent = checked(picos.unwrap_or(0))?;
    let sql = "INSERT INTO resolution (call_id, resolved_ms, held_picos, spent_picos, resolved_by, reason)
        SELECT call_id, ?2, held_picos, ?3, ?4, ?5 FROM call WHERE call_id = ?1 AND state = 'unknown'";
    let entered = connection.prepare_cached(sql)?.execute(params![call.as_str(), now_ms, spent, by, reason])?;
    if entered == 0 {
        return Err(book::out_of_order(connection, call, "closed by hand")?);
    }
    match picos {
        Some(picos) => book::settle(
            connection,
            sums,
            now_ms,
            call,
            &CallCharge { usage: protocol::Usage::default(), picos: *picos },
        ),
        None => book::fail(connection, sums, now_ms, call, reason),
    }
}

/// Every call that a person closed, oldest first.
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
