//! Calls as rows of their table, many of them in one statement.
//!
//! What a statement costs by itself is paid once for all of its rows, and a value that a row has in common with the one
//! that stood in its place before is not handed over again: calls that come together differ in little.

use protocol::Usage;
use rusqlite::types::{ToSqlOutput, ValueRef};
use rusqlite::{Connection, ErrorCode, Statement};

use super::LedgerError;
use super::entry::{Entry, HoldEntry};
use super::hold::bounded;
use super::totals::Difference;

/// So many calls are entered by one statement.
const ROWS: usize = 16;
/// A call has so many values.
const COLUMNS: usize = 24;

/// The values of a call, in the order of [the statement](insert).
type Columns<'a> = [ValueRef<'a>; COLUMNS];

/// A call that is not in the tables yet, as far as it got.
pub(super) struct NewCall {
    pub(super) hold: Box<HoldEntry>,
    reference: String,
    pub(super) created_ms: i64,
    changed_ms: i64,
    state: &'static str,
    reason: Option<String>,
    held: i64,
    spent: i64,
    usage: Usage,
}

impl NewCall {
    pub(super) fn new(hold: Box<HoldEntry>, at: i64) -> Self {
        Self {
            created_ms: at,
            changed_ms: at,
            state: if hold.sent { "sent" } else { "intent" },
            reason: None,
            held: hold.share.picos,
            spent: 0,
            usage: Usage::default(),
            reference: hold.reference().into_owned(),
            hold,
        }
    }

    /// Takes a later step of the same call.
    pub(super) fn change(&mut self, step: Entry, at: i64) {
        self.changed_ms = at;
        match step {
            Entry::Advance { progress, .. } => {
                self.state = progress.state();
                self.reason = progress.reason().map(str::to_owned);
            }
            Entry::Settle { picos, usage, .. } => {
                (self.state, self.held, self.spent, self.usage) = ("settled", 0, picos, bounded(usage));
            }
            Entry::Fail { reason, .. } => (self.state, self.held, self.reason) = ("failed", 0, Some(reason)),
            Entry::Hold(_) | Entry::Forget => {}
        }
    }

    /// What it adds to sums.
    pub(super) fn counted(&self) -> Difference {
        Difference { held: self.held, spent: self.spent, requests: 1 }
    }

    fn columns(&self) -> Columns<'_> {
        let Self { hold, usage, .. } = self;
        let tokens = |count: u64| ValueRef::Integer(count.cast_signed());
        [
            text(hold.call.as_str()),
            text(&hold.system),
            text(&self.reference),
            text(hold.share.session.as_str()),
            text(&hold.share.account),
            optional(hold.user.as_deref()),
            optional(hold.share.key.as_deref()),
            optional(hold.agent.as_deref()),
            text(&hold.model),
            text(&hold.price_hash),
            text(self.state),
            optional(self.reason.as_deref()),
            ValueRef::Integer(self.held),
            ValueRef::Integer(self.spent),
            tokens(usage.input_tokens),
            tokens(usage.output_tokens),
            tokens(usage.cache_read_tokens),
            tokens(usage.cache_write_tokens),
            tokens(usage.cache_write_1h_tokens),
            ValueRef::Integer(hold.share.day),
            ValueRef::Integer(self.created_ms),
            ValueRef::Integer(self.changed_ms),
            text(hold.owner.as_str()),
            text(&hold.boot),
        ]
    }
}

/// Enters `calls`, and says which could not be: they, or their sources, are there already.
pub(super) fn enter<'a>(connection: &Connection, calls: &'a [NewCall]) -> Result<Vec<&'a NewCall>, LedgerError> {
    let (mut there, mut next) = (Vec::new(), 0);
    for rows in [ROWS, 1] {
        let sql = insert(rows);
        let mut statement = connection.prepare_cached(&sql)?;
        // What each row of the statement has got.
        let mut bound: Vec<Option<Columns<'_>>> = vec![None; rows];
        while let Some(some) = calls.get(next..next + rows) {
            for (row, (call, before)) in some.iter().zip(&mut bound).enumerate() {
                let values = call.columns();
                bind(&mut statement, row, &values, before.as_ref())?;
                *before = Some(values);
            }
            match statement.raw_execute() {
                Err(rusqlite::Error::SqliteFailure(failure, _)) if failure.code == ErrorCode::ConstraintViolation => {
                    // The rows before it are entered, and those after it are still to come.
                    let entered = usize::try_from(connection.changes()).unwrap_or(0).min(rows - 1);
                    there.push(&some[entered]);
                    next += entered + 1;
                }
                entered => {
                    entered?;
                    next += rows;
                }
            }
        }
    }
    Ok(there)
}

/// Hands `values` to the row of the statement, but for what that has from the call before.
fn bind(
    statement: &mut Statement<'_>,
    row: usize,
    values: &Columns<'_>,
    before: Option<&Columns<'_>>,
) -> rusqlite::Result<()> {
    for (column, value) in values.iter().enumerate() {
        if before.is_none_or(|before| before[column] != *value) {
            statement.raw_bind_parameter(row * COLUMNS + column + 1, ToSqlOutput::Borrowed(*value))?;
        }
    }
    Ok(())
}

/// The statement that enters so many calls. It stops at one that is there already.
fn insert(rows: usize) -> String {
    let row = format!("({})", ["?"; COLUMNS].join(", "));
    format!(
        "INSERT OR FAIL INTO call (call_id, source_system, source_reference, session, account, user, key, agent, model,
            price_hash, state, reason, held_picos, spent_picos, input_tokens, output_tokens, cache_read_tokens,
            cache_write_tokens, cache_write_1h_tokens, day, created_ms, changed_ms, owner, boot)
        VALUES {}",
        vec![row; rows].join(", ")
    )
}

fn text(text: &str) -> ValueRef<'_> {
    ValueRef::Text(text.as_bytes())
}

fn optional(value: Option<&str>) -> ValueRef<'_> {
    value.map_or(ValueRef::Null, text)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use protocol::{CallId, SessionId};

    use super::super::SCHEMA;
    use super::super::entry::Share;
    use super::*;
    use crate::database::{self, Synchronous};

    fn new_call(number: usize) -> NewCall {
        let owner = serde_json::from_str("\"o1\"").unwrap();
        let share = Share {
            session: SessionId::new(format!("s{}", number % 3)).unwrap(),
            account: "a1".into(),
            key: None,
            day: 1,
            picos: 7,
        };
        let hold = HoldEntry {
            call: CallId::new(format!("c{number}")).unwrap(),
            share: Arc::new(share),
            system: "viv".into(),
            run: None,
            attempt: 1,
            reference: None,
            user: number.is_multiple_of(2).then(|| "ann".into()),
            agent: None,
            model: "m1".to_owned(),
            price_hash: "p1".into(),
            sent: true,
            leased: false,
            minutes: Vec::new(),
            owner,
            boot: "b1".into(),
        };
        NewCall::new(Box::new(hold), i64::try_from(number).unwrap())
    }

    #[test]
    fn whatever_is_there_already_all_others_are_entered_as_they_are() {
        let place = tempfile::tempdir().unwrap();
        let tables = database::open(&place.path().join("ledger.sqlite"), Synchronous::Normal, SCHEMA).unwrap();
        let calls: Vec<_> = (0..ROWS * 3 + 5).map(new_call).collect();
        // The first of a statement, two in one, the last of one, and the last of all, which comes alone.
        let known = [0, 20, 22, 40, ROWS * 3 + 4];
        for number in known {
            assert!(enter(&tables, &[new_call(number)]).unwrap().is_empty());
        }
        let there: Vec<_> = enter(&tables, &calls).unwrap().iter().map(|call| call.hold.call.to_string()).collect();
        assert_eq!(there, known.map(|number| format!("c{number}")));
        let sql = "SELECT call_id, source_reference, session, user, created_ms FROM call ORDER BY created_ms";
        let mut statement = tables.prepare(sql).unwrap();
        let mut rows = statement.query([]).unwrap();
        for call in &calls {
            let row = rows.next().unwrap().unwrap();
            assert_eq!(row.get::<_, String>(0).unwrap(), call.hold.call.as_str());
            assert_eq!(row.get::<_, String>(1).unwrap(), call.reference);
            assert_eq!(row.get::<_, String>(2).unwrap(), call.hold.share.session.as_str());
            assert_eq!(row.get::<_, Option<String>>(3).unwrap().as_deref(), call.hold.user.as_deref());
            assert_eq!(row.get::<_, i64>(4).unwrap(), call.created_ms);
        }
        assert!(rows.next().unwrap().is_none());
    }

    #[test]
    fn calls_are_entered_without_a_table_made_for_them() {
        let place = tempfile::tempdir().unwrap();
        let tables = database::open(&place.path().join("ledger.sqlite"), Synchronous::Normal, SCHEMA).unwrap();
        for rows in [ROWS, 1] {
            let mut steps = tables.prepare(&format!("EXPLAIN {}", insert(rows))).unwrap();
            let steps = steps.raw_query().mapped(|row| row.get(1)).collect::<Result<Vec<String>, _>>().unwrap();
            assert!(!steps.is_empty() && !steps.iter().any(|step| step == "OpenEphemeral"), "{steps:?}");
        }
    }
}
