//! The event feed: each event once and in order, also for clients that reconnect after kill -9.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::child::{post, socket, start};
use crate::stage::{Stage, config, open};
use testkit::{SseFrame, sse_frames};

crate::trials!(
    feed_has_every_event_once_and_in_order,
    feed_resumes_exactly_after_any_cursor,
    feed_stream_includes_new_sessions,
    feed_filters_are_applied,
    unknown_cursor_is_reported,
    feed_needs_the_read_scope,
    cursors_survive_a_restart,
    feed_includes_sessions_of_other_processes,
    idle_feed_stream_sends_heartbeats,
    feed_resumes_exactly_after_kills,
);

/// Creates three sessions with a few turns each.
async fn crowd(stage: &Stage) {
    for id in ["a", "b", "c"] {
        stage.session(id).await;
    }
    for text in ["/echo one", "/echo two"] {
        for id in ["a", "b", "c"] {
            let body = json!({"message": text}).to_string();
            stage.client.post(&format!("/v1/sessions/{id}/messages/stream"), &body).await;
        }
    }
    for id in ["a", "b", "c"] {
        stage.until_idle(id).await;
    }
}

/// Returns the events of all pages after `offset`, and the last `nextOffset`.
async fn pages(stage: &Stage, offset: &str, limit: usize, more: &str) -> (Vec<Value>, String) {
    let (mut all, mut offset) = (Vec::new(), offset.to_owned());
    loop {
        let page = stage.client.get(&format!("/v1/events?offset={offset}&limit={limit}{more}")).await;
        assert_eq!(page.status, 200, "{}", page.text());
        let page = page.json();
        let events = page["events"].as_array().unwrap();
        assert!(events.len() <= limit);
        all.extend(events.iter().cloned());
        page["nextOffset"].as_str().unwrap().clone_into(&mut offset);
        if page["hasMore"] == false {
            return (all, offset);
        }
    }
}

/// Checks that all events of the sessions are there, once and in order.
#[track_caller]
fn check(events: &[Value], of: &[&str]) {
    let mut sequences: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for event in events {
        let sequence = event["sequence"].as_u64().unwrap();
        sequences.entry(event["session_id"].as_str().unwrap()).or_default().push(sequence);
    }
    assert_eq!(sequences.keys().copied().collect::<Vec<_>>(), of);
    for (session, sequences) in sequences {
        assert_eq!(sequences, (1..=sequences.len() as u64).collect::<Vec<_>>(), "{session}");
    }
}

async fn feed_has_every_event_once_and_in_order() {
    let stage = Stage::new();
    crowd(&stage).await;
    let (all, end) = pages(&stage, "", 1000, "").await;
    check(&all, &["a", "b", "c"]);
    for id in ["a", "b", "c"] {
        let own = stage.client.get(&format!("/v1/sessions/{id}/events")).await.json()["events"].clone();
        let ours: Vec<&Value> = all.iter().filter(|event| event["session_id"] == id).collect();
        assert_eq!(ours, own.as_array().unwrap().iter().collect::<Vec<_>>());
    }
    assert_eq!(pages(&stage, "", 7, "").await.0, all);
    assert_eq!(pages(&stage, &end, 7, "").await.0, Vec::<Value>::new());
    assert_eq!(pages(&stage, "now", 7, "").await.0, Vec::<Value>::new());
}

async fn feed_resumes_exactly_after_any_cursor() {
    let stage = Stage::new();
    crowd(&stage).await;
    let count = pages(&stage, "", 1000, "").await.0.len();
    let all = stage.client.first_frames("/v1/events/sse", count).await;
    assert_eq!(all.iter().map(SseFrame::json).collect::<Vec<_>>(), pages(&stage, "", 1000, "").await.0);
    for (seen, frame) in all.iter().enumerate().take(count - 1) {
        let rest = stage.client.first_frames(&format!("/v1/events/sse?offset={}", frame.id), count - seen - 1).await;
        assert_eq!(rest, all[seen + 1..], "behind {seen}");
        assert_eq!(pages(&stage, &frame.id, 5, "").await.0.len(), count - seen - 1);
    }
}

async fn feed_stream_includes_new_sessions() {
    let stage = Stage::new();
    let client = stage.client.clone();
    let reader = tokio::spawn(async move { client.first_frames("/v1/events/sse?offset=now&kind=turn.ended", 6).await });
    crowd(&stage).await;
    let seen = reader.await.unwrap();
    let mut sessions: Vec<String> = seen.iter().map(|frame| frame.json()["session_id"].to_string()).collect();
    sessions.sort();
    assert_eq!(sessions, ["\"a\"", "\"a\"", "\"b\"", "\"b\"", "\"c\"", "\"c\""]);
}

async fn feed_filters_are_applied() {
    let stage = Stage::new();
    crowd(&stage).await;
    let (all, _) = pages(&stage, "", 1000, "").await;
    let kind = |event: &&Value, wanted: &str| event["type"].as_str().unwrap().starts_with(wanted);
    let (turns, _) = pages(&stage, "", 3, "&kind=turn").await;
    assert_eq!(turns, all.iter().filter(|event| kind(event, "turn.")).cloned().collect::<Vec<_>>());
    assert_eq!(turns.len(), 12);
    let (some, _) = pages(&stage, "", 3, "&kind=turn.ended,session&session=a,b").await;
    let wanted = |event: &&Value| event["session_id"] != "c" && (kind(event, "turn.ended") || kind(event, "session."));
    assert_eq!(some, all.iter().filter(wanted).cloned().collect::<Vec<_>>());
    assert_eq!(pages(&stage, "", 3, "&session=nobody").await.0, Vec::<Value>::new());
    assert_eq!(stage.client.get("/v1/events?session=a%2Fb").await.status, 400);
}

async fn unknown_cursor_is_reported() {
    let (stage, other) = (Stage::new(), Stage::new());
    crowd(&stage).await;
    crowd(&other).await;
    let foreign = pages(&other, "", 1000, "").await.1;
    for offset in ["somewhere", "-1", "1-2-3", &foreign] {
        let refused = stage.client.get(&format!("/v1/events?offset={offset}")).await;
        assert_eq!((refused.status, &refused.json()["code"]), (400, &"invalid_request".into()), "{offset}");
    }
    let returned = stage.client.first_frames(&format!("/v1/events/sse?offset={foreign}"), 2).await;
    assert_eq!((returned[0].event.as_str(), &returned[0].json()["offset"]), ("stream.gap", &json!(foreign)));
    assert_eq!(returned[1].json()["sequence"], 1);
}

async fn feed_needs_the_read_scope() {
    use server::{AccessToken, AuthMode, ServerConfig, TokenScope};
    let tokens = vec![AccessToken::new("look", [TokenScope::Read]), AccessToken::new("drive", [TokenScope::Drive])];
    let stage = Stage::with(ServerConfig { auth: AuthMode::Tokens(tokens), ..config() });
    for (token, status) in [("look", 200), ("drive", 403), ("other", 401)] {
        let request = Request::get("/v1/events").header("host", "localhost");
        let request = request.header("authorization", format!("Bearer {token}")).body(Body::empty()).unwrap();
        assert_eq!(stage.client.call(request).await.status, status, "{token}");
    }
}

async fn cursors_survive_a_restart() {
    let stage = Stage::new();
    crowd(&stage).await;
    let (before, _) = pages(&stage, "", 1000, "").await;
    let seen = stage.client.first_frames("/v1/events/sse", before.len()).await;
    stage.sessions.close_all().await;
    let stage = stage.restarted();
    stage.session("d").await;
    for at in [0, before.len() / 2, before.len() - 1] {
        let rest = pages(&stage, &seen[at].id, 1000, "").await.0;
        assert_eq!(rest[..before.len() - at - 1], before[at + 1..]);
    }
    let (all, _) = pages(&stage, "", 1000, "").await;
    assert_eq!(all[..before.len()], before);
    check(&all, &["a", "b", "c", "d"]);
    let deleted = Request::delete("/v1/sessions/b").header("host", "localhost").body(Body::empty()).unwrap();
    assert_eq!(stage.client.call(deleted).await.status, 204);
    check(&pages(&stage, "", 1000, "").await.0, &["a", "c", "d"]);
    assert!(!pages(&stage, &seen[before.len() - 1].id, 1000, "").await.0.is_empty());
}

async fn feed_includes_sessions_of_other_processes() {
    let stage = Stage::new();
    let other = open(stage.directory.path());
    let reader = {
        let client = stage.client.clone();
        tokio::spawn(async move { client.first_frames("/v1/events/sse?kind=session.ended", 1).await })
    };
    let id = protocol::SessionId::new("elsewhere").unwrap();
    let request = serde_json::from_value(json!({"agent": "mock"})).unwrap();
    other.create(id.clone(), request, session::SessionOptions::default()).await.unwrap();
    other.terminate(&id).await.unwrap();
    assert_eq!(reader.await.unwrap()[0].json()["session_id"], "elsewhere");
    check(&pages(&stage, "", 1000, "").await.0, &["elsewhere"]);
}

async fn idle_feed_stream_sends_heartbeats() {
    let stage = Stage::with(server::ServerConfig { heartbeat: Duration::from_millis(1), ..config() });
    let request = Request::get("/v1/events").header("host", "localhost").header("accept", "text/event-stream");
    let text = stage.client.first_text(request.body(Body::empty()).unwrap(), ": heartbeat").await;
    assert!(text.starts_with("retry: 2000\n"), "{text}");
}

/// In each round the client reconnects with its last id and reads, until the server is killed.
async fn feed_resumes_exactly_after_kills() {
    const ROUNDS: usize = 12;
    let directory = tempfile::tempdir().unwrap();
    let mut seen: Vec<SseFrame> = Vec::new();
    for round in 0..ROUNDS {
        let mut server = start(directory.path()).await;
        let path = socket(directory.path());
        let last = seen.last().map(|frame| frame.id.clone()).unwrap_or_default();
        let wanted = 20 + round * 7;
        let traffic = tokio::spawn(make_traffic(path.clone(), round));
        seen.extend(read_some(&path, &last, wanted).await);
        server.kill();
        traffic.abort();
    }
    let mut server = start(directory.path()).await;
    let last = seen.last().unwrap().id.clone();
    let rest = read_some(&socket(directory.path()), &last, 1).await;
    server.kill();
    assert!(!rest.is_empty(), "nothing was left behind by the last kill");
    let sessions = open(directory.path());
    sessions.recover().await.unwrap();
    let mut returned: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for frame in &seen {
        assert_ne!(frame.event, "stream.gap", "{}", frame.data);
        returned.entry(frame.json()["session_id"].as_str().unwrap().to_owned()).or_default().push(frame.json());
    }
    assert!(returned.len() > 3, "there was no traffic");
    for (session, returned) in returned {
        let id = protocol::SessionId::new(session).unwrap();
        let events = sessions.journal(&id).unwrap().after(0, returned.len()).unwrap();
        let kept: Vec<Value> = events.iter().map(without_raw).collect();
        assert_eq!(returned, kept, "{id}: lost, doubled or out of order");
    }
}

fn without_raw(event: &protocol::Event) -> Value {
    let mut value = serde_json::to_value(event).unwrap();
    value.as_object_mut().unwrap().remove("raw");
    value
}

async fn make_traffic(socket: std::path::PathBuf, round: usize) {
    for number in 0.. {
        let session = format!("s{round}-{}", number % 2);
        // Refused if the session exists.
        let _ = post(&socket, &format!("/v1/sessions/{session}"), r#"{"agent":"mock"}"#).await;
        let message = r#"{"message":"/slow 3","whenBusy":"refuse"}"#;
        if post(&socket, &format!("/v1/sessions/{session}/messages"), message).await.is_err() {
            return;
        }
    }
}

/// Reads at least `wanted` frames after `last`.
async fn read_some(socket: &Path, last: &str, wanted: usize) -> Vec<SseFrame> {
    let mut stream = UnixStream::connect(socket).await.unwrap();
    let head = "GET /v1/events/sse HTTP/1.0\r\nhost: localhost";
    stream.write_all(format!("{head}\r\nlast-event-id: {last}\r\n\r\n").as_bytes()).await.unwrap();
    let mut text = Vec::new();
    while sse_frames(&String::from_utf8_lossy(&text)).len() < wanted {
        assert!(stream.read_buf(&mut text).await.unwrap() > 0, "the stream ended");
    }
    sse_frames(&String::from_utf8_lossy(&text))
}
