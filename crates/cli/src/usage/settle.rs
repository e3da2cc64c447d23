//! `viv usage settle`: settle a call with an unknown or estimated cost by hand. The record names the person and the reason.

use std::process::ExitCode;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use protocol::{CallId, ProblemCode};
use serde_json::json;
use store::{Ledger, Resolution, ResolvedCall, SqliteLedger};

use crate::config::Config;
use crate::failure::Failure;
use crate::money::{parse_usd, usd};
use crate::table::{TextTable, print, print_json};

#[derive(Debug, Subcommand)]
pub(crate) enum SettleCommand {
    /// Settle a call with an unknown or estimated cost: state its cost, or mark it as free
    Settle(SettleArguments),
    /// List calls that were settled by hand: by whom, when and why
    Settled,
}

#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("cost").required(true))]
pub(crate) struct SettleArguments {
    /// Call, as listed by `viv usage --unknown` or `viv usage --estimated`
    call: String,
    /// Cost in dollars
    #[arg(long, value_name = "USD", value_parser = parse_usd, group = "cost")]
    usd: Option<u64>,
    /// Settle the call as free
    #[arg(long, group = "cost")]
    free: bool,
    /// Source of the cost, such as an invoice or the vendor's console
    #[arg(long, value_name = "WORDS")]
    reason: String,
}

/// Runs `viv usage settle` and `viv usage settled`.
pub(super) fn carry_out(
    command: &SettleCommand,
    ledger: &SqliteLedger,
    config: &Config,
    json: bool,
) -> Result<ExitCode, Failure> {
    match command {
        SettleCommand::Settle(arguments) => settle(arguments, ledger, config)?,
        SettleCommand::Settled => list(&ledger.resolved()?, json)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn settle(arguments: &SettleArguments, ledger: &SqliteLedger, config: &Config) -> Result<(), Failure> {
    let call = CallId::new(arguments.call.clone())
        .map_err(|error| Failure::from_error(ProblemCode::InvalidRequest, &error).help("viv usage --unknown"))?;
    // The configured user, or else the system's user id.
    let by = config.file.user.clone().unwrap_or_else(|| format!("uid {}", rustix::process::getuid().as_raw()));
    let resolution = Resolution { picos: arguments.usd, by, reason: arguments.reason.clone() };
    ledger.resolve(call, resolution).wait().map_err(|error| Failure::from(error).help("viv usage --unknown"))
}

fn list(calls: &[ResolvedCall], json: bool) -> Result<(), Failure> {
    let time = |call: &ResolvedCall| {
        Timestamp::from_millisecond(call.resolved_ms).map_or_else(|_| String::new(), |time| time.to_string())
    };
    if json {
        let call = |call: &ResolvedCall| {
            json!({"call": call.call, "session": call.session, "account": call.account, "model": call.model,
                "held_picos": call.held_picos, "spent_picos": call.spent_picos, "time": time(call), "by": call.by,
                "reason": call.reason})
        };
        return print_json(&json!(calls.iter().map(call).collect::<Vec<_>>()));
    }
    let row = |call: &ResolvedCall| {
        [
            call.call.to_string(),
            call.session.to_string(),
            call.account.clone(),
            usd(call.held_picos),
            usd(call.spent_picos),
            time(call),
            call.by.clone(),
            call.reason.clone(),
        ]
    };
    let head = ["CALL", "SESSION", "ACCOUNT", "HELD USD", "USD", "TIME", "BY", "REASON"];
    print(&TextTable { head, rows: calls.iter().map(row).collect() }.text())
}
