//! Clients of a server that is killed, and the answers they received before.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::http::{Answer, Client, Frame};
use crate::processes;
use crate::server::Server;

/// Answers that clients received before the kill.
#[derive(Default)]
pub(super) struct ReceivedAnswers {
    /// Sessions whose creation was confirmed.
    pub(super) made: HashSet<String>,
    /// Errors of sessions that were not created.
    pub(super) refused: Vec<Answer>,
    /// All sessions in use.
    pub(super) used: HashSet<String>,
    /// Accepted messages: session, client message id and text.
    pub(super) accepted: Vec<(String, String, String)>,
    /// Messages removed from the queue: session and turn.
    pub(super) removed: Vec<(String, String)>,
    /// Accepted permission answers: session, permission, answer.
    pub(super) answered: Vec<(String, String, &'static str)>,
    /// Permissions that are left unanswered.
    pub(super) unanswered: Vec<(String, String)>,
    /// Number of received answers and events.
    pub(super) moments: u64,
    /// Events that each reader received, from the first on.
    pub(super) seen: Vec<(String, Vec<Frame>)>,
}

impl ReceivedAnswers {
    /// Returns whether the limits are reached.
    pub(super) fn is_enough(&self, moments: u64, answers: u64) -> bool {
        self.moments >= moments && self.answered.len() as u64 >= answers
    }
}

pub(super) type SharedAnswers = Arc<Mutex<ReceivedAnswers>>;

/// Reaction of a reader to a permission request.
#[derive(Clone, Copy)]
enum Manner {
    /// Answers, in a race with a client that answers differently.
    Answers,
    /// Leaves it unanswered.
    Waits,
}

/// Prompts of each session of a round.
const PLAYS: [(&str, Manner); 4] = [
    ("/flood 80", Manner::Answers),
    ("/permission", Manner::Answers),
    ("/permission", Manner::Waits),
    ("/demo", Manner::Answers),
];

/// One of this many messages is removed from the queue.
const REMOVED: u32 = 4;

fn id_of(round: u64, number: usize) -> String {
    format!("r{round}-{number}")
}

/// Starts concurrent clients: some create and use sessions, two follow each session, one continues `old` sessions.
pub(super) fn drive(client: &Client, round: u64, old: &[String], shared: &SharedAnswers) -> Vec<JoinHandle<()>> {
    let mut clients = Vec::new();
    for (number, (prompt, manner)) in PLAYS.into_iter().enumerate() {
        let (client, shared, id) = (client.clone(), shared.clone(), id_of(round, number));
        clients.push(std::thread::spawn(move || live(&client, &id, prompt, manner, &shared)));
    }
    // Sessions of the previous round continue and then end, which limits their number.
    let (client, shared, old) = (client.clone(), shared.clone(), old.to_vec());
    clients.push(std::thread::spawn(move || {
        for id in old {
            let _ = client.try_send(&id, "/echo again");
            let _ = client.try_post(&format!("/v1/sessions/{id}/terminate"), "");
            shared.lock().unwrap().used.insert(id);
        }
    }));
    clients
}

fn live(client: &Client, id: &str, prompt: &str, manner: Manner, shared: &SharedAnswers) {
    let Some(answer) = client.try_create(id) else { return };
    {
        let mut received = shared.lock().unwrap();
        if answer.status != 200 {
            received.refused.push(answer);
            return;
        }
        received.made.insert(id.to_owned());
        received.used.insert(id.to_owned());
    }
    let readers = [Some(manner), None].map(|manner| {
        let (client, shared, id) = (client.clone(), shared.clone(), id.to_owned());
        std::thread::spawn(move || follow(&client, &id, manner, &shared))
    });
    let mut number = 0;
    loop {
        let name = uuid::Uuid::new_v4().to_string();
        let body = serde_json::json!({"message": prompt, "clientMessageId": name}).to_string();
        match client.try_post(&format!("/v1/sessions/{id}/messages"), &body) {
            Some(answer) if answer.status == 204 => {
                shared.lock().unwrap().accepted.push((id.to_owned(), name, prompt.to_owned()));
                number += 1;
                if number % REMOVED == 0 {
                    remove(client, id, &answer.turn.unwrap(), shared);
                }
            }
            // The queue is full.
            Some(_) => {}
            None => break,
        }
        testkit::pause(Duration::from_millis(5));
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

/// Removes a message that may be queued.
fn remove(client: &Client, id: &str, turn: &str, shared: &SharedAnswers) {
    let removed = client.try_delete(&format!("/v1/sessions/{id}/queue/{turn}"));
    match removed.map(|answer| answer.status) {
        Some(204) => shared.lock().unwrap().removed.push((id.to_owned(), turn.to_owned())),
        // Its turn has started, it was never queued, or the server was killed.
        Some(404 | 409) | None => {}
        Some(status) => panic!("{id}: status {status} for the removal of a queued message"),
    }
}

/// Records every event and reacts to permission requests; without a reaction it only reads.
fn follow(client: &Client, id: &str, manner: Option<Manner>, shared: &SharedAnswers) {
    let Some(events) = client.events(id, 0) else { return };
    let mut seen = Vec::new();
    for frame in events {
        let event = frame.json();
        seen.push(frame);
        shared.lock().unwrap().moments += 1;
        if event["type"] != "permission.requested" {
            continue;
        }
        let permission = event["data"]["permission_id"].as_str().unwrap();
        match manner {
            Some(Manner::Answers) => answer_twice(client, id, permission, shared),
            Some(Manner::Waits) => {
                shared.lock().unwrap().unanswered.push((id.to_owned(), permission.to_owned()));
            }
            None => {}
        }
    }
    shared.lock().unwrap().seen.push((id.to_owned(), seen));
}

/// Two clients answer concurrently; at most one answer may be accepted.
fn answer_twice(client: &Client, id: &str, permission: &str, shared: &SharedAnswers) {
    let answers = ["once", "reject"].map(|reply| {
        let (client, shared) = (client.clone(), shared.clone());
        let (id, permission) = (id.to_owned(), permission.to_owned());
        std::thread::spawn(move || {
            if answer(&client, &id, &permission, reply) == Some(204) {
                shared.lock().unwrap().answered.push((id, permission, reply));
            }
        })
    });
    for answer in answers {
        answer.join().unwrap();
    }
}

/// Returns the status of a message with a used client message id.
pub(super) fn send_as(client: &Client, id: &str, name: &str, text: &str) -> Option<u16> {
    let body = serde_json::json!({"message": text, "clientMessageId": name}).to_string();
    client.try_post(&format!("/v1/sessions/{id}/messages"), &body).map(|answer| answer.status)
}

/// Returns the status of a permission answer; `None` if the server was killed.
pub(super) fn answer(client: &Client, id: &str, permission: &str, reply: &str) -> Option<u16> {
    let path = format!("/v1/sessions/{id}/permissions/{permission}/reply");
    let body = serde_json::json!({"reply": reply}).to_string();
    client.try_post(&path, &body).map(|answer| answer.status)
}

/// Waits until the limits are reached, while clients make progress.
pub(super) fn wait_for(server: &Server, round: u64, wanted: (u64, u64), shared: &SharedAnswers) {
    loop {
        let before = shared.lock().unwrap().moments;
        let is_enough = || shared.lock().unwrap().is_enough(wanted.0, wanted.1);
        if !testkit::becomes_true(|| is_enough() || shared.lock().unwrap().moments > before) {
            stalled(server, round, wanted, shared);
        }
        if is_enough() {
            return;
        }
    }
}

/// Prints the state of all clients when there is no progress.
fn stalled(server: &Server, round: u64, wanted: (u64, u64), shared: &SharedAnswers) -> ! {
    let (client, threads) = (server.client(), processes::threads(&processes::family(server.pid())));
    let pending = client.get("/v1/pending").body;
    let received = shared.lock().unwrap();
    let (moments, answers, refused) = (received.moments, received.answered.len(), &received.refused);
    let sessions = (0..PLAYS.len()).map(|number| format!("/v1/sessions/{}", id_of(round, number)));
    let last = sessions.map(|path| client.get(&format!("{path}/events?events=all&offset=0&limit=1000")).body);
    let last: Vec<String> =
        last.map(|events| events.chars().rev().take(1_500).collect::<Vec<_>>().iter().rev().collect()).collect();
    panic!(
        "round {round}: {moments} moments and {answers} answers of {wanted:?}; refused: {refused:#?}; \
         pending: {pending}; {last:#?}; {threads:#?}"
    );
}
