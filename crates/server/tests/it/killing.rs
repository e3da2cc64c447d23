//! kill -9 at any moment, with traffic: what a client was told is there afterwards, and nothing is doubled.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::{Event, EventBody, PermissionStatus};
use store::DataDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::child::{check_record, post, socket, start};
use crate::client::{Frame, frames};
use crate::stage::open;

pub(crate) fn trials() -> Vec<libtest_mimic::Trial> {
    let test = whatever_was_told_survives_two_hundred_kills;
    vec![crate::trial_within(Duration::from_secs(600), "whatever_was_told_survives_two_hundred_kills", test)]
}

const ROUNDS: u64 = 200;

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
        let clients = [
            tokio::spawn(talk(socket(directory.path()), format!("talk{}", round / 10), told.clone())),
            tokio::spawn(talk(socket(directory.path()), format!("fresh{round}"), told.clone())),
            tokio::spawn(ask(socket(directory.path()), format!("ask{}", round / 10), told.clone())),
        ];
        // Spread over the life of a round, from before the first session is made to after its last turn.
        tokio::time::sleep(Duration::from_micros(round * 7919 % 80_000)).await;
        server.kill();
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
        store::verify(&data.journal(&info.session_id)).unwrap();
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

/// Makes a session if it is not there, says something, and reads along.
async fn talk(socket: PathBuf, session: String, told: Arc<Mutex<Told>>) -> io::Result<()> {
    create(&socket, &session).await?;
    let reader = tokio::spawn(read_along(socket.clone(), session.clone(), told));
    for text in ["/echo one", "/slow 2", "/echo two"] {
        let body = format!(r#"{{"message":"{text}"}}"#);
        post(&socket, &format!("/v1/sessions/{session}/messages"), &body).await?;
    }
    reader.await.unwrap()
}

/// Makes the agent ask, and answers.
async fn ask(socket: PathBuf, session: String, told: Arc<Mutex<Told>>) -> io::Result<()> {
    create(&socket, &session).await?;
    loop {
        let stream =
            post(&socket, &format!("/v1/sessions/{session}/messages/stream"), r#"{"message":"/permission"}"#).await?;
        let asked = frames(&stream).into_iter().find(|frame| frame.event == "permission.requested");
        let Some(asked) = asked else { continue };
        let permission = asked.json()["data"]["permission_id"].as_str().unwrap().to_owned();
        let path = format!("/v1/sessions/{session}/permissions/{permission}/reply");
        let answer = post(&socket, &path, r#"{"reply":"once"}"#).await?;
        if answer.starts_with("HTTP/1.0 204") {
            told.lock().unwrap().answers.push((session.clone(), permission));
        }
    }
}

async fn create(socket: &Path, session: &str) -> io::Result<()> {
    let answer = post(socket, &format!("/v1/sessions/{session}"), r#"{"agent":"mock"}"#).await?;
    let made = ["HTTP/1.0 200", "HTTP/1.0 409"].iter().any(|status| answer.starts_with(status));
    if made { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}

/// Reads a session's events from the first, and notes them as they come.
async fn read_along(socket: PathBuf, session: String, told: Arc<Mutex<Told>>) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket).await?;
    let request = format!("GET /v1/sessions/{session}/events/sse HTTP/1.0\r\nhost: localhost\r\n\r\n");
    stream.write_all(request.as_bytes()).await?;
    let mut text = Vec::new();
    // Killed, the server's end of the stream goes away; what came before counts.
    let _ = stream.read_to_end(&mut text).await;
    told.lock().unwrap().events.entry(session).or_default().extend(frames(&String::from_utf8_lossy(&text)));
    Ok(())
}
