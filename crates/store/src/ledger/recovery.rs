//! What a host that died left in the ledger.
//!
//! A call that was never sent cost nothing: its hold is released. One that was sent may have cost: it becomes
//! unknown and its hold stays. After a power cut the mark that a call was sent may be lost with the last
//! transactions, so then every open call is unknown, and what is left of a lease too.

use std::path::Path;

use base::Digest;
use rusqlite::{Connection, params};

use super::LedgerError;
use super::book::Hand;
use super::sums::Sums;
use super::totals::{self, Difference, Parties};
use crate::OwnerId;
use crate::owner::is_alive;

/// What is said of calls that are open; in the words of their index, which is not found by others.
const OPEN: &str = "(state = 'intent' OR state = 'sent' OR state = 'streaming')";

/// What was found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Recovered {
    pub(super) released: u64,
    pub(super) unknown: u64,
}

/// Looks after the calls of owners that no longer live; in a transaction of its own.
pub(super) fn recover(connection: &mut Connection, owners: &Path, hand: Hand<'_>) -> Result<Recovered, LedgerError> {
    let transaction = connection.transaction()?;
    let (mut recovered, mut sums) = (Recovered::default(), Sums::default());
    for owner in dead_owners(&transaction, owners)? {
        recovered.released += release_intents(&transaction, &mut sums, hand, &owner)?;
        recovered.unknown += forget_open(&transaction, hand, &owner)?;
        recovered.unknown += hold_leases(&transaction, &mut sums, hand, &owner)?;
    }
    sums.end_step(true);
    sums.write(&transaction)?;
    transaction.commit()?;
    Ok(recovered)
}

fn dead_owners(connection: &Connection, owners: &Path) -> Result<Vec<OwnerId>, LedgerError> {
    let sql = format!("SELECT owner FROM call WHERE {OPEN} UNION SELECT owner FROM lease");
    let mut statement = connection.prepare(&sql)?;
    let named = statement.query_map([], |row| row.get(0))?.collect::<Result<Vec<String>, _>>()?;
    let mut dead = Vec::new();
    for owner in named.into_iter().map(OwnerId::from_database) {
        if !is_alive(owners, &owner).map_err(|error| LedgerError::Recovery(error.into()))? {
            dead.push(owner);
        }
    }
    Ok(dead)
}

/// Releases what `owner` had not sent, and does not count it as a request.
fn release_intents(
    connection: &Connection,
    sums: &mut Sums,
    hand: Hand<'_>,
    owner: &OwnerId,
) -> Result<u64, LedgerError> {
    let sql =
        "UPDATE call SET state = 'failed', reason = 'the host died before it was sent', counted = 0, changed_ms = ?1
        WHERE owner = ?2 AND boot = ?3 AND state = 'intent'
        RETURNING session, account, key, held_picos, day";
    let mut statement = connection.prepare(sql)?;
    let mut rows = statement.query(params![hand.now_ms, owner.as_str(), hand.boot])?;
    let mut count = 0;
    while let Some(row) = rows.next()? {
        let (session, account, key): (String, String, Option<String>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        let parties = Parties { session: &session, account: &account, key: key.as_deref() };
        let difference = Difference { held: -row.get::<_, i64>(3)?, spent: 0, requests: -1 };
        totals::add(sums, parties, row.get(4)?, difference);
        count += 1;
    }
    drop(rows);
    // RETURNING gives the row as it is after the change, so the hold is taken away in a second step.
    let sql = "UPDATE call SET held_picos = 0 WHERE owner = ?1 AND state = 'failed'";
    connection.execute(sql, [owner.as_str()])?;
    Ok(count)
}

/// Marks everything else of `owner` that is open as unknown.
fn forget_open(connection: &Connection, hand: Hand<'_>, owner: &OwnerId) -> Result<u64, LedgerError> {
    let sql = format!(
        "UPDATE call SET state = 'unknown', reason = 'the host died before it was settled', changed_ms = ?1
        WHERE owner = ?2 AND {OPEN}"
    );
    Ok(connection.execute(&sql, params![hand.now_ms, owner.as_str()])? as u64)
}

/// Ends the leases of `owner`. What a power cut may have taken is held as one unknown call a session.
fn hold_leases(connection: &Connection, sums: &mut Sums, hand: Hand<'_>, owner: &OwnerId) -> Result<u64, LedgerError> {
    let sql = "DELETE FROM lease WHERE owner = ?1 RETURNING session, account, granted_picos - used_picos, boot";
    let mut statement = connection.prepare(sql)?;
    let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?));
    let leases = statement.query_map([owner.as_str()], read)?;
    let leases = leases.collect::<Result<Vec<(String, String, i64, String)>, _>>()?;
    let mut count = 0;
    for (session, account, picos, boot) in leases {
        if boot != hand.boot && picos > 0 {
            hold_unrecorded(connection, sums, hand, owner, (&session, &account, picos))?;
            count += 1;
        }
    }
    Ok(count)
}

fn hold_unrecorded(
    connection: &Connection,
    sums: &mut Sums,
    hand: Hand<'_>,
    owner: &OwnerId,
    (session, account, picos): (&str, &str, i64),
) -> Result<(), LedgerError> {
    let reference = format!("{session}/{owner}");
    let day = super::LimitWindow::Day.number(hand.now_ms);
    let sql = "INSERT INTO call (call_id, source_system, source_reference, session, account, model, price_hash, state,
            reason, counted, held_picos, day, created_ms, changed_ms, owner, boot)
        VALUES (?1, 'lease', ?2, ?3, ?4, 'unrecorded', '', 'unknown',
            'the power went before the calls of a lease were on disk', 0, ?5, ?6, ?7, ?7, ?8, ?9)";
    let call = format!("call_lease_{}", Digest::of(reference.as_bytes()));
    connection.prepare_cached(sql)?.execute(params![
        call,
        reference,
        session,
        account,
        picos,
        day,
        hand.now_ms,
        owner.as_str(),
        hand.boot
    ])?;
    let parties = Parties { session, account, key: None };
    totals::add(sums, parties, day, Difference { held: picos, ..Difference::default() });
    Ok(())
}
