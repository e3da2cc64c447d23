//! A crowd of clients that make sessions, talk, read along and end them, for as long as they are told.
//!
//! No answer may be anything but what is due: 200 and 204, and a 409 for who talks to a session that another has ended.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::events::{Events, Frame};
use crate::http::{Answer, Connection};

/// What a client says, one after the other. Answers to what is asked come from the same client.
const PROMPTS: &[&str] = &["/echo hello", "/tool", "/permission", "/flood 40", "hello"];

/// How often each thing happened.
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

/// `clients` clients for some seconds.
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

/// One client: a session after the other.
async fn client(address: String, number: u64, deadline: Instant) -> Result<Tally, String> {
    let mut tally = Tally::default();
    let mut connection = Connection::open(&address).await?;
    let mut round = 0;
    while Instant::now() < deadline {
        // Another crowd may have been here before.
        let session = format!("c{}-{number}-{round}", std::process::id());
        let lived = live(&address, &mut connection, &session, round, &mut tally).await;
        lived.map_err(|error| format!("{session}: {error}"))?;
        round += 1;
    }
    Ok(tally)
}

async fn live(
    address: &str,
    connection: &mut Connection,
    session: &str,
    round: usize,
    tally: &mut Tally,
) -> Result<(), String> {
    let base = format!("/v1/sessions/{session}");
    connection.post(&base, r#"{"agent":"mock"}"#).await?.expect(200)?;
    tally.add("sessions");
    // The same id once more is refused: one of the refusals that are due.
    connection.post(&base, r#"{"agent":"mock"}"#).await?.expect(409)?;
    tally.add("due refusals");
    for prompt in [PROMPTS[round % PROMPTS.len()], PROMPTS[(round + 1) % PROMPTS.len()]] {
        talk(address, connection, &base, prompt, tally).await?;
    }
    let page = connection.get(&format!("{base}/events?limit=1000")).await?.json(200)?;
    check_order(&page)?;
    if round.is_multiple_of(3) {
        // Ended in the midst of a turn.
        let body = json!({"message": "/slow 50"}).to_string();
        connection.post(&format!("{base}/messages"), &body).await?.expect(204)?;
    }
    connection.post(&format!("{base}/terminate"), "").await?.expect(204)?;
    let late = connection.post(&format!("{base}/messages"), r#"{"message":"late"}"#).await?;
    due(&late, &[409, 410])?;
    tally.add("due refusals");
    Ok(())
}

/// Says something and reads along to the end of the turn; what is asked is answered.
async fn talk(
    address: &str,
    connection: &mut Connection,
    base: &str,
    prompt: &str,
    tally: &mut Tally,
) -> Result<(), String> {
    let body = json!({"message": prompt}).to_string();
    let mut events = Events::ask(address, "POST", &format!("{base}/messages/stream"), &body).await?;
    let mut heard = Heard::default();
    loop {
        let more = events.each(|frame| heard.hear(&frame)).await?;
        for permission in std::mem::take(&mut heard.asked) {
            let path = format!("{base}/permissions/{permission}/reply");
            connection.post(&path, r#"{"reply":"once"}"#).await?.expect(204)?;
            tally.add("permissions");
        }
        if heard.ended {
            tally.add("turns");
            return Ok(());
        }
        if !more {
            // The stream of a message ends where somebody must look; the turn goes on.
            let session = base.rsplit('/').next().unwrap_or_default();
            events = Events::follow(address, session, heard.last).await?;
        }
    }
}

/// What a client heard of a turn.
#[derive(Default)]
struct Heard {
    last: u64,
    asked: Vec<String>,
    ended: bool,
}

impl Heard {
    fn hear(&mut self, frame: &Frame<'_>) -> Result<(), String> {
        self.last = frame.id;
        self.ended |= frame.kind == b"turn.ended";
        if frame.kind == b"session.ended" {
            return Err("the session ended in the midst of a turn".to_owned());
        }
        if frame.kind == b"permission.requested" {
            let event: Value = serde_json::from_slice(frame.data).map_err(|error| error.to_string())?;
            self.asked.extend(event["data"]["permission_id"].as_str().map(str::to_owned));
        }
        Ok(())
    }
}

/// Every event of a page is there, once, in its place.
fn check_order(page: &Value) -> Result<(), String> {
    let numbers = page["events"].as_array().into_iter().flatten().filter_map(|event| event["sequence"].as_u64());
    let numbers: Vec<u64> = numbers.collect();
    let wanted: Vec<u64> = (1..=numbers.len() as u64).collect();
    if numbers.is_empty() || numbers != wanted { Err(format!("the events are {numbers:?}")) } else { Ok(()) }
}

fn due(answer: &Answer, wanted: &[u16]) -> Result<(), String> {
    if wanted.contains(&answer.status) {
        return Ok(());
    }
    Err(format!("{} is not due: {}", answer.status, String::from_utf8_lossy(&answer.body)))
}
