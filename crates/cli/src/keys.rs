//! `viv keys`: create, list and revoke keys of `viv gateway serve`, with account, models, budget and expiry.

use std::collections::HashMap;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use jiff::Timestamp;
use protocol::ProblemCode;
use serde_json::json;
use store::{KeyRecord, KeyStore, NewKey, SystemClock};

use crate::args::parse_lifetime;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::issued_secret::{IssuedSecret, expiry, lifetime_ms, state};
use crate::money::{parse_usd, usd};
use crate::table::{TextTable, print, print_json};

/// Start of every key.
const KEY_PREFIX: &str = "viv_key_";

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Create a key and show it once
    Create(CreateKeyArguments),
    /// List keys
    Ls,
    /// Revoke a key
    Revoke {
        /// Id of the key, as listed by `viv keys ls`
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateKeyArguments {
    /// Account that pays
    #[arg(long)]
    account: String,
    /// Person who uses the key
    #[arg(long)]
    user: Option<String>,
    /// Total budget in dollars (default: no limit)
    #[arg(long, value_name = "USD", value_parser = parse_usd)]
    budget: Option<u64>,
    /// Lifetime, e.g. 1h (default: until revoked)
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    ttl: Option<Duration>,
    /// Pattern of allowed models, with * for any text; repeatable
    #[arg(long, value_name = "GLOB", default_value = "*")]
    models: Vec<String>,
    /// Maximum calls per minute
    #[arg(long, value_name = "N")]
    requests_per_minute: Option<u64>,
}

/// Runs `viv keys …`.
pub(crate) fn carry_out(command: KeysCommand, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let keys = KeyStore::open(&host::data_dir(config)?, Arc::new(SystemClock))?;
    match command {
        KeysCommand::Create(arguments) => create(&keys, arguments, json)?,
        KeysCommand::Ls => list(&keys.list()?, &keys.spent()?, json)?,
        KeysCommand::Revoke { id } => {
            if !keys.revoke(&id)? {
                let what = format!("unknown key `{id}`");
                return Err(Failure::new(ProblemCode::InvalidRequest, what).help("viv keys ls"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn create(keys: &KeyStore, arguments: CreateKeyArguments, json: bool) -> Result<(), Failure> {
    if let Some(pattern) =
        arguments.models.iter().find(|pattern| pattern.is_empty() || pattern.contains(char::is_whitespace))
    {
        return Err(Failure::new(
            ProblemCode::InvalidRequest,
            format!("invalid model pattern `{pattern}`: it must not be empty or contain spaces"),
        )
        .help("viv keys create --account NAME --models 'claude-*'"));
    }
    // Names are written to headers, tables and line-based files.
    let names = [Some(&arguments.account), arguments.user.as_ref()];
    let is_invalid = |name: &&String| name.trim().is_empty() || name.contains(char::is_control);
    if let Some(name) = names.into_iter().flatten().find(is_invalid) {
        return Err(Failure::new(
            ProblemCode::InvalidRequest,
            format!("invalid name `{}`: it must not be empty or contain control characters", name.escape_debug()),
        )
        .help("viv keys create --account NAME"));
    }
    let secret = IssuedSecret::issue(KEY_PREFIX, "key");
    keys.create(&NewKey {
        id: secret.id.clone(),
        digest: secret.token.digest(),
        account: arguments.account,
        user: arguments.user,
        models: arguments.models,
        budget_picos: arguments.budget,
        requests_a_minute: arguments.requests_per_minute,
        ttl_ms: lifetime_ms(arguments.ttl),
    })?;
    secret.print("key", json)
}

fn list(keys: &[KeyRecord], spent: &HashMap<String, u64>, json: bool) -> Result<(), Failure> {
    if json {
        let keys: Vec<_> = keys.iter().map(|key| as_json(key, spent_by(key, spent))).collect();
        return print_json(&json!(keys));
    }
    let now = Timestamp::now().as_millisecond();
    let cells = |key: &KeyRecord| {
        [
            key.id.clone(),
            key.account.clone(),
            key.user.clone().unwrap_or_default(),
            key.models.join(" "),
            key.budget_picos.map_or_else(String::new, usd),
            usd(spent_by(key, spent)),
            expiry(key.expires_ms),
            state(key.revoked_ms, key.is_valid(now)).to_owned(),
        ]
    };
    let head = ["ID", "ACCOUNT", "USER", "MODELS", "BUDGET USD", "SPENT USD", "EXPIRES", "STATE"];
    print(&TextTable { head, rows: keys.iter().map(cells).collect() }.text())
}

fn spent_by(key: &KeyRecord, spent: &HashMap<String, u64>) -> u64 {
    spent.get(&key.id).copied().unwrap_or_default()
}

fn as_json(key: &KeyRecord, spent_picos: u64) -> serde_json::Value {
    json!({"id": key.id, "account": key.account, "user": key.user, "models": key.models,
        "budget_picos": key.budget_picos, "spent_picos": spent_picos, "requests_a_minute": key.requests_a_minute, "created_ms": key.created_ms,
        "expires_ms": key.expires_ms, "revoked_ms": key.revoked_ms,
        "state": state(key.revoked_ms, key.is_valid(Timestamp::now().as_millisecond()))})
}
