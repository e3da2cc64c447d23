//! The schema of the ledger database, as a list of migrations.

/// The table `total` holds the totals of the table `call`, so that checking a limit reads one row;
/// [`super::LedgerAudit`] compares the two.
pub(crate) const SCHEMA: &[&str] = &[
    "
CREATE TABLE call (
    call_id TEXT PRIMARY KEY,
    source_system TEXT NOT NULL,
    source_reference TEXT NOT NULL,
    session TEXT NOT NULL,
    account TEXT NOT NULL,
    user TEXT,
    key TEXT,
    agent TEXT,
    model TEXT NOT NULL,
    price_hash TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state IN ('intent', 'sent', 'streaming', 'settled', 'failed', 'unknown')),
    reason TEXT,
    counted INTEGER NOT NULL DEFAULT 1,
    held_picos INTEGER NOT NULL CHECK (held_picos >= 0),
    spent_picos INTEGER NOT NULL DEFAULT 0 CHECK (spent_picos >= 0),
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_1h_tokens INTEGER NOT NULL DEFAULT 0,
    day INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    owner TEXT NOT NULL,
    boot TEXT NOT NULL,
    UNIQUE (source_system, source_reference)
) STRICT, WITHOUT ROWID;
CREATE INDEX call_open ON call (owner) WHERE state IN ('intent', 'sent', 'streaming');
CREATE INDEX call_unknown ON call (created_ms) WHERE state = 'unknown';

CREATE TABLE total (
    scope TEXT NOT NULL,
    name TEXT NOT NULL,
    span TEXT NOT NULL,
    number INTEGER NOT NULL,
    held_picos INTEGER NOT NULL CHECK (held_picos >= 0),
    spent_picos INTEGER NOT NULL CHECK (spent_picos >= 0),
    requests INTEGER NOT NULL CHECK (requests >= 0),
    PRIMARY KEY (scope, name, span, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE lease (
    session TEXT NOT NULL,
    owner TEXT NOT NULL,
    boot TEXT NOT NULL,
    account TEXT NOT NULL,
    granted_picos INTEGER NOT NULL,
    used_picos INTEGER NOT NULL,
    PRIMARY KEY (session, owner)
) STRICT, WITHOUT ROWID;
",
    "
CREATE TABLE key (
    id TEXT PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE CHECK (length(digest) = 32),
    account TEXT NOT NULL,
    user TEXT,
    models TEXT NOT NULL,
    budget_picos INTEGER CHECK (budget_picos >= 0),
    requests_a_minute INTEGER CHECK (requests_a_minute >= 0),
    created_ms INTEGER NOT NULL,
    expires_ms INTEGER,
    revoked_ms INTEGER
) STRICT, WITHOUT ROWID;
",
    "
CREATE TABLE resolution (
    call_id TEXT PRIMARY KEY REFERENCES call (call_id),
    resolved_ms INTEGER NOT NULL,
    held_picos INTEGER NOT NULL CHECK (held_picos >= 0),
    spent_picos INTEGER NOT NULL CHECK (spent_picos >= 0),
    resolved_by TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
",
    "
CREATE TABLE carried (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    generation INTEGER NOT NULL,
    bytes INTEGER NOT NULL
) STRICT;
CREATE TABLE misfit (
    line TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT;
",
    // For `IN` with more than two values, SQLite builds a temporary table for every row that is checked.
    "
CREATE TABLE call_before AS SELECT * FROM call;
CREATE TABLE resolution_before AS SELECT * FROM resolution;
DROP TABLE resolution;
DROP TABLE call;
CREATE TABLE call (
    call_id TEXT PRIMARY KEY,
    source_system TEXT NOT NULL,
    source_reference TEXT NOT NULL,
    session TEXT NOT NULL,
    account TEXT NOT NULL,
    user TEXT,
    key TEXT,
    agent TEXT,
    model TEXT NOT NULL,
    price_hash TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state = 'settled' OR state = 'failed' OR state = 'unknown'
        OR state = 'sent' OR state = 'streaming' OR state = 'intent'),
    reason TEXT,
    counted INTEGER NOT NULL DEFAULT 1,
    held_picos INTEGER NOT NULL CHECK (held_picos >= 0),
    spent_picos INTEGER NOT NULL DEFAULT 0 CHECK (spent_picos >= 0),
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_1h_tokens INTEGER NOT NULL DEFAULT 0,
    day INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    owner TEXT NOT NULL,
    boot TEXT NOT NULL,
    UNIQUE (source_system, source_reference)
) STRICT, WITHOUT ROWID;
CREATE INDEX call_open ON call (owner) WHERE (state = 'intent' OR state = 'sent' OR state = 'streaming');
CREATE INDEX call_unknown ON call (created_ms) WHERE state = 'unknown';
CREATE TABLE resolution (
    call_id TEXT PRIMARY KEY REFERENCES call (call_id),
    resolved_ms INTEGER NOT NULL,
    held_picos INTEGER NOT NULL CHECK (held_picos >= 0),
    spent_picos INTEGER NOT NULL CHECK (spent_picos >= 0),
    resolved_by TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO call SELECT * FROM call_before;
INSERT INTO resolution SELECT * FROM resolution_before;
DROP TABLE call_before;
DROP TABLE resolution_before;
",
    // Rows are long, so a rowid table, which appends, is faster than a tree in key order. The index starts with the
    // reference, because the system is nearly always the same.
    "
CREATE TABLE call_before AS SELECT * FROM call;
CREATE TABLE resolution_before AS SELECT * FROM resolution;
DROP TABLE resolution;
DROP TABLE call;
CREATE TABLE call (
    call_id TEXT NOT NULL PRIMARY KEY,
    source_system TEXT NOT NULL,
    source_reference TEXT NOT NULL,
    session TEXT NOT NULL,
    account TEXT NOT NULL,
    user TEXT,
    key TEXT,
    agent TEXT,
    model TEXT NOT NULL,
    price_hash TEXT NOT NULL,
    state TEXT NOT NULL CHECK (state = 'settled' OR state = 'failed' OR state = 'unknown'
        OR state = 'sent' OR state = 'streaming' OR state = 'intent'),
    reason TEXT,
    counted INTEGER NOT NULL DEFAULT 1,
    held_picos INTEGER NOT NULL CHECK (held_picos >= 0),
    spent_picos INTEGER NOT NULL DEFAULT 0 CHECK (spent_picos >= 0),
    input_tokens INTEGER NOT NULL DEFAULT 0,
    output_tokens INTEGER NOT NULL DEFAULT 0,
    cache_read_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_tokens INTEGER NOT NULL DEFAULT 0,
    cache_write_1h_tokens INTEGER NOT NULL DEFAULT 0,
    day INTEGER NOT NULL,
    created_ms INTEGER NOT NULL,
    changed_ms INTEGER NOT NULL,
    owner TEXT NOT NULL,
    boot TEXT NOT NULL,
    UNIQUE (source_reference, source_system)
) STRICT;
CREATE INDEX call_open ON call (owner) WHERE (state = 'intent' OR state = 'sent' OR state = 'streaming');
CREATE INDEX call_unknown ON call (created_ms) WHERE state = 'unknown';
CREATE TABLE resolution (
    call_id TEXT PRIMARY KEY REFERENCES call (call_id),
    resolved_ms INTEGER NOT NULL,
    held_picos INTEGER NOT NULL CHECK (held_picos >= 0),
    spent_picos INTEGER NOT NULL CHECK (spent_picos >= 0),
    resolved_by TEXT NOT NULL,
    reason TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO call SELECT * FROM call_before;
INSERT INTO resolution SELECT * FROM resolution_before;
DROP TABLE call_before;
DROP TABLE resolution_before;
",
    "
ALTER TABLE call ADD COLUMN estimated INTEGER NOT NULL DEFAULT 0;
CREATE INDEX call_estimated ON call (created_ms) WHERE estimated = 1;
",
    // A call without a known price is limited by its tokens.
    "
ALTER TABLE call ADD COLUMN held_tokens INTEGER NOT NULL DEFAULT 0 CHECK (held_tokens >= 0);
ALTER TABLE call ADD COLUMN spent_tokens INTEGER NOT NULL DEFAULT 0 CHECK (spent_tokens >= 0);
ALTER TABLE total ADD COLUMN held_tokens INTEGER NOT NULL DEFAULT 0 CHECK (held_tokens >= 0);
ALTER TABLE total ADD COLUMN spent_tokens INTEGER NOT NULL DEFAULT 0 CHECK (spent_tokens >= 0);
",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::database::{self, Synchronous};

    const CALL: &str =
        "INSERT INTO call (call_id, source_system, source_reference, session, account, model, price_hash,
            state, held_picos, day, created_ms, changed_ms, owner, boot)
        VALUES ('c1', 'viv', 's1/1/c1', 's1', 'a1', 'm1', 'p1', 'settled', 0, 1, 1, 1, 'o1', 'b1')";

    #[test]
    fn migration_keeps_rows_of_earlier_versions() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("ledger.sqlite");
        let before = database::open(&path, Synchronous::Normal, &SCHEMA[..4]).unwrap();
        before.execute(CALL, []).unwrap();
        before.execute("INSERT INTO resolution VALUES ('c1', 2, 5, 7, 'ann', 'invoice')", []).unwrap();
        drop(before);
        drop(database::open(&path, Synchronous::Normal, &SCHEMA[..5]).unwrap());
        let now = database::open(&path, Synchronous::Normal, SCHEMA).unwrap();
        let sql = "SELECT call.state, resolution.reason FROM call JOIN resolution USING (call_id)";
        let read = |row: &rusqlite::Row<'_>| Ok((row.get(0)?, row.get(1)?));
        let kept: (String, String) = now.query_row(sql, [], read).unwrap();
        assert_eq!(kept, ("settled".to_owned(), "invoice".to_owned()));
        assert!(now.execute("UPDATE call SET state = 'lost'", []).is_err(), "an invalid state was accepted");
        assert!(now.execute("DELETE FROM call", []).is_err(), "a resolved call was deleted");
        assert!(now.execute(CALL, []).is_err(), "a call was inserted twice");
        assert!(now.execute(&CALL.replace("'c1'", "'c2'"), []).is_err(), "a source was inserted twice");
        assert!(
            now.execute(&CALL.replace("'c1'", "NULL").replace("s1/1/c1", "s1/1/c2"), []).is_err(),
            "a call without an id was inserted"
        );
    }
}
