//! Compares a ledger with the calls that the vendor served and that clients completed.

use std::collections::HashMap;
use std::path::Path;

use protocol::CallId;
use rusqlite::Connection;

/// Ledger state of the calls of one data directory.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    pub(crate) settled: usize,
    /// Settled for the most that they can have cost.
    pub(crate) estimated: usize,
    pub(crate) unknown: usize,
    pub(crate) failed: usize,
}

/// A call in the ledger.
struct Row {
    state: String,
    spent: u64,
    estimated: bool,
}

/// Checks every call; `served` is in pico-dollars, one entry each time the vendor served it.
pub(crate) fn check(directory: &Path, served: &HashMap<CallId, Vec<u64>>, finished: &[CallId]) -> Tally {
    let database = Connection::open(directory.join("ledger.db")).unwrap();
    let rows = rows(&database);
    let mut tally = Tally::default();
    let (mut spent_on_served, mut overcharged, mut open) = (0, 0, 0);
    for (call, costs) in served {
        assert_eq!(costs.len(), 1, "`{call}` was sent twice");
        let row = rows.get(call).unwrap_or_else(|| panic!("`{call}` was served and is not in the ledger"));
        match row.state.as_str() {
            "settled" if row.estimated => {
                assert!(row.spent >= costs[0], "`{call}` cost {} and its estimate is {}", costs[0], row.spent);
                overcharged += row.spent - costs[0];
            }
            "settled" => assert_eq!(row.spent, costs[0], "`{call}` is charged another sum than it cost"),
            "unknown" => open += costs[0],
            state => panic!("`{call}` was served and is {state}"),
        }
        spent_on_served += row.spent;
    }
    let mut never_served = 0;
    for (call, Row { state, spent, estimated }) in &rows {
        match state.as_str() {
            "settled" if *estimated => tally.estimated += 1,
            "settled" => tally.settled += 1,
            "unknown" => tally.unknown += 1,
            "failed" => tally.failed += 1,
            state => panic!("`{call}` is {state} and nobody works on it"),
        }
        if !served.contains_key(call) {
            // The gateway died after it noted that the call is sent, and before the vendor had read the call.
            assert!(*spent == 0 || *estimated, "`{call}` was charged and never served");
            never_served += spent;
        }
    }
    for call in finished {
        let row = &rows[call];
        assert!(row.state == "settled" && !row.estimated, "a client saw the end of `{call}`, which is {}", row.state);
    }
    let served: u64 = served.values().flatten().sum();
    assert_eq!(spent_on_served + open - overcharged, served, "the vendor served another sum");
    assert_eq!(total(&database), spent_on_served + never_served, "the sum is not the sum of its calls");
    tally
}

fn rows(database: &Connection) -> HashMap<CallId, Row> {
    let mut statement = database.prepare("SELECT call_id, state, spent_picos, estimated FROM call").unwrap();
    let read = |row: &rusqlite::Row<'_>| {
        let call: String = row.get(0)?;
        Ok((CallId::new(call).unwrap(), Row { state: row.get(1)?, spent: row.get(2)?, estimated: row.get(3)? }))
    };
    statement.query_map([], read).unwrap().map(Result::unwrap).collect()
}

/// Returns the total spending that budgets count.
fn total(database: &Connection) -> u64 {
    let sql = "SELECT spent_picos FROM total WHERE scope = 'everything' AND span = 'ever'";
    database.query_row(sql, [], |row| row.get(0)).unwrap()
}
