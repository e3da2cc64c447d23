//! `viv usage`: the cost of model calls by session, account, user, agent, model or day.

mod settle;

use std::process::ExitCode;
use std::sync::Arc;

use clap::{Args, ValueEnum};
use jiff::Timestamp;
use protocol::SessionId;
use serde_json::json;
use store::{EstimatedCall, Ledger, SessionIndex, SinceTime, SystemClock, UnknownCall, UsageGrouping, UsageRow};

use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::money::usd;
use crate::output;
use crate::table::{TextTable, print, print_exact, print_json};
use settle::SettleCommand;

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct UsageArguments {
    #[command(subcommand)]
    command: Option<SettleCommand>,
    /// Group by: session, account, user, agent, model or day
    #[arg(long, value_name = "WHAT", default_value = "session", value_parser = by)]
    by: UsageGrouping,
    /// Count only calls since then: 7d, 24h or 2026-11-15 (default: all)
    #[arg(long, value_name = "TIME", value_parser = |text: &str| text.parse::<SinceTime>())]
    since: Option<SinceTime>,
    /// List calls with an unknown outcome instead of sums
    #[arg(long, conflicts_with_all = ["by", "since"])]
    unknown: bool,
    /// List calls that are charged for the most that they can have cost, instead of sums
    #[arg(long, conflicts_with_all = ["by", "since", "unknown"])]
    estimated: bool,
    /// Output format
    #[arg(long, value_enum, default_value = "table")]
    format: UsageFormat,
}

/// Output format of usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
enum UsageFormat {
    /// Aligned columns; tab-separated in a pipe
    Table,
    /// CSV with a heading
    Csv,
}

fn by(name: &str) -> Result<UsageGrouping, String> {
    let all = || UsageGrouping::ALL.map(UsageGrouping::as_str).join(", ");
    UsageGrouping::named(name).ok_or_else(|| format!("cannot group usage by `{name}`; use one of {}", all()))
}

/// Runs `viv usage`.
pub(crate) fn carry_out(arguments: &UsageArguments, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let ledger = host::ledger(config)?;
    if let Some(command) = &arguments.command {
        return settle::carry_out(command, &ledger, config, json);
    }
    if arguments.unknown {
        return list_unknown(&ledger.unknowns()?, arguments.format, json);
    }
    if arguments.estimated {
        return list_estimated(&ledger.estimates()?, arguments.format, json);
    }
    let since_ms = arguments.since.map_or(0, |since| since.millisecond(Timestamp::now()));
    let rows = ledger.usage(arguments.by, since_ms)?;
    if json {
        let all: Vec<_> = rows.iter().map(as_json).collect();
        let total = as_json(&total(&rows));
        print_json(&json!({"by": arguments.by.as_str(), "since_ms": since_ms, "rows": all, "total": total}))?;
        return Ok(ExitCode::SUCCESS);
    }
    let rows = if arguments.by == UsageGrouping::Session { with_names(rows, config)? } else { rows };
    // The sum of a single row is that row, and a program sums by itself.
    let with_total = rows.len() > 1 && arguments.format == UsageFormat::Table && output::stdout_is_terminal();
    let total = with_total.then(|| total(&rows));
    let rows: Vec<UsageRow> = rows.into_iter().chain(total).collect();
    let table = table(arguments.by, &rows);
    print_table(&table, arguments.format)?;
    Ok(ExitCode::SUCCESS)
}

/// Returns the sum of all rows.
fn total(rows: &[UsageRow]) -> UsageRow {
    let mut total = UsageRow { name: "total".to_owned(), ..UsageRow::default() };
    for row in rows {
        total.calls += row.calls;
        total.usage += row.usage;
        total.spent_picos += row.spent_picos;
        total.held_picos += row.held_picos;
        total.unknown += row.unknown;
        total.estimated += row.estimated;
        total.unpriced += row.unpriced;
    }
    total
}

/// Replaces the ids of sessions by their names; the id of a deleted session stays.
fn with_names(rows: Vec<UsageRow>, config: &Config) -> Result<Vec<UsageRow>, Failure> {
    let index = SessionIndex::open(&host::data_dir(config)?, Arc::new(SystemClock))?;
    let named = |row: UsageRow| {
        let found = SessionId::new(row.name.clone()).ok().and_then(|id| index.get(&id).ok());
        let name = found.and_then(|record| record.info.name).unwrap_or_else(|| row.name.clone());
        UsageRow { name, ..row }
    };
    Ok(rows.into_iter().map(named).collect())
}

fn list_unknown(calls: &[UnknownCall], format: UsageFormat, json: bool) -> Result<ExitCode, Failure> {
    if json {
        let call = |call: &UnknownCall| {
            json!({"call": call.call, "session": call.session, "account": call.account, "model": call.model,
                "held_picos": call.held_picos, "held_since": time(call.created_ms), "reason": call.reason})
        };
        print_json(&json!(calls.iter().map(call).collect::<Vec<_>>()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |call: &UnknownCall| {
        [
            call.call.to_string(),
            call.session.to_string(),
            call.account.clone(),
            call.model.clone(),
            usd(call.held_picos),
            time(call.created_ms),
            call.reason.clone().unwrap_or_default(),
        ]
    };
    let head = ["CALL", "SESSION", "ACCOUNT", "MODEL", "HELD USD", "HELD SINCE", "REASON"];
    let table = TextTable { head, rows: calls.iter().map(row).collect() };
    print_table(&table, format)?;
    Ok(ExitCode::SUCCESS)
}

fn list_estimated(calls: &[EstimatedCall], format: UsageFormat, json: bool) -> Result<ExitCode, Failure> {
    if json {
        let call = |call: &EstimatedCall| {
            json!({"call": call.call, "session": call.session, "account": call.account, "model": call.model,
                "spent_picos": call.spent_picos, "held_since": time(call.created_ms)})
        };
        print_json(&json!(calls.iter().map(call).collect::<Vec<_>>()))?;
        return Ok(ExitCode::SUCCESS);
    }
    let row = |call: &EstimatedCall| {
        [
            call.call.to_string(),
            call.session.to_string(),
            call.account.clone(),
            call.model.clone(),
            usd(call.spent_picos),
            time(call.created_ms),
        ]
    };
    let head = ["CALL", "SESSION", "ACCOUNT", "MODEL", "USD", "HELD SINCE"];
    print_table(&TextTable { head, rows: calls.iter().map(row).collect() }, format)?;
    Ok(ExitCode::SUCCESS)
}

fn time(milliseconds: i64) -> String {
    Timestamp::from_millisecond(milliseconds).map_or_else(|_| String::new(), |time| time.to_string())
}

fn print_table<const COLUMNS: usize>(table: &TextTable<COLUMNS>, format: UsageFormat) -> Result<(), Failure> {
    if format == UsageFormat::Csv { print_exact(&table.csv()) } else { print(&table.text()) }
}

fn table(by: UsageGrouping, rows: &[UsageRow]) -> TextTable<11> {
    let name = match by {
        UsageGrouping::Session => "SESSION",
        UsageGrouping::Account => "ACCOUNT",
        UsageGrouping::User => "USER",
        UsageGrouping::Agent => "AGENT",
        UsageGrouping::Model => "MODEL",
        UsageGrouping::Day => "DAY",
    };
    let head = [
        name,
        "CALLS",
        "INPUT",
        "OUTPUT",
        "CACHE READ",
        "CACHE WRITE",
        "CACHE WRITE 1H",
        "USD",
        "HELD USD",
        "UNKNOWN",
        "ESTIMATED",
    ];
    let cells = |row: &UsageRow| {
        let usage = &row.usage;
        [
            row.name.clone(),
            row.calls.to_string(),
            usage.input_tokens.to_string(),
            usage.output_tokens.to_string(),
            usage.cache_read_tokens.to_string(),
            usage.cache_write_tokens.to_string(),
            usage.cache_write_1h_tokens.to_string(),
            spent(row),
            usd(row.held_picos),
            row.unknown.to_string(),
            row.estimated.to_string(),
        ]
    };
    TextTable { head, rows: rows.iter().map(cells).collect() }
}

fn as_json(row: &UsageRow) -> serde_json::Value {
    json!({"name": row.name, "calls": row.calls, "usage": row.usage, "spent_picos": row.spent_picos,
        "held_picos": row.held_picos, "unknown": row.unknown, "estimated": row.estimated, "unpriced": row.unpriced})
}

/// Returns the amount charged. The cost of calls without a known price is not zero but not known.
fn spent(row: &UsageRow) -> String {
    match (row.unpriced, row.spent_picos) {
        (0, picos) => usd(picos),
        (_, 0) => "unpriced".to_owned(),
        (_, picos) => format!("{} + unpriced", usd(picos)),
    }
}
