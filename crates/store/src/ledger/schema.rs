//! The tables of the ledger.

/// `total` is the sum of `call`, kept beside it so that a limit costs one look; [`super::Audit`] compares the two.
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
];
