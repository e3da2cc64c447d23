//! kill -9 at any moment, with traffic: what a client was told is there afterwards, and nothing is doubled.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::{Event, EventBody, PermissionStatus};
use serde_json::Value;
use store::DataDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;
use tokio::sync::Semaphore;

use crate::child::{check_record, post, socket, start};
use crate::client::{Frame, frames};
use crate::stage::open;

pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
    let test = whatever_was_told_survives_two_hundred_kills;
    vec![crate::trial_within(Duration::from_secs(600), "whatever_was_told_survives_two_hundred_kills", test)]
}

const ROUNDS: u64 = 200;

/// Waiting for more steps than this means that there is no traffic.
const PATIENCE: Duration = Duration::from_secs(60);

/// What clients were told, over all rounds.
#[derive(Default)]
struct Told {
    events: BTreeMap<String, Vec<Frame>>,
    answers: Vec<(String, String)>,
}

async fn whatever_was_told_survives_two_hundred_kills() {
    let directory = tempfile::tempdir().unwrap();
    let told = Arc::new(Mutex::new(Told::default()));
    for round in 0..ROUNDS {
        let mut server = start(directory.path()).await;
        let witness =
            Witness { socket: socket(directory.path()), told: told.clone(), steps: Arc::new(Semaphore::new(0)) };
        let clients = [
            tokio::spawn(witness.clone().talk(format!("talk{}", round / 10))),
            tokio::spawn(witness.clone().talk(format!("fresh{round}"))),
            tokio::spawn(witness.clone().ask(format!("ask{}", round / 10))),
        ];
        // After so many steps of the clients, however fast the machine is, and at any point between two of them.
        let steps = u32::try_from(round * 7919 % 60).unwrap();
        let Ok(permits) = tokio::time::timeout(PATIENCE, witness.steps.acquire_many(steps)).await else {
            let left = witness.steps.available_permits();
            let asked = witness.look(&format!("ask{}", round / 10)).await;
            panic!("round {round}: {left} of {steps} steps, and then no traffic; who asks: {asked:#?}");
        };
        permits.unwrap().forget();
        tokio::time::sleep(Duration::from_micros(round * 104_729 % 3000)).await;
        server.kill();
        drop(witness);
        for client in clients {
            // A call that broke off is what this is about.
            let _ = client.await.unwrap();
        }
    }
    let sessions = open(directory.path());
    sessions.recover().await.unwrap();
    let told = Arc::into_inner(told).unwrap().into_inner().unwrap();
    let data = DataDir::open(directory.path().join("data")).unwrap();
    let mut records = HashMap::new();
    for info in sessions.list(None, usize::MAX).unwrap().sessions {
        let events = sessions.journal(&info.session_id).unwrap().after(0, usize::MAX).unwrap();
        store::verify_journal(&data.journal(&info.session_id)).unwrap();
        check_record(&info.session_id, &events);
        records.insert(info.session_id.to_string(), events);
    }
    check_told(&told, &records);
}

/// Everything that was told is on record, as it was told.
#[track_caller]
fn check_told(told: &Told, records: &HashMap<String, Vec<Event>>) {
    assert!(told.events.values().map(Vec::len).sum::<usize>() > 1000, "there was no traffic");
    for (session, frames) in &told.events {
        for frame in frames {
            let number = usize::try_from(frame.id.unwrap()).unwrap();
            let kept = records[session].get(number - 1).unwrap_or_else(|| panic!("{session}: {number} is gone"));
            let mut kept = serde_json::to_value(kept).unwrap();
            kept.as_object_mut().unwrap().remove("raw");
            assert_eq!(frame.json(), kept, "{session}: {number} has changed");
        }
    }
    assert!(told.answers.len() > 10, "nothing was answered");
    for (session, permission) in &told.answers {
        let accepted = records[session].iter().filter(|event| match &event.draft.body {
            EventBody::PermissionResolved(resolved) => {
                resolved.permission_id.as_str() == permission && resolved.status == PermissionStatus::Accept
            }
            _ => false,
        });
        assert_eq!(accepted.count(), 1, "{session}: the answer to {permission} is gone");
    }
}

/// A client that remembers what it was told.
#[derive(Clone)]
struct Witness {
    socket: PathBuf,
    told: Arc<Mutex<Told>>,
    steps: Arc<Semaphore>,
}

impl Witness {
    /// Makes a session if it is not there, says something, and reads along.
    async fn talk(self, session: String) -> io::Result<()> {
        let session = self.create(session).await?;
        let reader = tokio::spawn(self.clone().read_along(session.clone()));
        for text in ["/echo one", "/slow 2", "/echo two"] {
            let body = format!(r#"{{"message":"{text}"}}"#);
            self.post(&format!("/v1/sessions/{session}/messages"), &body).await?;
        }
        reader.await.unwrap()
    }

    /// Makes the agent ask, and answers.
    async fn ask(self, session: String) -> io::Result<()> {
        let session = self.create(session).await?;
        let stream = format!("/v1/sessions/{session}/messages/stream");
        // Not queued: after a restart such a message would ask where nobody of us reads along.
        let message = r#"{"message":"/permission","whenBusy":"refuse"}"#;
        loop {
            let frames = frames(&self.post(&stream, message).await?);
            let asked = frames.iter().find(|frame| frame.event == "permission.requested");
            let asked = asked.map(|asked| asked.json()["data"].clone());
            let pending = match asked {
                Some(asked) => vec![asked],
                // Refused, for a turn is running: one that was taken just before the kill, and began after it.
                None => self.pending(&session).await?,
            };
            for asked in pending {
                let permission = asked["permission_id"].as_str().unwrap().to_owned();
                let path = format!("/v1/sessions/{session}/permissions/{permission}/reply");
                if self.post(&path, r#"{"reply":"once"}"#).await?.starts_with("HTTP/1.0 204") {
                    self.told.lock().unwrap().answers.push((session.clone(), permission));
                }
            }
        }
    }

    /// What a session waits for.
    async fn pending(&self, session: &str) -> io::Result<Vec<Value>> {
        let list = self.get(&format!("/v1/sessions/{session}/pending")).await?;
        Ok(list["pending"].as_array().into_iter().flatten().map(|asked| asked["data"].clone()).collect())
    }

    /// How a session stands: for whoever must find out why it does.
    async fn look(&self, session: &str) -> Vec<io::Result<Value>> {
        let path = format!("/v1/sessions/{session}");
        let mut seen = Vec::new();
        for part in ["", "/pending", "/events?limit=1000"] {
            seen.push(self.get(&format!("{path}{part}")).await);
        }
        seen
    }

    async fn get(&self, path: &str) -> io::Result<Value> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nhost: localhost\r\n\r\n").as_bytes()).await?;
        let mut text = String::new();
        stream.read_to_string(&mut text).await?;
        let body = text.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok(serde_json::from_str(body).unwrap_or_default())
    }

    /// Makes a session if it is not there. One that was killed while it was being made has ended, and another takes
    /// its place; its id.
    async fn create(&self, mut session: String) -> io::Result<String> {
        loop {
            let answer = self.post(&format!("/v1/sessions/{session}"), r#"{"agent":"mock"}"#).await?;
            if answer.starts_with("HTTP/1.0 200") {
                return Ok(session);
            }
            if !answer.starts_with("HTTP/1.0 409") {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            if self.get(&format!("/v1/sessions/{session}")).await?["ended"] != true {
                return Ok(session);
            }
            session.push_str("-again");
        }
    }

    /// Reads a session's events from the first, and notes them.
    async fn read_along(self, session: String) -> io::Result<()> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        let request = format!("GET /v1/sessions/{session}/events/sse HTTP/1.0\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = Vec::new();
        // Killed, the server's end of the stream goes away; what came before counts.
        while stream.read_buf(&mut text).await.is_ok_and(|count| count > 0) {
            self.steps.add_permits(1);
        }
        let seen = frames(&String::from_utf8_lossy(&text));
        self.told.lock().unwrap().events.entry(session).or_default().extend(seen);
        Ok(())
    }

    async fn post(&self, path: &str, body: &str) -> io::Result<String> {
        let answer = post(&self.socket, path, body).await?;
        if answer.starts_with("HTTP/1.0 20") {
            self.steps.add_permits(1);
        }
        Ok(answer)
    }
}
