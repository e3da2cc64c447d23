//! Many sessions whose agents send events at a fixed rate. The server must keep up.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::events::{Events, Frame};
use crate::http::Connection;

/// Runs `sessions` agents that send `hertz` events a second; returns the delay of the last event of each.
pub(crate) async fn run(address: &str, sessions: u64, hertz: u64, seconds: u64) -> Result<Value, String> {
    let mut connection = Connection::open(address).await?;
    let mut all = JoinSet::new();
    for number in 0..sessions {
        connection.post(&format!("/v1/sessions/steady-{number}"), r#"{"agent":"mock"}"#).await?.expect(200)?;
    }
    let count = hertz * seconds;
    for number in 0..sessions {
        let body = json!({"message": format!("/rate {hertz} {count}")}).to_string();
        let path = format!("/v1/sessions/steady-{number}/messages/stream?events=all");
        let stream = Events::ask(address, "POST", &path, &body).await?;
        all.spawn_local(read(stream, Instant::now()));
    }
    // The first event comes without delay.
    let due = Duration::from_micros((count - 1) * 1_000_000 / hertz);
    let (mut late_millis, mut events) = (Vec::new(), 0);
    while let Some(joined) = all.join_next().await {
        let (seen, took) = joined.map_err(|error| error.to_string())??;
        if seen < count {
            return Err(format!("a reader saw {seen} of {count} pieces"));
        }
        events += seen;
        late_millis.push(u64::try_from(took.saturating_sub(due).as_millis()).unwrap_or(u64::MAX));
    }
    Ok(json!({"late_millis": late_millis, "events": events}))
}

/// Returns the number of deltas, and the time to the end of the turn.
async fn read(mut events: Events, started: Instant) -> Result<(u64, Duration), String> {
    let mut pieces = 0;
    let mut count = |frame: Frame<'_>| {
        pieces += u64::from(frame.kind == b"item.delta");
        Ok(())
    };
    while events.each(&mut count).await? {}
    Ok((pieces, started.elapsed()))
}
