//! Many sessions whose agents speak at a steady rate: the server must keep up with all of them.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tokio::task::JoinSet;

use crate::events::{Events, Frame};
use crate::http::Connection;

/// `sessions` agents speak `hertz` times a second for some seconds; how late the last event of each was seen.
pub(crate) async fn run(address: &str, sessions: u64, hertz: u64, seconds: u64) -> Result<Value, String> {
    let mut connection = Connection::open(address).await?;
    let mut all = JoinSet::new();
    for number in 0..sessions {
        connection.post(&format!("/v1/sessions/steady-{number}"), r#"{"agent":"mock"}"#).await?.expect(200)?;
    }
    let count = hertz * seconds;
    for number in 0..sessions {
        let body = json!({"message": format!("/rate {hertz} {count}")}).to_string();
        let path = format!("/v1/sessions/steady-{number}/messages/stream");
        let stream = Events::ask(address, "POST", &path, &body).await?;
        all.spawn_local(read(stream, Instant::now()));
    }
    // The first piece comes at once.
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

/// How many pieces came, and how long it took until the turn was over.
async fn read(mut events: Events, started: Instant) -> Result<(u64, Duration), String> {
    let mut pieces = 0;
    let mut count = |frame: Frame<'_>| {
        pieces += u64::from(frame.kind == b"item.delta");
        Ok(())
    };
    while events.each(&mut count).await? {}
    Ok((pieces, started.elapsed()))
}
