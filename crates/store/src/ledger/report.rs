//! Queries of the ledger: usage, unknown calls and audits.

use std::time::Duration;

use protocol::{CallId, SessionId, Usage};
use rusqlite::types::Type;
use rusqlite::{Connection, Row};

use super::recovery::HOST_DIED;
use super::tables::read_usage;
use super::{LedgerError, UNPRICED_HASH};

/// The grouping of a usage query.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the names are the documentation")]
pub enum UsageGrouping {
    Session,
    Account,
    User,
    Agent,
    Model,
    /// The day a call was held on, in UTC, as `2026-11-15`.
    Day,
}

impl UsageGrouping {
    /// Every grouping.
    pub const ALL: [Self; 6] = [Self::Session, Self::Account, Self::User, Self::Agent, Self::Model, Self::Day];

    /// Returns the name in flags, queries and headings.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Account => "account",
            Self::User => "user",
            Self::Agent => "agent",
            Self::Model => "model",
            Self::Day => "day",
        }
    }

    /// Returns the grouping with that name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|by| by.as_str() == name)
    }

    fn column(self) -> &'static str {
        match self {
            Self::Session => "session",
            Self::Account => "account",
            Self::User => "coalesce(user, '')",
            Self::Agent => "coalesce(agent, '')",
            Self::Model => "model",
            Self::Day => "date(day * 86400, 'unixepoch')",
        }
    }
}

/// The usage of one session, account, user, agent, model or day.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UsageRow {
    /// Name of the session, account and so on; empty for calls without one.
    pub name: String,
    /// Number of calls, without those that were released unsent.
    pub calls: u64,
    /// Tokens of settled calls.
    pub usage: Usage,
    /// Amount charged, in pico-dollars.
    pub spent_picos: u64,
    /// Amount held for unfinished and unknown calls, in pico-dollars.
    pub held_picos: u64,
    /// Number of unknown calls.
    pub unknown: u64,
    /// Number of calls that are charged for the most that they can have cost.
    pub estimated: u64,
    /// Number of calls without a known price. Their cost is not in `spent_picos`, and not zero either.
    pub unpriced: u64,
}

/// A call that was sent and whose outcome is unknown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownCall {
    /// The call.
    pub call: CallId,
    /// The session of the call.
    pub session: SessionId,
    /// The account that pays.
    pub account: String,
    /// The requested model.
    pub model: String,
    /// Hash of the price table of the hold.
    pub price_hash: String,
    /// Amount still held, in pico-dollars.
    pub held_picos: u64,
    /// Time of the hold, in milliseconds since 1970.
    pub created_ms: i64,
    /// The reason why the outcome is unknown.
    pub reason: Option<String>,
    /// Whether the call was made since the last boot, so that no record of it can have been lost in a power cut.
    pub since_boot: bool,
    /// The most time between the hold and the death of the host, if the host died before it settled the call.
    pub host_died_after: Option<Duration>,
}

/// A call that is charged for the most that it can have cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EstimatedCall {
    /// The call.
    pub call: CallId,
    /// The session of the call.
    pub session: SessionId,
    /// The account that pays.
    pub account: String,
    /// The requested model.
    pub model: String,
    /// Amount charged, in pico-dollars.
    pub spent_picos: u64,
    /// Time of the hold, in milliseconds since 1970.
    pub created_ms: i64,
}

/// The totals of the ledger, and the result of comparing them with its calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LedgerAudit {
    /// Number of calls.
    pub calls: u64,
    /// Amount charged, in pico-dollars.
    pub spent_picos: u64,
    /// Amount held, in pico-dollars.
    pub held_picos: u64,
    /// Number of stored totals that differ from the sum of the calls. Anything but 0 is a defect.
    pub wrong_totals: u64,
}

pub(super) fn usage(connection: &Connection, by: UsageGrouping, since_ms: i64) -> Result<Vec<UsageRow>, LedgerError> {
    let sql = format!(
        "SELECT {} AS name, sum(counted), sum(spent_picos), sum(held_picos), sum(state = 'unknown'), sum(input_tokens),
            sum(output_tokens), sum(cache_read_tokens), sum(cache_write_tokens), sum(cache_write_1h_tokens),
            sum(estimated), sum(price_hash = '{UNPRICED_HASH}' AND state <> 'failed' AND spent_picos = 0)
         FROM call WHERE created_ms >= ?1 GROUP BY 1 ORDER BY 1",
        by.column()
    );
    let read = |row: &Row<'_>| {
        Ok(UsageRow {
            name: row.get(0)?,
            calls: row.get(1)?,
            spent_picos: row.get(2)?,
            held_picos: row.get(3)?,
            unknown: row.get(4)?,
            usage: read_usage(row, 5)?,
            estimated: row.get(10)?,
            unpriced: row.get(11)?,
        })
    };
    let mut statement = connection.prepare_cached(&sql)?;
    Ok(statement.query_map([since_ms], read)?.collect::<Result<_, _>>()?)
}

pub(super) fn unknowns(connection: &Connection, boot: &str) -> Result<Vec<UnknownCall>, LedgerError> {
    let sql = "SELECT call_id, session, account, model, price_hash, held_picos, created_ms, reason,
            boot = ?1 AND source_system <> 'lease',
            CASE WHEN reason = ?2 AND changed_ms >= created_ms THEN changed_ms - created_ms END
        FROM call WHERE state = 'unknown' ORDER BY created_ms, call_id";
    let read = |row: &Row<'_>| {
        Ok(UnknownCall {
            call: id(row, 0)?,
            session: id(row, 1)?,
            account: row.get(2)?,
            model: row.get(3)?,
            price_hash: row.get(4)?,
            held_picos: row.get(5)?,
            created_ms: row.get(6)?,
            reason: row.get(7)?,
            since_boot: row.get(8)?,
            host_died_after: row.get::<_, Option<u64>>(9)?.map(Duration::from_millis),
        })
    };
    let mut statement = connection.prepare_cached(sql)?;
    Ok(statement.query_map([boot, HOST_DIED], read)?.collect::<Result<_, _>>()?)
}

pub(super) fn estimates(connection: &Connection) -> Result<Vec<EstimatedCall>, LedgerError> {
    let sql = "SELECT call_id, session, account, model, spent_picos, created_ms
        FROM call WHERE estimated = 1 ORDER BY created_ms, call_id";
    let read = |row: &Row<'_>| {
        Ok(EstimatedCall {
            call: id(row, 0)?,
            session: id(row, 1)?,
            account: row.get(2)?,
            model: row.get(3)?,
            spent_picos: row.get(4)?,
            created_ms: row.get(5)?,
        })
    };
    Ok(connection.prepare_cached(sql)?.query_map([], read)?.collect::<Result<_, _>>()?)
}

pub(super) fn audit(connection: &Connection) -> Result<LedgerAudit, LedgerError> {
    let expected = ["everything", "session", "account", "key"].map(|scope| {
        let name = if scope == "everything" { "''".to_owned() } else { format!("coalesce({scope}, '')") };
        format!(
            "SELECT '{scope}', {name}, 'ever', 0, sum(held_picos), sum(spent_picos), sum(counted),
                sum(held_tokens), sum(spent_tokens) FROM call GROUP BY 2
             UNION ALL
             SELECT '{scope}', {name}, 'day', day, sum(held_picos), sum(spent_picos), sum(counted),
                sum(held_tokens), sum(spent_tokens) FROM call GROUP BY 2, 4"
        )
    });
    let sql = format!(
        "WITH expected AS ({}), found AS (SELECT * FROM total WHERE span <> 'minute')
         SELECT (SELECT count(*) FROM call), (SELECT coalesce(sum(spent_picos), 0) FROM call),
            (SELECT coalesce(sum(held_picos), 0) FROM call),
            (SELECT count(*) FROM (SELECT * FROM expected EXCEPT SELECT * FROM found))
            + (SELECT count(*) FROM (SELECT * FROM found EXCEPT SELECT * FROM expected))",
        expected.join(" UNION ALL ")
    );
    let read = |row: &Row<'_>| {
        Ok(LedgerAudit {
            calls: row.get(0)?,
            spent_picos: row.get(1)?,
            held_picos: row.get(2)?,
            wrong_totals: row.get(3)?,
        })
    };
    Ok(connection.query_row(&sql, [], read)?)
}

pub(super) fn id<T: TryFrom<String, Error = protocol::IdError>>(row: &Row<'_>, column: usize) -> rusqlite::Result<T> {
    let text: String = row.get(column)?;
    T::try_from(text).map_err(|error| rusqlite::Error::FromSqlConversionFailure(column, Type::Text, error.into()))
}
