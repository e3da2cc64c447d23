//! Many readers of one session: each must see every event, in order.

use std::time::Instant;

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::events::Events;
use crate::http::Connection;

/// Follows a session of `events` events with `readers` readers from before its first message.
pub(crate) async fn run(address: &str, readers: usize, events: u64) -> Result<Value, String> {
    let mut connection = Connection::open(address).await?;
    connection.post("/v1/sessions/watched", r#"{"agent":"mock"}"#).await?.expect(200)?;
    let mut all = JoinSet::new();
    for _ in 0..readers {
        let stream = Events::follow(address, "watched", 0).await?;
        all.spawn_local(read(stream));
    }
    let started = Instant::now();
    let body = json!({"message": format!("/flood {events}")}).to_string();
    connection.post("/v1/sessions/watched/messages", &body).await?.expect(204)?;
    let mut seen = Vec::new();
    while let Some(joined) = all.join_next().await {
        seen.push(joined.map_err(|error| error.to_string())??);
    }
    let whole = seen.iter().filter(|count| **count >= events).count();
    if whole != readers || seen.iter().any(|count| *count != seen[0]) {
        return Err(format!("{whole} of {readers} readers saw {events} events: {seen:?}"));
    }
    Ok(json!({"readers": readers, "events": seen[0], "millis": started.elapsed().as_millis()}))
}

/// Reads to the end of the turn; returns the number of events, and fails for a missing one.
async fn read(mut events: Events) -> Result<u64, String> {
    let (mut last, mut over) = (0, false);
    while !over {
        let more = events.each(|frame| {
            if frame.id != last + 1 {
                return Err(format!("{} after {last}", frame.id));
            }
            last = frame.id;
            over |= frame.kind == b"turn.ended";
            Ok(())
        });
        if !more.await? {
            return Err(format!("the stream ended after {last}"));
        }
    }
    Ok(last)
}
