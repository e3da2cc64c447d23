//! `viv tokens`: who may use the API of `viv serve`, for what, until when.
//!
//! They open nothing of the gateway; keys of the gateway open nothing here.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use gateway::SessionToken;
use jiff::Timestamp;
use protocol::ProblemCode;
use serde_json::json;
use server::TokenScope;
use store::{NewToken, SystemClock, TokenRecord, TokenStore};
use uuid::Uuid;

use crate::args::parse_lifetime;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::table::{TextTable, print, print_json};

/// What every token starts with, so that a leaked one can be recognised.
const TOKEN_PREFIX: &str = "viv_api_";

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Make a token; it is shown once
    Create(CreateTokenArguments),
    /// Which tokens there are
    Ls,
    /// Make a token open nothing any more
    Revoke {
        /// Its id, as `viv tokens ls` shows it
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateTokenArguments {
    /// What it is good for; may be given more than once
    #[arg(long = "scope", value_enum, required = true)]
    scopes: Vec<ScopeWord>,
    /// What people call it
    #[arg(long)]
    name: Option<String>,
    /// How long it is good for, e.g. 12h; until it is revoked when not given
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    ttl: Option<Duration>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum ScopeWord {
    /// Look at sessions and their events
    Read,
    /// Make sessions, send messages, change files, interrupt, terminate
    Drive,
    /// Answer permissions and questions
    Answer,
    /// Everything
    Admin,
}

impl From<ScopeWord> for TokenScope {
    fn from(word: ScopeWord) -> Self {
        match word {
            ScopeWord::Read => Self::Read,
            ScopeWord::Drive => Self::Drive,
            ScopeWord::Answer => Self::Answer,
            ScopeWord::Admin => Self::Admin,
        }
    }
}

/// Carries out `viv tokens …`.
pub(crate) fn carry_out(command: TokensCommand, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let tokens = open(config)?;
    match command {
        TokensCommand::Create(arguments) => create(&tokens, arguments, json)?,
        TokensCommand::Ls => list(&tokens.list().map_err(|error| unreadable(&error))?, json)?,
        TokensCommand::Revoke { id } => {
            if !tokens.revoke(&id).map_err(|error| unreadable(&error))? {
                let what = format!("there is no token `{id}`");
                return Err(Failure::new(ProblemCode::TokenNotFound, what).help("viv tokens ls"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// The tokens of the data directory.
pub(crate) fn open(config: &Config) -> Result<TokenStore, Failure> {
    TokenStore::open(&host::data_dir(config)?, Arc::new(SystemClock)).map_err(|error| unreadable(&error))
}

fn unreadable(error: &dyn std::error::Error) -> Failure {
    Failure::new(ProblemCode::Internal, "the tokens cannot be kept or read").because(error)
}

fn create(tokens: &TokenStore, arguments: CreateTokenArguments, json: bool) -> Result<(), Failure> {
    let (token, text) = SessionToken::issue_as(TOKEN_PREFIX);
    let id = format!("tok_{}", &Uuid::new_v4().simple().to_string()[..12]);
    let scopes = arguments.scopes.into_iter().map(|word| TokenScope::from(word).as_str().to_owned()).collect();
    let ttl_ms = arguments.ttl.map(|ttl| i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX));
    let new = NewToken { id: id.clone(), digest: token.digest(), name: arguments.name, scopes, ttl_ms };
    tokens.create(&new).map_err(|error| unreadable(&error))?;
    if json {
        return print_json(&json!({"id": id, "token": text}));
    }
    anstream::eprintln!("{id} · this is the only time the token is shown");
    print(&format!("{text}\n"))
}

fn list(tokens: &[TokenRecord], json: bool) -> Result<(), Failure> {
    let now = Timestamp::now().as_millisecond();
    if json {
        let all: Vec<_> = tokens.iter().map(|token| as_json(token, now)).collect();
        return print_json(&json!(all));
    }
    let cells = |token: &TokenRecord| {
        let expires = token.expires_ms.and_then(|ms| Timestamp::from_millisecond(ms).ok());
        [
            token.id.clone(),
            token.name.clone().unwrap_or_default(),
            token.scopes.join(" "),
            expires.map_or_else(String::new, |time| time.to_string()),
            state(token, now).to_owned(),
        ]
    };
    let head = ["ID", "NAME", "SCOPES", "EXPIRES", "STATE"];
    print(&TextTable { head, rows: tokens.iter().map(cells).collect() }.text())
}

fn state(token: &TokenRecord, now_ms: i64) -> &'static str {
    match token.revoked_ms {
        Some(_) => "revoked",
        None if token.is_good(now_ms) => "good",
        None => "expired",
    }
}

fn as_json(token: &TokenRecord, now_ms: i64) -> serde_json::Value {
    json!({"id": token.id, "name": token.name, "scopes": token.scopes, "created_ms": token.created_ms,
        "expires_ms": token.expires_ms, "revoked_ms": token.revoked_ms, "state": state(token, now_ms)})
}
