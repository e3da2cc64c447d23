//! Compares a ledger with the calls that the vendor served and that clients completed.

use std::collections::HashMap;
use std::path::Path;

use protocol::CallId;
use rusqlite::Connection;

/// Ledger state of the calls of one data directory.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) settled: usize,
    pub(crate) unknown: usize,
    pub(crate) failed: usize,
}

/// Checks every call; `served` is in pico-dollars, one entry each time the vendor served it.
pub(crate) fn check(directory: &Path, served: &HashMap<CallId, Vec<u64>>, finished: &[CallId]) -> Tally {
    let database = Connection::open(directory.join("ledger.db")).unwrap();
    let rows = rows(&database);
    let mut tally = Tally::default();
    let (mut spent_on_served, mut open) = (0, 0);
    for (call, costs) in served {
        assert_eq!(costs.len(), 1, "`{call}` was sent twice");
        let (state, spent) = rows.get(call).unwrap_or_else(|| panic!("`{call}` was served and is not in the ledger"));
        match state.as_str() {
            "settled" => assert_eq!(*spent, costs[0], "`{call}` is charged another sum than it cost"),
            "unknown" => open += costs[0],
            state => panic!("`{call}` was served and is {state}"),
        }
        spent_on_served += spent;
    }
    for (call, (state, spent)) in &rows {
        match state.as_str() {
            "settled" => tally.settled += 1,
            "unknown" => tally.unknown += 1,
            "failed" => tally.failed += 1,
            state => panic!("`{call}` is {state} and nobody works on it"),
        }
        assert!(served.contains_key(call) || *spent == 0, "`{call}` was charged and never served");
    }
    for call in finished {
        assert_eq!(rows[call].0, "settled", "a client saw the end of `{call}`");
    }
    let served: u64 = served.values().flatten().sum();
    assert_eq!(spent_on_served + open, served, "the vendor served another sum");
    assert_eq!(total(&database), spent_on_served, "the sum is not the sum of its calls");
    tally
}

/// Returns state and charge of every call.
fn rows(database: &Connection) -> HashMap<CallId, (String, u64)> {
    let mut statement = database.prepare("SELECT call_id, state, spent_picos FROM call").unwrap();
    let read = |row: &rusqlite::Row<'_>| Ok((row.get::<_, String>(0)?, (row.get(1)?, row.get(2)?)));
    let rows = statement.query_map([], read).unwrap().map(Result::unwrap);
    rows.map(|(call, rest)| (CallId::new(call).unwrap(), rest)).collect()
}

/// Returns the total spending that budgets count.
fn total(database: &Connection) -> u64 {
    let sql = "SELECT spent_picos FROM total WHERE scope = 'everything' AND span = 'ever'";
    database.query_row(sql, [], |row| row.get(0)).unwrap()
}
