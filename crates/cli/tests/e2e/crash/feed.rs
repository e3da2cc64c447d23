//! A client that follows the event feed through all kills: it reconnects with its cursor and must see every event once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use serde_json::Value;

use crate::http::Client;

/// Events per page.
const PAGE: usize = 1000;

/// State of the follower.
#[derive(Default)]
pub(super) struct Follower {
    /// Cursor: the `id` of the last frame, or `nextOffset` of the last page.
    place: Option<String>,
    /// Last sequence number of each session.
    last: HashMap<String, u64>,
    /// Number of events.
    pub(super) seen: usize,
}

impl Follower {
    fn see(&mut self, event: &Value) {
        let (session, sequence) = (event["session_id"].as_str().unwrap(), event["sequence"].as_u64().unwrap());
        let last = self.last.entry(session.to_owned()).or_default();
        assert_eq!(sequence, *last + 1, "the follower lost or repeated an event of {session}");
        (*last, self.seen) = (sequence, self.seen + 1);
    }

    /// Reads all pages; returns the last sequence number of each session.
    pub(super) fn read_all(&mut self, client: &Client) -> &HashMap<String, u64> {
        loop {
            let offset = self.place.as_ref().map_or(String::new(), |place| format!("&offset={place}"));
            let page = client.get(&format!("/v1/events?limit={PAGE}{offset}")).json();
            for event in page["events"].as_array().unwrap() {
                self.see(event);
            }
            self.place = page["nextOffset"].as_str().map(str::to_owned).or(self.place.take());
            if page["hasMore"] != true {
                return &self.last;
            }
        }
    }
}

/// Follows until the server is gone.
pub(super) fn follow(client: &Client, follower: &Arc<Mutex<Follower>>) -> JoinHandle<()> {
    let (client, follower) = (client.clone(), follower.clone());
    std::thread::spawn(move || {
        let place = follower.lock().unwrap().place.clone();
        for (place, data) in client.everything(place.as_deref()).into_iter().flatten() {
            let mut follower = follower.lock().unwrap();
            follower.see(&serde_json::from_str(&data).unwrap());
            follower.place = Some(place);
        }
    })
}
