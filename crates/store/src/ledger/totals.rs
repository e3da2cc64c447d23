//! The sums that limits are held against.

use std::collections::HashSet;

use rusqlite::{Connection, OptionalExtension, params};

use super::limit::{LimitScope, LimitWindow};
use super::sums::{Place, Sums};
use super::{CallHold, LedgerError};

/// Sums of money are kept for these; of a minute only the requests are, and only where a limit asks.
const KEPT: [LimitWindow; 2] = [LimitWindow::Ever, LimitWindow::Day];

/// Whose sums a call changes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Parties<'a> {
    pub(super) session: &'a str,
    pub(super) account: &'a str,
    pub(super) key: Option<&'a str>,
}

impl<'a> Parties<'a> {
    pub(super) fn of(hold: &'a CallHold) -> Self {
        Self { session: hold.session.as_str(), account: &hold.account, key: hold.key.as_deref() }
    }

    pub(super) fn place(&self, scope: LimitScope, window: LimitWindow, number: i64) -> Place {
        Place { scope, name: self.name(scope).to_owned(), window, number }
    }

    pub(super) fn name(&self, scope: LimitScope) -> &'a str {
        match scope {
            LimitScope::Everything => "",
            LimitScope::Session => self.session,
            LimitScope::Account => self.account,
            LimitScope::Key => self.key.unwrap_or(""),
        }
    }
}

/// What changes in a sum.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Difference {
    pub(super) held: i64,
    pub(super) spent: i64,
    pub(super) requests: i64,
}

impl Difference {
    pub(super) fn negative(self) -> Self {
        Self { held: -self.held, spent: -self.spent, requests: -self.requests }
    }

    pub(super) fn plus(self, other: Self) -> Self {
        Self { held: self.held + other.held, spent: self.spent + other.spent, requests: self.requests + other.requests }
    }
}

/// Adds `difference` to every sum of `parties`, in the windows of the day the call was held on.
pub(super) fn add(sums: &mut Sums, parties: Parties<'_>, day: i64, difference: Difference) {
    for scope in LimitScope::ALL {
        for window in KEPT {
            let number = if window == LimitWindow::Day { day } else { 0 };
            sums.add(parties.place(scope, window, number), difference);
        }
    }
}

/// Forgets the minutes before each of `places`.
pub(super) fn forget_minutes<'a>(
    connection: &Connection,
    places: impl Iterator<Item = &'a Place>,
) -> Result<(), LedgerError> {
    let sql = "DELETE FROM total WHERE scope = ?1 AND name = ?2 AND span = 'minute' AND number < ?3";
    let places: HashSet<&Place> = places.collect();
    for place in places {
        connection.prepare_cached(sql)?.execute(params![place.scope.as_str(), place.name, place.number])?;
    }
    Ok(())
}

/// Adds `difference` to the sum at `place`.
pub(super) fn write(connection: &Connection, place: &Place, difference: Difference) -> Result<(), LedgerError> {
    let Difference { held, spent, requests } = difference;
    // The row that is added to is made first, so that a difference below zero is checked as a sum.
    let make = "INSERT OR IGNORE INTO total VALUES (?1, ?2, ?3, ?4, 0, 0, 0)";
    let add = "UPDATE total SET held_picos = held_picos + ?5, spent_picos = spent_picos + ?6, requests = requests + ?7
        WHERE scope = ?1 AND name = ?2 AND span = ?3 AND number = ?4";
    let (scope, span) = (place.scope.as_str(), place.window.as_str());
    let values = params![scope, place.name, span, place.number, held, spent, requests];
    if connection.prepare_cached(add)?.execute(values)? == 0 {
        connection.prepare_cached(make)?.execute(params![scope, place.name, span, place.number])?;
        connection.prepare_cached(add)?.execute(values)?;
    }
    Ok(())
}

/// The sum at `place`, as it is written.
pub(super) fn read(connection: &Connection, place: &Place) -> Result<Difference, LedgerError> {
    let sql = "SELECT held_picos, spent_picos, requests FROM total
        WHERE scope = ?1 AND name = ?2 AND span = ?3 AND number = ?4";
    let place = params![place.scope.as_str(), place.name, place.window.as_str(), place.number];
    let sum = connection
        .prepare_cached(sql)?
        .query_row(place, |row| Ok(Difference { held: row.get(0)?, spent: row.get(1)?, requests: row.get(2)? }));
    Ok(sum.optional()?.unwrap_or_default())
}
