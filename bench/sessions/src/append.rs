//! The cost of an append to a short and to a long journal.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use protocol::{EventBody, EventDraft, ItemDelta, ItemId, SessionId};
use serde_json::{Value, json};
use store::{FileJournal, Journal, SystemClock};

/// Number of records that are timed together.
const WINDOW: u64 = 1_000;

/// Appends `events` records; returns nanoseconds per append for each thousand.
pub(crate) fn run(directory: &Path, events: u64) -> Result<Value, String> {
    let problem = |error: &dyn std::fmt::Display| format!("cannot append: {error}");
    let session = SessionId::new("append").map_err(|error| problem(&error))?;
    let opened = FileJournal::open(directory.join("append.jsonl"), session, Arc::new(SystemClock));
    let journal = opened.map_err(|error| problem(&error))?.journal;
    let item_id = ItemId::new("itm_1").map_err(|error| problem(&error))?;
    let mut nanos = Vec::new();
    for _ in 0..events / WINDOW {
        let started = Instant::now();
        for _ in 0..WINDOW {
            let delta = ItemDelta { item_id: item_id.clone(), native_item_id: None, delta: "a piece".to_owned() };
            journal.append(EventDraft::daemon(EventBody::ItemDelta(delta))).map_err(|error| problem(&error))?;
        }
        nanos.push(u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX) / WINDOW);
    }
    Ok(json!({"nanos": nanos}))
}
