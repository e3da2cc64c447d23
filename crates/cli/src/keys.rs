//! `viv keys`: who may use `viv gateway serve`, at whose cost, for which models, until when.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand};
use gateway::SessionToken;
use jiff::Timestamp;
use protocol::ProblemCode;
use serde_json::json;
use store::{KeyRecord, KeyStore, NewKey, SystemClock};
use uuid::Uuid;

use crate::args::parse_lifetime;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::money::{parse_usd, usd};
use crate::table::{TextTable, print, print_json};

/// What every key starts with, so that a leaked one can be recognised.
const KEY_PREFIX: &str = "viv_key_";

#[derive(Debug, Subcommand)]
pub(crate) enum KeysCommand {
    /// Make a key; it is shown once
    Create(CreateKeyArguments),
    /// Which keys there are
    Ls,
    /// Make a key open nothing any more
    Revoke {
        /// Its id, as `viv keys ls` shows it
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateKeyArguments {
    /// The account that pays
    #[arg(long)]
    account: String,
    /// The person
    #[arg(long)]
    user: Option<String>,
    /// What it may spend in all, in dollars; no limit of its own when not given
    #[arg(long, value_name = "USD", value_parser = parse_usd)]
    budget: Option<u64>,
    /// How long it is good for, e.g. 1h; until it is revoked when not given
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    ttl: Option<Duration>,
    /// Models it may name, in which * stands for any text; may be given more than once
    #[arg(long, value_name = "GLOB", default_value = "*")]
    models: Vec<String>,
    /// Calls in a minute
    #[arg(long, value_name = "N")]
    requests_per_minute: Option<u64>,
}

/// Carries out `viv keys …`.
pub(crate) fn carry_out(command: KeysCommand, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let keys = KeyStore::open(&host::data_dir(config)?, Arc::new(SystemClock))?;
    match command {
        KeysCommand::Create(arguments) => create(&keys, arguments, json)?,
        KeysCommand::Ls => list(&keys.list()?, json)?,
        KeysCommand::Revoke { id } => {
            if !keys.revoke(&id)? {
                let what = format!("there is no key `{id}`");
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
        return Err(Failure::new(ProblemCode::InvalidRequest, format!("`{pattern}` is no name of a model")));
    }
    // They stand in headers, tables and files that are read line by line.
    let names = [Some(&arguments.account), arguments.user.as_ref()];
    let is_none = |name: &&String| name.trim().is_empty() || name.contains(char::is_control);
    if let Some(name) = names.into_iter().flatten().find(is_none) {
        return Err(Failure::new(ProblemCode::InvalidRequest, format!("`{}` is no name", name.escape_debug())));
    }
    let (token, text) = SessionToken::issue_as(KEY_PREFIX);
    let id = format!("key_{}", &Uuid::new_v4().simple().to_string()[..12]);
    keys.create(&NewKey {
        id: id.clone(),
        digest: token.digest(),
        account: arguments.account,
        user: arguments.user,
        models: arguments.models,
        budget_picos: arguments.budget,
        requests_a_minute: arguments.requests_per_minute,
        ttl_ms: arguments.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)),
    })?;
    if json {
        return print_json(&json!({"id": id, "key": text}));
    }
    anstream::eprintln!("{id} · this is the only time the key is shown");
    print(&format!("{text}\n"))
}

fn list(keys: &[KeyRecord], json: bool) -> Result<(), Failure> {
    if json {
        let keys: Vec<_> = keys.iter().map(as_json).collect();
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
            key.expires_ms.map_or_else(String::new, time),
            state(key, now).to_owned(),
        ]
    };
    let head = ["ID", "ACCOUNT", "USER", "MODELS", "BUDGET USD", "EXPIRES", "STATE"];
    print(&TextTable { head, rows: keys.iter().map(cells).collect() }.text())
}

fn state(key: &KeyRecord, now_ms: i64) -> &'static str {
    match key.revoked_ms {
        Some(_) => "revoked",
        None if key.is_good(now_ms) => "good",
        None => "expired",
    }
}

fn time(ms: i64) -> String {
    Timestamp::from_millisecond(ms).map_or_else(|_| String::new(), |time| time.to_string())
}

fn as_json(key: &KeyRecord) -> serde_json::Value {
    json!({"id": key.id, "account": key.account, "user": key.user, "models": key.models,
        "budget_picos": key.budget_picos, "requests_a_minute": key.requests_a_minute, "created_ms": key.created_ms,
        "expires_ms": key.expires_ms, "revoked_ms": key.revoked_ms,
        "state": state(key, Timestamp::now().as_millisecond())})
}
