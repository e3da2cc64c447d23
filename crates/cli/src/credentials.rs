//! `viv credentials`: list the model credentials of this host, and check them. Secrets are never shown.
//!
//! The gateway uses keys outside the sandboxes. No listed credential is ever put into a sandbox.

mod health;

use std::process::ExitCode;

use clap::Args;
use protocol::ProblemCode;
use serde_json::json;

use crate::config::{self, Config, CredentialForm, FoundCredential};
use crate::failure::Failure;
use crate::host;
use crate::output::message;
use crate::table::{TextTable, print, print_json};

use health::CredentialHealth;

#[derive(Debug, Args)]
pub(crate) struct CredentialsArguments {
    /// Check each key with one small call
    #[arg(long)]
    check: bool,
}

/// Runs `viv credentials`. With `--check` it fails if a key is rejected or a vendor cannot be reached.
pub(crate) fn carry_out(arguments: &CredentialsArguments, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let found = config::credentials();
    let checked = if arguments.check { check(config, &found)? } else { found.iter().map(|_| None).collect() };
    let rows: Vec<_> = found.iter().zip(checked).collect();
    if json {
        print_json(&rows.iter().map(|(credential, health)| as_json(credential, health.as_ref())).collect())?;
    } else {
        let head = ["PROVIDER", "SORT", "FROM", "USED BY", "HEALTH"];
        let shown = rows.iter().map(|(credential, health)| row(credential, health.as_ref())).collect();
        if rows.is_empty() {
            message!(
                "no model credentials were found on this host; see docs/gateway.md for the places that are searched"
            );
        } else {
            print(&TextTable { head, rows: shown }.text())?;
        }
    }
    Ok(exit_code(rows.iter().filter_map(|(_, health)| health.as_ref())))
}

fn check(config: &Config, found: &[FoundCredential]) -> Result<Vec<Option<CredentialHealth>>, Failure> {
    host::on_runtime(async {
        let mut checked = Vec::new();
        for credential in found {
            checked.push(health::check(config, credential).await);
        }
        Ok(checked)
    })
}

/// Returns the exit code of the worst result: a rejected key before an unreachable vendor.
fn exit_code<'a>(all: impl Iterator<Item = &'a CredentialHealth>) -> ExitCode {
    let worst = all.filter_map(|health| match health {
        CredentialHealth::Good => None,
        CredentialHealth::Unreachable(_) => Some(ProblemCode::UpstreamError),
        CredentialHealth::Invalid(_) => Some(ProblemCode::TokenInvalid),
    });
    let worst = worst.min_by_key(|code| *code != ProblemCode::TokenInvalid);
    worst.map_or(ExitCode::SUCCESS, |code| ExitCode::from(code.exit()))
}

fn sort(credential: &FoundCredential) -> &'static str {
    match credential.form {
        CredentialForm::Key => "key",
        CredentialForm::Login => "login",
    }
}

/// Returns the user of a credential. The gateway uses no logins: those belong to the agent's own program.
fn user(credential: &FoundCredential) -> &'static str {
    if health::kind(&credential.provider).is_some() && credential.form == CredentialForm::Key {
        "gateway"
    } else {
        "nobody"
    }
}

fn row(credential: &FoundCredential, health: Option<&CredentialHealth>) -> [String; 5] {
    [
        credential.provider.name().to_owned(),
        sort(credential).to_owned(),
        credential.source.clone(),
        user(credential).to_owned(),
        health.map(CredentialHealth::text).unwrap_or_default(),
    ]
}

fn as_json(credential: &FoundCredential, health: Option<&CredentialHealth>) -> serde_json::Value {
    json!({
        "provider": credential.provider.name(),
        "sort": sort(credential),
        "source": credential.source,
        "used_by": user(credential),
        "health": health.map(CredentialHealth::word),
        "detail": health.and_then(CredentialHealth::detail),
    })
}
