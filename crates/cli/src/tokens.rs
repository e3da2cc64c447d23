//! `viv tokens`: create, list and revoke access tokens of `viv serve`, with scopes and expiry.
//!
//! Tokens are not valid at the gateway, and gateway keys are not valid at the API.

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;

use clap::{Args, Subcommand, ValueEnum};
use jiff::Timestamp;
use protocol::ProblemCode;
use serde_json::json;
use server::TokenScope;
use store::{NewToken, SystemClock, TokenRecord, TokenStore};

use crate::args::parse_lifetime;
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::issued_secret::{IssuedSecret, expiry, lifetime_ms, state};
use crate::table::{TextTable, print, print_json};

/// Start of every token.
const TOKEN_PREFIX: &str = "viv_api_";

#[derive(Debug, Subcommand)]
pub(crate) enum TokensCommand {
    /// Create a token and show it once
    Create(CreateTokenArguments),
    /// List tokens
    Ls,
    /// Revoke a token
    Revoke {
        /// Id of the token, as listed by `viv tokens ls`
        id: String,
    },
}

#[derive(Debug, Args)]
pub(crate) struct CreateTokenArguments {
    /// Scope of the token; repeatable
    #[arg(long = "scope", value_enum, required = true)]
    scopes: Vec<ScopeWord>,
    /// Name for listings
    #[arg(long)]
    name: Option<String>,
    /// Lifetime, e.g. 12h (default: until revoked)
    #[arg(long, value_name = "TIME", value_parser = parse_lifetime)]
    ttl: Option<Duration>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum ScopeWord {
    /// Read sessions and their events
    Read,
    /// Create sessions, send messages, change files, interrupt and terminate
    Drive,
    /// Answer permission requests and questions
    Answer,
    /// Use the whole API
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

/// Runs `viv tokens …`.
pub(crate) fn carry_out(command: TokensCommand, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let tokens = open(config)?;
    match command {
        TokensCommand::Create(arguments) => create(&tokens, arguments, json)?,
        TokensCommand::Ls => list(&tokens.list().map_err(|error| unreadable(&error))?, json)?,
        TokensCommand::Revoke { id } => {
            if !tokens.revoke(&id).map_err(|error| unreadable(&error))? {
                let what = format!("unknown token `{id}`");
                return Err(Failure::new(ProblemCode::TokenNotFound, what).help("viv tokens ls"));
            }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Opens the tokens of the data directory.
pub(crate) fn open(config: &Config) -> Result<TokenStore, Failure> {
    TokenStore::open(&host::data_dir(config)?, Arc::new(SystemClock)).map_err(|error| unreadable(&error))
}

fn unreadable(error: &dyn std::error::Error) -> Failure {
    Failure::new(ProblemCode::Internal, "cannot read or write the tokens").because(error)
}

fn create(tokens: &TokenStore, arguments: CreateTokenArguments, json: bool) -> Result<(), Failure> {
    issue(tokens, arguments.scopes, arguments.name, arguments.ttl)?.print("token", json)
}

/// Creates a token.
pub(crate) fn issue(
    tokens: &TokenStore,
    scopes: Vec<ScopeWord>,
    name: Option<String>,
    ttl: Option<Duration>,
) -> Result<IssuedSecret, Failure> {
    let secret = IssuedSecret::issue(TOKEN_PREFIX, "tok");
    let scopes = scopes.into_iter().map(|word| TokenScope::from(word).as_str().to_owned()).collect();
    let (id, digest, ttl_ms) = (secret.id.clone(), secret.token.digest(), lifetime_ms(ttl));
    tokens.create(&NewToken { id, digest, name, scopes, ttl_ms }).map_err(|error| unreadable(&error))?;
    Ok(secret)
}

fn list(tokens: &[TokenRecord], json: bool) -> Result<(), Failure> {
    let now = Timestamp::now().as_millisecond();
    if json {
        let all: Vec<_> = tokens.iter().map(|token| as_json(token, now)).collect();
        return print_json(&json!(all));
    }
    let cells = |token: &TokenRecord| {
        [
            token.id.clone(),
            token.name.clone().unwrap_or_default(),
            token.scopes.join(" "),
            expiry(token.expires_ms),
            state(token.revoked_ms, token.is_valid(now)).to_owned(),
        ]
    };
    let head = ["ID", "NAME", "SCOPES", "EXPIRES", "STATE"];
    print(&TextTable { head, rows: tokens.iter().map(cells).collect() }.text())
}

fn as_json(token: &TokenRecord, now_ms: i64) -> serde_json::Value {
    json!({"id": token.id, "name": token.name, "scopes": token.scopes, "created_ms": token.created_ms,
        "expires_ms": token.expires_ms, "revoked_ms": token.revoked_ms, "state": state(token.revoked_ms, token.is_valid(now_ms))})
}
