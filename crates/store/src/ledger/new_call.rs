//! Calls that are in the write-ahead log and not in the tables yet.

use protocol::Usage;
use rusqlite::{Connection, ErrorCode, params};

use super::LedgerError;
use super::call::bounded_usage;
use super::log_entry::{HoldEntry, LogEntry};
use super::totals::TotalAmounts;

const INSERT: &str = "INSERT INTO call (call_id, source_system, source_reference, session, account, user, key, agent,
        model, price_hash, state, reason, held_picos, spent_picos, input_tokens, output_tokens, cache_read_tokens,
        cache_write_tokens, cache_write_1h_tokens, day, created_ms, changed_ms, owner, boot,
        estimated, held_tokens, spent_tokens)
    VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17, ?18, ?19, ?20, ?21, ?22, ?23,
        ?24, ?25, ?26, ?27)";

/// A call in its last state. A call that was held and settled within one checkpoint is inserted once.
pub(super) struct NewCall {
    pub(super) hold: Box<HoldEntry>,
    pub(super) created_ms: i64,
    changed_ms: i64,
    state: &'static str,
    reason: Option<String>,
    held: i64,
    spent: i64,
    usage: Usage,
    estimated: bool,
    held_tokens: i64,
    spent_tokens: i64,
}

impl NewCall {
    pub(super) fn new(hold: Box<HoldEntry>, at_ms: i64) -> Self {
        Self {
            created_ms: at_ms,
            changed_ms: at_ms,
            state: if hold.sent { "sent" } else { "intent" },
            reason: None,
            held: hold.share.picos,
            spent: 0,
            usage: Usage::default(),
            estimated: false,
            held_tokens: hold.share.tokens,
            spent_tokens: 0,
            hold,
        }
    }

    /// Applies a later entry of the same call.
    pub(super) fn apply(&mut self, entry: LogEntry, at_ms: i64) {
        self.changed_ms = at_ms;
        match entry {
            LogEntry::Advance { progress, .. } => {
                self.state = progress.state();
                self.reason = progress.reason().map(str::to_owned);
            }
            LogEntry::Adjust { picos, tokens, .. } => (self.held, self.held_tokens) = (picos, tokens),
            LogEntry::Settle { share, picos, usage, estimated, .. } => {
                self.estimated = estimated;
                (self.state, self.held, self.spent, self.usage) = ("settled", 0, picos, bounded_usage(usage));
                (self.held_tokens, self.spent_tokens) = (0, share.counted_tokens(usage));
            }
            LogEntry::Fail { reason, .. } => {
                (self.state, self.held, self.held_tokens, self.reason) = ("failed", 0, 0, Some(reason));
            }
            LogEntry::Hold(_) | LogEntry::Forget => {}
        }
    }

    /// Returns the amounts that the call adds to totals.
    pub(super) fn amounts(&self) -> TotalAmounts {
        TotalAmounts {
            held: self.held,
            spent: self.spent,
            requests: 1,
            held_tokens: self.held_tokens,
            spent_tokens: self.spent_tokens,
        }
    }

    /// Inserts the call. Returns false if the call or its source is in the tables already.
    pub(super) fn insert(&self, connection: &Connection) -> Result<bool, LedgerError> {
        let Self { hold, usage, .. } = self;
        let inserted = connection.prepare_cached(INSERT)?.execute(params![
            hold.call.as_str(),
            hold.system,
            hold.reference(),
            hold.share.session.as_str(),
            hold.share.account,
            hold.user,
            hold.share.key,
            hold.agent,
            hold.model,
            hold.price_hash,
            self.state,
            self.reason,
            self.held,
            self.spent,
            usage.input_tokens,
            usage.output_tokens,
            usage.cache_read_tokens,
            usage.cache_write_tokens,
            usage.cache_write_1h_tokens,
            hold.share.day,
            self.created_ms,
            self.changed_ms,
            hold.owner.as_str(),
            hold.boot,
            self.estimated,
            self.held_tokens,
            self.spent_tokens
        ]);
        match inserted {
            Err(rusqlite::Error::SqliteFailure(failure, _)) if failure.code == ErrorCode::ConstraintViolation => {
                Ok(false)
            }
            inserted => Ok(inserted? > 0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::SCHEMA;
    use super::super::log_entry::LogLine;
    use super::*;
    use crate::database::{self, Synchronous};

    fn new_call(name: &str) -> NewCall {
        let line = format!(
            r#"{{"at":5,"step":{{"hold":{{"call":"{name}","share":{{"session":"s1","account":"a1","day":3,"picos":7}},
            "system":"viv","user":"ann","model":"m1","price_hash":"p1","owner":"o1","boot":"b1"}}}}}}"#
        );
        let line: LogLine = serde_json::from_str(&line).unwrap();
        let LogEntry::Hold(hold) = line.step else { panic!("{line:?}") };
        NewCall::new(hold, line.at)
    }

    #[test]
    fn call_is_inserted_once_with_its_columns() {
        let directory = tempfile::tempdir().unwrap();
        let tables = database::open(&directory.path().join("ledger.db"), Synchronous::Normal, SCHEMA).unwrap();
        assert!(new_call("c1").insert(&tables).unwrap());
        assert!(!new_call("c1").insert(&tables).unwrap());
        assert!(new_call("c2").insert(&tables).unwrap());
        let sql = "SELECT source_reference, user, key, state, held_picos, created_ms FROM call WHERE call_id = 'c2'";
        let read = |row: &rusqlite::Row<'_>| {
            Ok((row.get(0)?, row.get(1)?, row.get(2)?, row.get(3)?, row.get(4)?, row.get(5)?))
        };
        let columns: (String, String, Option<String>, String, i64, i64) = tables.query_row(sql, [], read).unwrap();
        assert_eq!(columns, ("s1/1/c2".into(), "ann".into(), None, "intent".into(), 7, 5));
    }
}
