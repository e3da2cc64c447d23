//! The clients of a server that will be killed, and what they were told before.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::http::{Answer, Client, Frame};
use crate::place::comes_true;
use crate::processes;
use crate::server::Server;

/// What clients were told before the server died.
#[derive(Default)]
pub(super) struct Told {
    /// Sessions whose making was answered with 200.
    pub(super) made: HashSet<String>,
    /// What was said where a session was not made.
    pub(super) refused: Vec<Answer>,
    /// Every session that somebody used.
    pub(super) used: HashSet<String>,
    /// Messages that were taken: the session, the name the client gave them, and what they say.
    pub(super) taken: Vec<(String, String, String)>,
    /// Messages that were taken out of the queue: the session, and the turn that would have answered.
    pub(super) removed: Vec<(String, String)>,
    /// Answers to permissions that were taken: the session, the permission, the answer.
    pub(super) answered: Vec<(String, String, &'static str)>,
    /// Permissions that nobody answers while the server lives.
    pub(super) left_waiting: Vec<(String, String)>,
    /// How much they were told.
    pub(super) moments: u64,
    /// The events that each reader saw, from the first one on.
    pub(super) seen: Vec<(String, Vec<Frame>)>,
}

impl Told {
    /// Whether they were told so much.
    pub(super) fn is_much(&self, moments: u64, answers: u64) -> bool {
        self.moments >= moments && self.answered.len() as u64 >= answers
    }
}

pub(super) type Notebook = Arc<Mutex<Told>>;

/// What a reader does when the agent asks.
#[derive(Clone, Copy)]
enum Manner {
    /// Answers, as fast as another one who answers differently.
    Answers,
    /// Lets it wait.
    Waits,
}

/// What is asked for in each session of a round.
const PLAYS: [(&str, Manner); 4] = [
    ("/flood 80", Manner::Answers),
    ("/permission", Manner::Answers),
    ("/permission", Manner::Waits),
    ("/demo", Manner::Answers),
];

/// Of so many messages one is taken back.
const REMOVED: u32 = 4;

fn id_of(round: u64, number: usize) -> String {
    format!("r{round}-{number}")
}

/// Several clients at once: some make sessions and talk, two follow each, one goes on with `old` sessions.
pub(super) fn drive(client: &Client, round: u64, old: &[String], notebook: &Notebook) -> Vec<JoinHandle<()>> {
    let mut clients = Vec::new();
    for (number, (prompt, manner)) in PLAYS.into_iter().enumerate() {
        let (client, notebook, id) = (client.clone(), notebook.clone(), id_of(round, number));
        clients.push(std::thread::spawn(move || live(&client, &id, prompt, manner, &notebook)));
    }
    // Sessions of the round before go on, then end: so is their number bounded.
    let (client, notebook, old) = (client.clone(), notebook.clone(), old.to_vec());
    clients.push(std::thread::spawn(move || {
        for id in old {
            let _ = client.try_send(&id, "/echo again");
            let _ = client.try_post(&format!("/v1/sessions/{id}/terminate"), "");
            notebook.lock().unwrap().used.insert(id);
        }
    }));
    clients
}

fn live(client: &Client, id: &str, prompt: &str, manner: Manner, notebook: &Notebook) {
    let Some(answer) = client.try_create(id) else { return };
    {
        let mut told = notebook.lock().unwrap();
        if answer.status != 200 {
            told.refused.push(answer);
            return;
        }
        told.made.insert(id.to_owned());
        told.used.insert(id.to_owned());
    }
    let readers = [Some(manner), None].map(|manner| {
        let (client, notebook, id) = (client.clone(), notebook.clone(), id.to_owned());
        std::thread::spawn(move || follow(&client, &id, manner, &notebook))
    });
    let mut number = 0;
    loop {
        let name = uuid::Uuid::new_v4().to_string();
        let body = serde_json::json!({"message": prompt, "clientMessageId": name}).to_string();
        match client.try_post(&format!("/v1/sessions/{id}/messages"), &body) {
            Some(answer) if answer.status == 204 => {
                notebook.lock().unwrap().taken.push((id.to_owned(), name, prompt.to_owned()));
                number += 1;
                if number % REMOVED == 0 {
                    remove(client, id, &answer.turn.unwrap(), notebook);
                }
            }
            // The queue is full.
            Some(_) => {}
            None => break,
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    for reader in readers {
        reader.join().unwrap();
    }
}

/// Takes a message back that may wait.
fn remove(client: &Client, id: &str, turn: &str, notebook: &Notebook) {
    let removed = client.try_delete(&format!("/v1/sessions/{id}/queue/{turn}"));
    match removed.map(|answer| answer.status) {
        Some(204) => notebook.lock().unwrap().removed.push((id.to_owned(), turn.to_owned())),
        // Its turn has begun, or it never waited, or the server went away.
        Some(404 | 409) | None => {}
        Some(status) => panic!("{id}: {status} for a message that was taken back"),
    }
}

/// Notes every event, and does what its manner says when something is asked; without one it only reads.
fn follow(client: &Client, id: &str, manner: Option<Manner>, notebook: &Notebook) {
    let Some(events) = client.events(id, 0) else { return };
    let mut seen = Vec::new();
    for frame in events {
        let event = frame.json();
        seen.push(frame);
        notebook.lock().unwrap().moments += 1;
        if event["type"] != "permission.requested" {
            continue;
        }
        let permission = event["data"]["permission_id"].as_str().unwrap();
        match manner {
            Some(Manner::Answers) => answer_twice(client, id, permission, notebook),
            Some(Manner::Waits) => {
                notebook.lock().unwrap().left_waiting.push((id.to_owned(), permission.to_owned()));
            }
            None => {}
        }
    }
    notebook.lock().unwrap().seen.push((id.to_owned(), seen));
}

/// Two clients answer at once; at most one of them may hear that it was heard.
fn answer_twice(client: &Client, id: &str, permission: &str, notebook: &Notebook) {
    let answers = ["once", "reject"].map(|reply| {
        let (client, notebook) = (client.clone(), notebook.clone());
        let (id, permission) = (id.to_owned(), permission.to_owned());
        std::thread::spawn(move || {
            if answer(&client, &id, &permission, reply) == Some(204) {
                notebook.lock().unwrap().answered.push((id, permission, reply));
            }
        })
    });
    for answer in answers {
        answer.join().unwrap();
    }
}

/// The status of a message that is sent under a name that was used before.
pub(super) fn send_as(client: &Client, id: &str, name: &str, text: &str) -> Option<u16> {
    let body = serde_json::json!({"message": text, "clientMessageId": name}).to_string();
    client.try_post(&format!("/v1/sessions/{id}/messages"), &body).map(|answer| answer.status)
}

/// The status of an answer to a permission; none when the server went away.
pub(super) fn answer(client: &Client, id: &str, permission: &str, reply: &str) -> Option<u16> {
    let path = format!("/v1/sessions/{id}/permissions/{permission}/reply");
    let body = serde_json::json!({"reply": reply}).to_string();
    client.try_post(&path, &body).map(|answer| answer.status)
}

/// Waits until clients were told so much, for as long as they are told anything at all.
pub(super) fn wait_for(server: &Server, round: u64, wanted: (u64, u64), notebook: &Notebook) {
    loop {
        let before = notebook.lock().unwrap().moments;
        let is_much = || notebook.lock().unwrap().is_much(wanted.0, wanted.1);
        if !comes_true(|| is_much() || notebook.lock().unwrap().moments > before) {
            stalled(server, round, wanted, notebook);
        }
        if is_much() {
            return;
        }
    }
}

/// Says how everything stands when nothing moves any more.
fn stalled(server: &Server, round: u64, wanted: (u64, u64), notebook: &Notebook) -> ! {
    let (client, threads) = (server.client(), processes::threads(&processes::family(server.pid())));
    let pending = client.get("/v1/pending").body;
    let told = notebook.lock().unwrap();
    let (moments, answers, refused) = (told.moments, told.answered.len(), &told.refused);
    let sessions = (0..PLAYS.len()).map(|number| format!("/v1/sessions/{}", id_of(round, number)));
    let last = sessions.map(|path| client.get(&format!("{path}/events?offset=0&limit=1000")).body);
    let last: Vec<String> =
        last.map(|events| events.chars().rev().take(1_500).collect::<Vec<_>>().iter().rev().collect()).collect();
    panic!(
        "round {round}: {moments} moments and {answers} answers of {wanted:?}; refused: {refused:#?}; \
         pending: {pending}; {last:#?}; {threads:#?}"
    );
}
