//! A session index with many sessions, and filtered lists of it.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use protocol::SessionId;
use serde_json::{Value, json};
use store::{DataDir, NewSession, ProcessOwner, SessionIndex, SessionOutcome, SessionPatch, SystemClock};

use crate::http::Connection;

/// Pages of filters that match nearly everything, something and nothing.
const QUERIES: [&str; 9] = [
    "status=ended",
    "status=running,waiting",
    "status=asleep,ended&agent=claude",
    "user=user-7",
    "label=team=team-3",
    "label=rare=yes&agent=mock",
    "q=parser",
    "q=nothing-has-this",
    "since=2026-01-01T00:00:00Z&account=account-2",
];

/// Creates `count` sessions that have ended in the data directory `directory`.
pub(crate) fn run(directory: &Path, count: u64) -> Result<Value, String> {
    let problem = |error: &dyn std::fmt::Display| format!("cannot fill the index: {error}");
    let directory = DataDir::open(directory).map_err(|error| problem(&error))?;
    let owner = ProcessOwner::claim(&directory).map_err(|error| problem(&error))?;
    let index = SessionIndex::open(&directory, Arc::new(SystemClock)).map_err(|error| problem(&error))?;
    for number in 0..count {
        let id = SessionId::new(format!("filled-{number}")).map_err(|error| problem(&error))?;
        let mut labels = vec![("team".to_owned(), format!("team-{}", number % 10))];
        if number % 10_000 == 0 {
            labels.push(("rare".to_owned(), "yes".to_owned()));
        }
        let new = NewSession {
            title: Some(format!("Task {number}: {}", if number % 50 == 0 { "fix the parser" } else { "write tests" })),
            user: Some(format!("user-{}", number % 100)),
            account: Some(format!("account-{}", number % 5)),
            labels: labels.into_iter().collect(),
            ..NewSession::new(id.clone(), if number % 2 == 0 { "claude" } else { "mock" }, owner.id().clone())
        };
        index.create(&new).map_err(|error| problem(&error))?;
        let over = SessionPatch { outcome: Some(SessionOutcome::Completed), ..SessionPatch::default() };
        index.update_unsynced(&id, &over).map_err(|error| problem(&error))?;
    }
    Ok(json!({"sessions": count}))
}

/// Asks for a page of each filter `rounds` times; returns the times of the slowest filter.
pub(crate) async fn filter(address: &str, rounds: u64) -> Result<Value, String> {
    let mut connection = Connection::open(address).await?;
    let mut slowest: (u128, &str, Vec<u64>) = (0, "", Vec::new());
    for query in QUERIES {
        let mut micros = Vec::new();
        for _ in 0..rounds {
            let started = Instant::now();
            let page = connection.get(&format!("/v1/sessions?limit=100&{query}")).await?;
            micros.push(u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX));
            page.expect(200)?;
        }
        micros.sort_unstable();
        let median = u128::from(micros[micros.len() / 2]);
        eprintln!("{query}: {median} µs");
        if median >= slowest.0 {
            slowest = (median, query, micros);
        }
    }
    Ok(json!({"micros": slowest.2, "query": slowest.1}))
}
