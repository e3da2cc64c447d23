//! kill -9 at any moment: nothing that a client was told is lost, and whatever was open is closed by the next start.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::{Event, EventBody, TurnOutcome};

use crate::http::{Client, Frame};
use crate::journal;
use crate::place::Place;
use crate::server::Server;

const ROUNDS: u64 = 200;
/// A server is killed within this time after it listens.
const LONGEST_LIFE_MICROS: u64 = 160_000;

/// What clients were told before the server died.
#[derive(Default)]
struct Told {
    /// Sessions whose making was answered with 200.
    made: HashSet<String>,
    /// Messages that were taken: the session, and the name the client gave them.
    taken: Vec<(String, String)>,
    /// Answers to permissions that were taken.
    answered: Vec<(String, String)>,
    /// Events, by session.
    frames: BTreeMap<String, Vec<Frame>>,
}

type Notebook = Arc<Mutex<Told>>;

#[test]
fn two_hundred_kills_lose_nothing_that_a_client_was_told() {
    let place = Place::new();
    let mut dice = Dice::new();
    println!("seed {}", dice.0);
    let mut before = Told::default();
    let mut interrupted = 0;
    for round in 0..ROUNDS {
        // Sometimes the server dies while it puts in order what the one before left.
        if dice.below(8) == 0 {
            let server = Server::launch(&place);
            std::thread::sleep(Duration::from_micros(dice.below(60_000)));
            server.kill(&place.data());
        }
        let server = Server::start(&place);
        interrupted += check(&place, &before);
        if round % 10 == 0 {
            goes_on(&server.client(), &before);
        }
        let before_sessions: Vec<String> = before.frames.keys().cloned().collect();
        let notebook = Notebook::default();
        let clients = drive(&server.client(), round, &before_sessions, &notebook);
        std::thread::sleep(Duration::from_micros(dice.below(LONGEST_LIFE_MICROS)));
        server.kill(&place.data());
        for client in clients {
            client.join().unwrap();
        }
        before = std::mem::take(&mut *notebook.lock().unwrap());
    }
    let server = Server::start(&place);
    interrupted += check(&place, &before);
    goes_on(&server.client(), &before);
    server.stop();
    assert!(interrupted > 20, "only {interrupted} turns were open when the server died: the test proves little");
}

/// Several clients at once: one makes sessions, one follows each, some talk and answer.
fn drive(client: &Client, round: u64, old: &[String], notebook: &Notebook) -> Vec<std::thread::JoinHandle<()>> {
    let mut clients = Vec::new();
    for (number, prompt) in ["/flood 80", "/permission", "/demo"].into_iter().enumerate() {
        let (client, notebook, id) = (client.clone(), notebook.clone(), format!("r{round}-{number}"));
        clients.push(std::thread::spawn(move || live(&client, &id, prompt, &notebook)));
    }
    // Sessions of the round before go on, then end: so is their number bounded.
    let (client, notebook, old) = (client.clone(), notebook.clone(), old.to_vec());
    clients.push(std::thread::spawn(move || {
        for id in old {
            let _ = client.try_send(&id, "/echo again");
            let _ = client.try_post(&format!("/v1/sessions/{id}/terminate"), "");
            notebook.lock().unwrap().frames.entry(id).or_default();
        }
    }));
    clients
}

fn live(client: &Client, id: &str, prompt: &str, notebook: &Notebook) {
    if client.try_create(id).is_none_or(|answer| answer.status != 200) {
        return;
    }
    notebook.lock().unwrap().made.insert(id.to_owned());
    notebook.lock().unwrap().frames.entry(id.to_owned()).or_default();
    let follower = {
        let (client, notebook, id) = (client.clone(), notebook.clone(), id.to_owned());
        std::thread::spawn(move || follow(&client, &id, &notebook))
    };
    loop {
        let name = uuid::Uuid::new_v4().to_string();
        let body = serde_json::json!({"message": prompt, "clientMessageId": name}).to_string();
        match client.try_post(&format!("/v1/sessions/{id}/messages"), &body) {
            Some(answer) if answer.status == 204 => {
                notebook.lock().unwrap().taken.push((id.to_owned(), name));
            }
            // The queue is full.
            Some(_) => {}
            None => break,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    follower.join().unwrap();
}

/// Notes every event, and answers what is asked.
fn follow(client: &Client, id: &str, notebook: &Notebook) {
    let Some(events) = client.events(id, 0) else { return };
    for frame in events {
        let event = frame.json();
        notebook.lock().unwrap().frames.entry(id.to_owned()).or_default().push(frame);
        if event["type"] == "permission.requested" {
            let permission = event["data"]["permission_id"].as_str().unwrap();
            let path = format!("/v1/sessions/{id}/permissions/{permission}/reply");
            if client.try_post(&path, r#"{"reply":"once"}"#).is_some_and(|answer| answer.status == 204) {
                notebook.lock().unwrap().answered.push((id.to_owned(), permission.to_owned()));
            }
        }
    }
}

/// Checks every journal against what clients were told of it; how many turns had been open.
fn check(place: &Place, told: &Told) -> u64 {
    let mut interrupted = 0;
    for (id, frames) in &told.frames {
        let events = journal::read(&place.data(), id);
        for frame in frames {
            let event = usize::try_from(frame.id).ok().and_then(|number| events.get(number - 1));
            assert_eq!(event.map(journal::sent).as_deref(), Some(frame.data.as_str()), "{id} lost what it had sent");
        }
        interrupted += check_closed(id, &events);
        let text = std::fs::read_to_string(journal::path(&place.data(), id)).unwrap();
        for (_, name) in told.taken.iter().filter(|(session, _)| session == id) {
            assert!(text.contains(name.as_str()), "{id} lost a message it had taken");
        }
        for (_, permission) in told.answered.iter().filter(|(session, _)| session == id) {
            assert!(events.iter().any(|event| allows(event, permission)), "{id} lost an answer it had taken");
        }
    }
    interrupted
}

fn allows(event: &Event, permission: &str) -> bool {
    let EventBody::PermissionResolved(resolved) = &event.draft.body else { return false };
    resolved.permission_id.as_str() == permission && resolved.status == protocol::PermissionStatus::Accept
}

/// Nothing is left open: turns have ended, what was asked is resolved, items are complete.
fn check_closed(id: &str, events: &[Event]) -> u64 {
    let (mut turn, mut last_ended, mut interrupted) = (None, None, 0);
    let (mut permissions, mut items) = (HashSet::new(), HashSet::new());
    for event in events {
        match &event.draft.body {
            EventBody::TurnStarted(started) => {
                assert_eq!(turn, None, "{id}: a turn began in the middle of another");
                turn.clone_from(&started.turn_id);
            }
            EventBody::TurnEnded(ended) => {
                assert_eq!(turn.take(), ended.turn_id, "{id}: another turn ended than the one that ran");
                last_ended = ended.outcome;
            }
            EventBody::SessionRecovered(recovered) => {
                assert!(last_ended == Some(TurnOutcome::Interrupted) || recovered.interrupted.is_empty(), "{id}");
                interrupted += u64::from(!recovered.interrupted.is_empty());
            }
            EventBody::PermissionRequested(asked) => drop(permissions.insert(asked.permission_id.clone())),
            EventBody::PermissionResolved(asked) => drop(permissions.remove(&asked.permission_id)),
            EventBody::ItemStarted(started) => drop(items.insert(started.item.item_id.clone())),
            EventBody::ItemCompleted(completed) => drop(items.remove(&completed.item.item_id)),
            _ => {}
        }
    }
    assert_eq!(turn, None, "{id}: a turn was left open");
    assert!(permissions.is_empty(), "{id}: {permissions:?} were left open");
    assert!(items.is_empty(), "{id}: {items:?} were left open");
    interrupted
}

/// A session that was interrupted takes the next message as if nothing had been.
fn goes_on(client: &Client, told: &Told) {
    for id in &told.made {
        let Some(events) = client.steer(id, "/echo still here") else { panic!("{id} cannot go on") };
        let last = events.last().unwrap();
        assert_eq!(last.json()["type"], "turn.ended", "{id}");
        assert_eq!(last.json()["data"]["outcome"], "completed", "{id}");
    }
}

/// Chance that can be read in the log of a failure.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self(RandomState::new().hash_one("seed") | 1)
    }

    fn next(&mut self) -> u64 {
        // xorshift64: good enough to choose a moment.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
