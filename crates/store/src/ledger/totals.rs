//! Totals of held and spent amounts and of requests, which limits are checked against.

use std::collections::HashMap;

use rusqlite::{Connection, OptionalExtension, params};

use super::limit::{LimitScope, LimitWindow};
use super::{CallHold, LedgerError};

/// Windows with totals of money. For a minute, only requests are counted, and only if a limit needs them.
const MONEY_WINDOWS: [LimitWindow; 2] = [LimitWindow::Ever, LimitWindow::Day];

/// The session, account and key whose totals a call changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct CallParties<'a> {
    pub(super) session: &'a str,
    pub(super) account: &'a str,
    pub(super) key: Option<&'a str>,
}

impl<'a> CallParties<'a> {
    pub(super) fn of(hold: &'a CallHold) -> Self {
        Self { session: hold.session.as_str(), account: &hold.account, key: hold.key.as_deref() }
    }

    /// Returns the key of one total.
    pub(super) fn total_key(&self, scope: LimitScope, window: LimitWindow, number: i64) -> TotalKey {
        TotalKey { scope, name: self.name(scope).to_owned(), window, number }
    }

    /// Returns the name of the party in `scope`; empty if there is none.
    pub(super) fn name(&self, scope: LimitScope) -> &'a str {
        match scope {
            LimitScope::Everything => "",
            LimitScope::Session => self.session,
            LimitScope::Account => self.account,
            LimitScope::Key => self.key.unwrap_or(""),
        }
    }
}

/// The key of one row of the table `total`: a party and a time window.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct TotalKey {
    pub(super) scope: LimitScope,
    pub(super) name: String,
    pub(super) window: LimitWindow,
    pub(super) number: i64,
}

/// The amounts of one total, or a change of them.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct TotalAmounts {
    pub(super) held: i64,
    pub(super) spent: i64,
    pub(super) requests: i64,
    /// Tokens held for calls without a known price.
    pub(super) held_tokens: i64,
    /// Tokens used by calls without a known price.
    pub(super) spent_tokens: i64,
}

impl TotalAmounts {
    pub(super) fn plus(self, other: Self) -> Self {
        Self {
            held: self.held + other.held,
            spent: self.spent + other.spent,
            requests: self.requests + other.requests,
            held_tokens: self.held_tokens.saturating_add(other.held_tokens),
            spent_tokens: self.spent_tokens.saturating_add(other.spent_tokens),
        }
    }
}

/// The changes of totals within one transaction. Calls of a batch mostly share their totals, so each row is written
/// once at the end.
#[derive(Debug, Default)]
pub(super) struct TotalChanges(HashMap<TotalKey, TotalAmounts>);

impl TotalChanges {
    /// Adds `amounts` to every money total of `parties`, in the window of the day on which the call was held.
    pub(super) fn add_call(&mut self, parties: CallParties<'_>, day: i64, amounts: TotalAmounts) {
        for scope in LimitScope::ALL {
            for window in MONEY_WINDOWS {
                let number = if window == LimitWindow::Day { day } else { 0 };
                self.add(parties.total_key(scope, window, number), amounts);
            }
        }
    }

    /// Adds `amounts` to one total.
    pub(super) fn add(&mut self, key: TotalKey, amounts: TotalAmounts) {
        let total = self.0.entry(key).or_default();
        *total = total.plus(amounts);
    }

    /// Writes the changed totals, and deletes the totals of earlier minutes of the same parties.
    pub(super) fn write(self, connection: &Connection) -> Result<(), LedgerError> {
        let sql = "DELETE FROM total WHERE scope = ?1 AND name = ?2 AND span = 'minute' AND number < ?3";
        for key in self.0.keys().filter(|key| key.window == LimitWindow::Minute) {
            connection.prepare_cached(sql)?.execute(params![key.scope.as_str(), key.name, key.number])?;
        }
        self.0.iter().try_for_each(|(key, amounts)| write_change(connection, key, *amounts))
    }
}

fn write_change(connection: &Connection, key: &TotalKey, amounts: TotalAmounts) -> Result<(), LedgerError> {
    let TotalAmounts { held, spent, requests, held_tokens, spent_tokens } = amounts;
    // The row is created with zeros first, so that the CHECK constraints see the sum and not a negative change.
    let create = "INSERT OR IGNORE INTO total VALUES (?1, ?2, ?3, ?4, 0, 0, 0, 0, 0)";
    let add = "UPDATE total SET held_picos = held_picos + ?5, spent_picos = spent_picos + ?6, requests = requests + ?7,
            held_tokens = held_tokens + ?8, spent_tokens = spent_tokens + ?9
        WHERE scope = ?1 AND name = ?2 AND span = ?3 AND number = ?4";
    let (scope, span) = (key.scope.as_str(), key.window.as_str());
    let values = params![scope, key.name, span, key.number, held, spent, requests, held_tokens, spent_tokens];
    if connection.prepare_cached(add)?.execute(values)? == 0 {
        connection.prepare_cached(create)?.execute(params![scope, key.name, span, key.number])?;
        connection.prepare_cached(add)?.execute(values)?;
    }
    Ok(())
}

/// Returns the total of `key` in the tables; zeros if there is no row.
pub(super) fn read(connection: &Connection, key: &TotalKey) -> Result<TotalAmounts, LedgerError> {
    let sql = "SELECT held_picos, spent_picos, requests, held_tokens, spent_tokens FROM total
        WHERE scope = ?1 AND name = ?2 AND span = ?3 AND number = ?4";
    let values = params![key.scope.as_str(), key.name, key.window.as_str(), key.number];
    let amounts = |row: &rusqlite::Row<'_>| {
        Ok(TotalAmounts {
            held: row.get(0)?,
            spent: row.get(1)?,
            requests: row.get(2)?,
            held_tokens: row.get(3)?,
            spent_tokens: row.get(4)?,
        })
    };
    let total = connection.prepare_cached(sql)?.query_row(values, amounts);
    Ok(total.optional()?.unwrap_or_default())
}
