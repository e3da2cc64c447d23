//! Many clients that create sessions, send messages, read events and end sessions for a given time.
//!
//! Every answer must have the expected status: 200, 204, or 409 for a message to an ended session.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::events::{Events, Frame};
use crate::http::{Answer, Connection};

/// The prompts of a client, in order. The same client answers permission requests.
const PROMPTS: &[&str] = &["/echo hello", "/tool", "/permission", "/flood 40", "hello"];

/// Counts of operations by name.
#[derive(Default)]
struct Tally(BTreeMap<String, u64>);

impl Tally {
    fn add(&mut self, what: impl Into<String>) {
        *self.0.entry(what.into()).or_default() += 1;
    }

    fn merge(&mut self, other: Self) {
        for (what, count) in other.0 {
            *self.0.entry(what).or_default() += count;
        }
    }
}

/// Runs `clients` clients for some seconds.
pub(crate) async fn run(address: &str, clients: u64, seconds: u64) -> Result<Value, String> {
    let deadline = Instant::now() + Duration::from_secs(seconds);
    let mut all = JoinSet::new();
    for number in 0..clients {
        all.spawn_local(client(address.to_owned(), number, deadline));
    }
    let mut tally = Tally::default();
    while let Some(joined) = all.join_next().await {
        tally.merge(joined.map_err(|error| error.to_string())??);
    }
    Ok(json!(tally.0))
}

/// Runs one client, which creates one session after the other.
async fn client(address: String, number: u64, deadline: Instant) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut connection = Connection::open(&address).await?;
    let mut round = 0;
    while Instant::now() < deadline {
        // The process id keeps sessions of an earlier run apart.
        let session = format!("c{}-{number}-{round}", std::process::id());
        let outcome = run_session(&address, &mut connection, &session, round, &mut tally).await;
        outcome.map_err(|error| format!("{session}: {error}"))?;
        round += 1;
    }
    Ok(tally)
}

async fn run_session(
    address: &str,
    connection: &mut Connection,
    session: &str,
    round: usize,
    tally: &mut Tally,
) -> Result<(), String> {
    let base = format!("/v1/sessions/{session}");
    connection.post(&base, r#"{"agent":"mock"}"#).await?.expect(200)?;
    tally.add("sessions");
    // The server must refuse the same id a second time.
    connection.post(&base, r#"{"agent":"mock"}"#).await?.expect(409)?;
    tally.add("due refusals");
    for prompt in [PROMPTS[round % PROMPTS.len()], PROMPTS[(round + 1) % PROMPTS.len()]] {
        run_turn(address, connection, &base, prompt, tally).await?;
    }
    let page = connection.get(&format!("{base}/events?events=all&limit=1000")).await?.json(200)?;
    check_order(&page)?;
    if round.is_multiple_of(3) {
        // The session is ended during a turn.
        let body = json!({"message": "/slow 50"}).to_string();
        connection.post(&format!("{base}/messages"), &body).await?.expect(204)?;
    }
    connection.post(&format!("{base}/terminate"), "").await?.expect(204)?;
    let late = connection.post(&format!("{base}/messages"), r#"{"message":"late"}"#).await?;
    expect_status(&late, &[409, 410])?;
    tally.add("due refusals");
    Ok(())
}

/// Sends a prompt, reads events to the end of the turn, and answers permission requests.
async fn run_turn(
    address: &str,
    connection: &mut Connection,
    base: &str,
    prompt: &str,
    tally: &mut Tally,
) -> Result<(), String> {
    let body = json!({"message": prompt}).to_string();
    let mut events = Events::ask(address, "POST", &format!("{base}/messages/stream?events=all"), &body).await?;
    let mut progress = TurnProgress::default();
    loop {
        let more = events.each(|frame| progress.read(&frame)).await?;
        for permission in std::mem::take(&mut progress.permissions) {
            let path = format!("{base}/permissions/{permission}/reply");
            connection.post(&path, r#"{"reply":"once"}"#).await?.expect(204)?;
            tally.add("permissions");
        }
        if progress.ended {
            tally.add("turns");
            return Ok(());
        }
        if !more {
            // The stream of a message ends at a permission request, while the turn continues.
            let session = base.rsplit('/').next().unwrap_or_default();
            events = Events::follow(address, session, progress.last).await?;
        }
    }
}

/// The events of a turn that a client has read.
#[derive(Default)]
struct TurnProgress {
    last: u64,
    permissions: Vec<String>,
    ended: bool,
}

impl TurnProgress {
    fn read(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        self.last = frame.id;
        self.ended |= frame.kind == b"turn.ended";
        if frame.kind == b"session.ended" {
            return Err("the session ended during a turn".to_owned());
        }
        if frame.kind == b"permission.requested" {
            let event: Value = serde_json::from_slice(frame.data).map_err(|error| error.to_string())?;
            self.permissions.extend(event["data"]["permission_id"].as_str().map(str::to_owned));
        }
        Ok(())
    }
}

/// Fails unless the events of a page are numbered from 1 without gaps.
fn check_order(page: &Value) -> Result<(), String> {
    let numbers = page["events"].as_array().into_iter().flatten().filter_map(|event| event["sequence"].as_u64());
    let numbers: Vec<u64> = numbers.collect();
    let wanted: Vec<u64> = (1..=numbers.len() as u64).collect();
    if numbers.is_empty() || numbers != wanted { Err(format!("the events are {numbers:?}")) } else { Ok(()) }
}

fn expect_status(answer: &Answer, wanted: &[u16]) -> Result<(), String> {
    if wanted.contains(&answer.status) {
        return Ok(());
    }
    Err(format!("unexpected status {}: {}", answer.status, String::from_utf8_lossy(&answer.body)))
}
