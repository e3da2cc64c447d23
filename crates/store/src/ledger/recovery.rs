//! Recovery of calls that a dead process left open.
//!
//! A call that was never sent cost nothing, so its hold is released. A call that was sent may have a cost, so it
//! becomes unknown and its hold stays. A power cut may lose the record that a call was sent, so after one every open
//! call becomes unknown, and so does the unused part of a lease.

use std::path::Path;

use base::Digest;
use rusqlite::{Connection, params};

use super::LedgerError;
use super::tables::{LedgerTables, WriteContext};
use super::totals::{CallParties, TotalAmounts};
use crate::OwnerId;
use crate::owner::is_alive;

/// The condition for open calls. It must match the index `call_open` literally, or SQLite does not use the index.
const IS_OPEN: &str = "(state = 'intent' OR state = 'sent' OR state = 'streaming')";

/// The reason of a call that a dead host may have sent.
pub(super) const HOST_DIED: &str = "the host died before settling the call";

/// The calls that recovery changed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct RecoveredCalls {
    pub(super) released: u64,
    pub(super) unknown: u64,
}

/// Recovers the calls and leases of dead owners in one transaction.
pub(super) fn recover(
    connection: &mut Connection,
    owners: &Path,
    context: WriteContext<'_>,
) -> Result<RecoveredCalls, LedgerError> {
    let transaction = connection.transaction()?;
    let (mut recovered, mut tables) = (RecoveredCalls::default(), LedgerTables::new(&transaction));
    for owner in dead_owners(&transaction, owners)? {
        recovered.released += release_unsent(&mut tables, context, &owner)?;
        recovered.unknown += mark_unknown(&tables, context, &owner)?;
        recovered.unknown += hold_leases(&mut tables, context, &owner)?;
    }
    tables.finish()?;
    transaction.commit()?;
    Ok(recovered)
}

fn dead_owners(connection: &Connection, owners: &Path) -> Result<Vec<OwnerId>, LedgerError> {
    let sql = format!("SELECT owner FROM call WHERE {IS_OPEN} UNION SELECT owner FROM lease");
    let mut statement = connection.prepare(&sql)?;
    let all = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let mut dead = Vec::new();
    for owner in all.into_iter().map(OwnerId::from_database) {
        if !is_alive(owners, &owner).map_err(|error| LedgerError::Recovery(error.into()))? {
            dead.push(owner);
        }
    }
    Ok(dead)
}

/// Releases the holds of calls that `owner` had not sent; returns their number. They do not count as requests.
fn release_unsent(
    tables: &mut LedgerTables<'_>,
    context: WriteContext<'_>,
    owner: &OwnerId,
) -> Result<u64, LedgerError> {
    let sql =
        "UPDATE call SET state = 'failed', reason = 'the host died before sending the call', counted = 0, changed_ms = ?1
        WHERE owner = ?2 AND boot = ?3 AND state = 'intent'
        RETURNING session, account, key, held_picos, day, held_tokens";
    let mut statement = tables.connection.prepare(sql)?;
    let mut rows = statement.query(params![context.now_ms, owner.as_str(), context.boot])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let (session, account, key): (String, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let parties = CallParties { session: &session, account: &account, key: key.as_deref() };
        let (held, held_tokens) = (-row.get::<_, i64>(3)?, -row.get::<_, i64>(5)?);
        let amounts = TotalAmounts { held, held_tokens, requests: -1, ..TotalAmounts::default() };
        tables.totals.add_call(parties, row.get(4)?, amounts);
        count += 1;
    }
    drop(rows);
    // RETURNING returns the changed row, so the hold is set to zero by a second statement.
    let sql = "UPDATE call SET held_picos = 0, held_tokens = 0 WHERE owner = ?1 AND state = 'failed'";
    tables.connection.execute(sql, [owner.as_str()])?;
    Ok(count)
}

/// Marks the other open calls of `owner` as unknown; returns their number.
fn mark_unknown(tables: &LedgerTables<'_>, context: WriteContext<'_>, owner: &OwnerId) -> Result<u64, LedgerError> {
    let sql = format!(
        "UPDATE call SET state = 'unknown', reason = ?3, changed_ms = ?1
        WHERE owner = ?2 AND {IS_OPEN}"
    );
    Ok(tables.connection.execute(&sql, params![context.now_ms, owner.as_str(), HOST_DIED])? as u64)
}

/// Deletes the leases of `owner`. After a power cut, the unused part of each lease is held as an unknown call. Returns
/// the number of those calls.
fn hold_leases(tables: &mut LedgerTables<'_>, context: WriteContext<'_>, owner: &OwnerId) -> Result<u64, LedgerError> {
    let sql = "DELETE FROM lease WHERE owner = ?1 RETURNING session, account, granted_picos - used_picos, boot";
    let mut statement = tables.connection.prepare(sql)?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let leases = statement.query_map([owner.as_str()], read)?;
    let leases = leases.collect::<Result<Vec<(String, String, i64, String)>, _>>()?;
    let mut count = 0;
    for (session, account, picos, boot) in leases {
        if boot != context.boot && picos > 0 {
            hold_unused_lease(tables, context, owner, (&session, &account, picos))?;
            count += 1;
        }
    }
    Ok(count)
}

fn hold_unused_lease(
    tables: &mut LedgerTables<'_>,
    context: WriteContext<'_>,
    owner: &OwnerId,
    (session, account, picos): (&str, &str, i64),
) -> Result<(), LedgerError> {
    let reference = format!("{session}/{owner}");
    let day = super::LimitWindow::Day.number(context.now_ms);
    let sql = "INSERT INTO call (call_id, source_system, source_reference, session, account, model, price_hash, state,
            reason, counted, held_picos, day, created_ms, changed_ms, owner, boot)
        VALUES (?1, 'lease', ?2, ?3, ?4, 'unrecorded', '', 'unknown',
            'a power cut may have lost calls of a lease', 0, ?5, ?6, ?7, ?7, ?8, ?9)";
    let call = format!("call_lease_{}", Digest::of(reference.as_bytes()));
    tables.connection.prepare_cached(sql)?.execute(params![
        call,
        reference,
        session,
        account,
        picos,
        day,
        context.now_ms,
        owner.as_str(),
        context.boot
    ])?;
    let parties = CallParties { session, account, key: None };
    tables.totals.add_call(parties, day, TotalAmounts { held: picos, ..TotalAmounts::default() });
    Ok(())
}
