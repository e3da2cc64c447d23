//! kill -9 at any moment under load: acknowledged data survives, and nothing is duplicated.

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
use crate::stage::open;
use testkit::{SseFrame, sse_frames};

pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
    let test = acknowledged_data_survives_two_hundred_kills;
    vec![crate::trial_within(Duration::from_secs(600), "acknowledged_data_survives_two_hundred_kills", test)]
}

const ROUNDS: u64 = 200;

/// A longer wait means that the clients are stuck.
const PATIENCE: Duration = Duration::from_secs(60);

/// The data that clients got, over all rounds.
#[derive(Default)]
struct Acknowledged {
    events: BTreeMap<String, Vec<SseFrame>>,
    answers: Vec<(String, String)>,
}

async fn acknowledged_data_survives_two_hundred_kills() {
    let directory = tempfile::tempdir().unwrap();
    let acknowledged = Arc::new(Mutex::new(Acknowledged::default()));
    for round in 0..ROUNDS {
        let mut server = start(directory.path()).await;
        let witness = Witness {
            socket: socket(directory.path()),
            acknowledged: acknowledged.clone(),
            steps: Arc::new(Semaphore::new(0)),
        };
        let clients = [
            tokio::spawn(witness.clone().talk(format!("talk{}", round / 10))),
            tokio::spawn(witness.clone().talk(format!("fresh{round}"))),
            tokio::spawn(witness.clone().ask(format!("ask{}", round / 10))),
        ];
        // After a number of client steps, so that the speed of the machine does not matter.
        let steps = u32::try_from(round * 7919 % 60).unwrap();
        let Ok(permits) = tokio::time::timeout(PATIENCE, witness.steps.acquire_many(steps)).await else {
            let left = witness.steps.available_permits();
            let asked = witness.look(&format!("ask{}", round / 10)).await;
            panic!("round {round}: {left} of {steps} steps, then no traffic; asking session: {asked:#?}");
        };
        permits.unwrap().forget();
        testkit::pause_async(Duration::from_micros(round * 104_729 % 3000)).await;
        server.kill();
        drop(witness);
        for client in clients {
            // Interrupted calls are expected.
            let _ = client.await.unwrap();
        }
    }
    let sessions = open(directory.path());
    sessions.recover().await.unwrap();
    let acknowledged = Arc::into_inner(acknowledged).unwrap().into_inner().unwrap();
    let data = DataDir::open(directory.path().join("data")).unwrap();
    let mut records = HashMap::new();
    for info in sessions.list(None, usize::MAX).unwrap().sessions {
        let events = sessions.journal(&info.session_id).unwrap().after(0, usize::MAX).unwrap();
        store::verify_journal(&data.journal(&info.session_id)).unwrap();
        check_record(&info.session_id, &events);
        records.insert(info.session_id.to_string(), events);
    }
    check_acknowledged(&acknowledged, &records);
}

/// Checks that everything that clients got is in the journals.
#[track_caller]
fn check_acknowledged(acknowledged: &Acknowledged, records: &HashMap<String, Vec<Event>>) {
    assert!(acknowledged.events.values().map(Vec::len).sum::<usize>() > 1000, "there was no traffic");
    for (session, frames) in &acknowledged.events {
        for frame in frames {
            let number = usize::try_from(frame.sequence().unwrap()).unwrap();
            let kept = records[session].get(number - 1).unwrap_or_else(|| panic!("{session}: {number} is gone"));
            let mut kept = serde_json::to_value(kept).unwrap();
            kept.as_object_mut().unwrap().remove("raw");
            assert_eq!(frame.json(), kept, "{session}: {number} has changed");
        }
    }
    assert!(acknowledged.answers.len() > 10, "nothing was answered");
    for (session, permission) in &acknowledged.answers {
        let accepted = records[session].iter().filter(|event| match &event.draft.body {
            EventBody::PermissionResolved(resolved) => {
                resolved.permission_id.as_str() == permission && resolved.status == PermissionStatus::Accept
            }
            _ => false,
        });
        assert_eq!(accepted.count(), 1, "{session}: the answer to {permission} is gone");
    }
}

/// A client that remembers the data it got.
#[derive(Clone)]
struct Witness {
    socket: PathBuf,
    acknowledged: Arc<Mutex<Acknowledged>>,
    steps: Arc<Semaphore>,
}

impl Witness {
    /// Creates a session if needed, sends a message and reads the events.
    async fn talk(self, session: String) -> io::Result<()> {
        let session = self.create(session).await?;
        let reader = tokio::spawn(self.clone().read_along(session.clone()));
        for text in ["/echo one", "/slow 2", "/echo two"] {
            let body = format!(r#"{{"message":"{text}"}}"#);
            self.post(&format!("/v1/sessions/{session}/messages"), &body).await?;
        }
        reader.await.unwrap()
    }

    /// Makes the agent ask, and answers its request.
    async fn ask(self, session: String) -> io::Result<()> {
        let session = self.create(session).await?;
        let stream = format!("/v1/sessions/{session}/messages/stream");
        // Not queued: after a restart a queued message would ask when no client reads.
        let message = r#"{"message":"/permission","whenBusy":"refuse"}"#;
        loop {
            let frames = sse_frames(&self.post(&stream, message).await?);
            let asked = frames.iter().find(|frame| frame.event == "permission.requested");
            let asked = asked.map(|asked| asked.json()["data"].clone());
            let pending = match asked {
                Some(asked) => vec![asked],
                // Refused because a turn is running that was accepted before the kill and started after it.
                None => self.pending(&session).await?,
            };
            for asked in pending {
                let permission = asked["permission_id"].as_str().unwrap().to_owned();
                let path = format!("/v1/sessions/{session}/permissions/{permission}/reply");
                if self.post(&path, r#"{"reply":"once"}"#).await?.starts_with("HTTP/1.0 204") {
                    self.acknowledged.lock().unwrap().answers.push((session.clone(), permission));
                }
            }
        }
    }

    /// Returns the open requests of a session.
    async fn pending(&self, session: &str) -> io::Result<Vec<Value>> {
        let list = self.get(&format!("/v1/sessions/{session}/pending")).await?;
        Ok(list["pending"].as_array().into_iter().flatten().map(|asked| asked["data"].clone()).collect())
    }

    /// Returns the state of a session, for diagnosing a failed test.
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

    /// Creates a session if needed and returns its id. A session that was killed while it was created has ended, so
    /// another one replaces it.
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

    /// Reads and remembers a session's events from the first one.
    async fn read_along(self, session: String) -> io::Result<()> {
        let mut stream = UnixStream::connect(&self.socket).await?;
        let request = format!("GET /v1/sessions/{session}/events/sse HTTP/1.0\r\nhost: localhost\r\n\r\n");
        stream.write_all(request.as_bytes()).await?;
        let mut text = Vec::new();
        // The stream breaks when the server is killed; the events before that count.
        while stream.read_buf(&mut text).await.is_ok_and(|count| count > 0) {
            self.steps.add_permits(1);
        }
        let seen = sse_frames(&String::from_utf8_lossy(&text));
        self.acknowledged.lock().unwrap().events.entry(session).or_default().extend(seen);
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
