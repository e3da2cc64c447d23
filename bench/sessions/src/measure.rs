//! Times of single calls of one client.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::events::{Events, Frame};
use crate::http::Connection;

/// Creates `count` sessions.
pub(crate) async fn create(address: &str, count: u64) -> Result<Value, String> {
    let mut connection = Connection::open(address).await?;
    let mut micros = Vec::new();
    for number in 0..count {
        let started = Instant::now();
        let made = connection.post(&format!("/v1/sessions/idle-{number}"), r#"{"agent":"mock"}"#).await?;
        micros.push(since(started));
        made.expect(200)?;
    }
    Ok(json!({"micros": micros}))
}

/// Sends `count` messages to one session; returns the times until a reader sees the first event of each.
pub(crate) async fn first_event(address: &str, count: u64) -> Result<Value, String> {
    let mut connection = Connection::open(address).await?;
    connection.post("/v1/sessions/talk", r#"{"agent":"mock"}"#).await?.expect(200)?;
    let mut events = Events::follow(address, "talk", 0).await?;
    // Skip the events at the start of the session, until the agent is ready and no more events arrive.
    while tokio::time::timeout(Duration::from_millis(300), events.each(|_| Ok(()))).await.is_ok() {}
    let mut micros = Vec::new();
    for _ in 0..count {
        let started = Instant::now();
        connection.ask("POST", "/v1/sessions/talk/messages", r#"{"message":"hello"}"#).await?;
        let (mut first, mut over) = (None, false);
        while !over {
            let more = events.each(|frame| {
                first.get_or_insert_with(|| since(started));
                over |= frame.kind == b"turn.ended";
                Ok(())
            });
            if !more.await? {
                return Err("the stream ended before the turn".to_owned());
            }
        }
        micros.extend(first);
        connection.read_answer().await?.expect(204)?;
    }
    Ok(json!({"micros": micros}))
}

/// Reads the list of sessions to its end, `limit` at a time.
pub(crate) async fn list(address: &str, limit: u64) -> Result<Value, String> {
    let mut connection = Connection::open(address).await?;
    let (mut micros, mut sessions, mut cursor) = (Vec::new(), 0, String::new());
    loop {
        let started = Instant::now();
        let page = connection.get(&format!("/v1/sessions?limit={limit}{cursor}")).await?;
        micros.push(since(started));
        let page = page.json(200)?;
        sessions += page["sessions"].as_array().map_or(0, Vec::len);
        match page["nextCursor"].as_str() {
            Some(next) => cursor = format!("&cursor={next}"),
            None => return Ok(json!({"micros": micros, "sessions": sessions})),
        }
    }
}

/// Creates a session with `events` events, then reads `count` pages of ten events from all parts of it.
pub(crate) async fn page(address: &str, events: u64, count: u64) -> Result<Value, String> {
    let mut connection = Connection::open(address).await?;
    connection.post("/v1/sessions/long", r#"{"agent":"mock"}"#).await?.expect(200)?;
    let body = json!({"message": format!("/flood {events}")}).to_string();
    let mut last = 0;
    let started = Instant::now();
    let turn = Events::ask(address, "POST", "/v1/sessions/long/messages/stream?events=all", &body).await?;
    let follow = |frame: Frame<'_>| {
        if frame.id <= last {
            return Err(format!("{} after {last}", frame.id));
        }
        last = frame.id;
        Ok(())
    };
    read_to_end(turn, follow).await?;
    let made = started.elapsed();
    if last < events {
        return Err(format!("the session has {last} events and not {events}"));
    }
    let mut micros = Vec::new();
    for number in 0..count {
        // This stride visits every part of the journal and no page twice.
        let offset = number * 7_919_317 % (last - 10);
        let started = Instant::now();
        let page = connection.get(&format!("/v1/sessions/long/events?offset={offset}&limit=10")).await?;
        micros.push(since(started));
        let page = page.json(200)?;
        let numbers = page["events"].as_array().into_iter().flatten().filter_map(|event| event["sequence"].as_u64());
        if !numbers.eq(offset + 1..=offset + 10) {
            return Err(format!("the page after {offset} is another one"));
        }
    }
    Ok(json!({"micros": micros, "events": last, "made_millis": made.as_millis()}))
}

async fn read_to_end(mut events: Events, mut look: impl FnMut(Frame<'_>) -> Result<(), String>) -> Result<(), String> {
    while events.each(&mut look).await? {}
    Ok(())
}

fn since(started: Instant) -> u64 {
    u64::try_from(started.elapsed().as_micros()).unwrap_or(u64::MAX)
}
