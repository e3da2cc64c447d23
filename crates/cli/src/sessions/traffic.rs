//! `viv policy log` and `viv policy suggest`: the network connections in a session's journal.

use std::process::ExitCode;
use std::sync::Arc;

use base::PrintableText;
use protocol::{EgressConnection, EnforcedValue, Event, EventBody, NetworkAccess, PolicyEffective, SessionId};
use serde_json::json;
use store::{DataDir, SessionIndex, SystemClock};

use super::watch::{JournalRange, show, walk};
use crate::config::Config;
use crate::failure::Failure;
use crate::host;
use crate::policy::proposal::{PriorAccess, RefusedConnections, text};
use crate::policy::{LogArguments, PolicyContext, load};
use crate::table::{TextTable, print, print_json};
use crate::timeline::Timeline;

const HEAD: [&str; 8] = ["TIME", "VERDICT", "HOST", "REQUEST", "COUNT", "BYTES", "MILLIS", "RULE"];

/// The journal of a session, found by id, name, prefix of an id, or @last.
struct SessionJournal {
    directory: DataDir,
    index: SessionIndex,
    session: SessionId,
}

impl SessionJournal {
    fn open(reference: &str, config: &Config) -> Result<Self, Failure> {
        let directory = host::data_dir(config)?;
        let index = SessionIndex::open(&directory, Arc::new(SystemClock))?;
        let session = index.find(reference)?.info.session_id;
        Ok(Self { directory, index, session })
    }

    async fn walk(&self, follow: bool, each: impl FnMut(&Event) -> Result<bool, Failure>) -> Result<(), Failure> {
        walk(&self.directory, &self.index, &self.session, JournalRange { after: 0, follow }, each).await
    }
}

/// Runs `viv policy log`: prints a table, single lines with `--follow`, or the events as JSON.
pub(crate) async fn log(arguments: &LogArguments, config: &Config, json: bool) -> Result<ExitCode, Failure> {
    let mut timeline = Timeline::default();
    let mut rows = Vec::new();
    let journal = SessionJournal::open(&arguments.session, config)?;
    let each = |event: &Event| -> Result<bool, Failure> {
        let (connection, denied) = match &event.draft.body {
            EventBody::EgressAllowed(connection) => (connection, false),
            EventBody::EgressDenied(connection) => (connection, true),
            _ => return Ok(true),
        };
        if arguments.denied && !denied {
            return Ok(true);
        }
        if json {
            return show(event, true, &mut timeline);
        }
        let row = row(event, connection, denied);
        if arguments.follow {
            print(&TextTable { head: HEAD, rows: vec![row] }.tabs())?;
        } else {
            rows.push(row);
        }
        Ok(true)
    };
    journal.walk(arguments.follow, each).await?;
    if !rows.is_empty() {
        print(&TextTable { head: HEAD, rows }.text())?;
    }
    Ok(ExitCode::SUCCESS)
}

fn row(event: &Event, connection: &EgressConnection, denied: bool) -> [String; 8] {
    let EgressConnection { host, port, rule, method, path, bytes, duration_micros, count, error, .. } = connection;
    let request = [method.as_deref(), path.as_deref()].into_iter().flatten().collect::<Vec<_>>().join(" ");
    let number = |value: &Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let verdict = match (denied, error) {
        (true, _) => "denied",
        (false, None) => "allowed",
        (false, Some(_)) => "failed",
    };
    let rule = error.as_ref().map_or_else(|| rule.clone(), |error| format!("{rule}: {error}"));
    let cells = [
        event.time.clone(),
        verdict.to_owned(),
        format!("{host}:{port}"),
        request,
        count.unwrap_or(1).to_string(),
        number(bytes),
        number(&duration_micros.map(|micros| micros / 1000)),
        rule,
    ];
    // The agent chose this text.
    cells.map(|cell| PrintableText::clean_line(&cell).into())
}

/// Runs `viv policy suggest`.
pub(crate) async fn suggest(reference: &str, config: &Config, setting: &PolicyContext) -> Result<ExitCode, Failure> {
    let journal = SessionJournal::open(reference, config)?;
    let mut refused = RefusedConnections::default();
    let mut before = PriorAccess::default();
    let each = |event: &Event| -> Result<bool, Failure> {
        match &event.draft.body {
            EventBody::EgressDenied(connection) => refused.add(connection),
            EventBody::PolicyEffective(policy) => before = prior_access(policy),
            _ => {}
        }
        Ok(true)
    };
    journal.walk(false, each).await?;
    let proposals = refused.proposals(&load::ceiling(setting)?);
    let policy = text(journal.session.as_str(), &before, &proposals);
    if setting.json {
        print_json(&json!({"session_id": journal.session, "policy": policy, "refused": proposals}))?;
    } else {
        print(&policy)?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the network access of a session: allowed hosts, and hosts with intercepted TLS.
fn prior_access(policy: &PolicyEffective) -> PriorAccess {
    match policy.keys.get("net").and_then(|net| net.value.clone()) {
        Some(EnforcedValue::Network(NetworkAccess { allowlist, intercept, .. })) => {
            PriorAccess { allowed: allowlist.into_iter().collect(), intercepted: intercept.into_iter().collect() }
        }
        _ => PriorAccess::default(),
    }
}
