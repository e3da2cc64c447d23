//! Defects of the first implementation of this API that this server must not have.
//!
//! Other files test its other defects:
//!
//! - `sessions`: a child that survives `terminate`, an ignored directory, two creates of one id
//! - `grants`: `always` for a whole category
//! - `events`, `sockets`: streams that lose events, have no ids or send no heartbeats
//! - `killing`: sessions that are lost after a restart
//! - `messages`: a second message in a turn
//! - `answers`: answers that are dropped
//! - `files`: files outside of the workspace
//!
//! A property test of `protocol` checks that events survive a round trip.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::stage::Stage;
use testkit::SseFrame;

crate::trials!(
    unknown_output_is_kept_and_the_stream_continues,
    tool_input_is_kept_unchanged,
    turn_events_contain_the_cost,
    file_may_be_larger_than_two_megabytes,
    archive_may_be_larger_than_two_megabytes,
    sub_agent_items_have_their_call_as_parent,
    every_event_has_a_time,
    busy_session_does_not_delay_another,
);

async fn turn(stage: &Stage, id: &str, text: &str) -> Vec<SseFrame> {
    let body = json!({"message": text}).to_string();
    stage.client.post(&format!("/v1/sessions/{id}/messages/stream"), &body).await.frames()
}

async fn unknown_output_is_kept_and_the_stream_continues() {
    let stage = Stage::new();
    stage.session("s1").await;
    for (command, printed) in [("/unparsed", "item_delta"), ("/unknown", "")] {
        let frames = turn(&stage, "s1", command).await;
        assert_eq!(frames.last().unwrap().event, "turn.ended", "{command}: the stream ended before its turn");
        let first = frames.first().unwrap().sequence().unwrap() - 1;
        let page = stage.client.get(&format!("/v1/sessions/s1/events?offset={first}&include_raw=true")).await.json();
        let events = page["events"].as_array().unwrap();
        let odd = |event: &&Value| event["type"] == "agent.unparsed" || event["data"]["item"]["kind"] == "unknown";
        let kept = events.iter().find(odd).unwrap_or_else(|| panic!("{command}: nothing was kept of it"));
        assert!(kept["raw"].to_string().contains(printed), "{kept}");
    }
}

async fn tool_input_is_kept_unchanged() {
    let stage = Stage::new();
    stage.session("s1").await;
    let frames = turn(&stage, "s1", "/tool").await;
    let parts = frames.iter().flat_map(|frame| {
        let content = frame.json()["data"]["item"]["content"].clone();
        content.as_array().cloned().unwrap_or_default()
    });
    let calls: Vec<Value> = parts.filter(|part| part["type"] == "tool_call").collect();
    assert!(!calls.is_empty(), "no tool was called");
    for call in calls {
        let input: Value = serde_json::from_str(call["arguments"].as_str().unwrap()).unwrap();
        assert!(input.is_object(), "{call}");
    }
}

async fn turn_events_contain_the_cost() {
    let stage = Stage::new();
    stage.session("s1").await;
    let frames = turn(&stage, "s1", "/ask how are you").await;
    let call = frames.iter().find(|frame| frame.event == "llm.call").unwrap().json();
    assert_eq!(call["turn_id"], frames[0].json()["turn_id"]);
    let text = call["data"].to_string();
    for word in ["model", "input_tokens", "output_tokens"] {
        assert!(text.contains(word), "`{word}` is not in {text}");
    }
}

async fn file_may_be_larger_than_two_megabytes() {
    let stage = Stage::new();
    stage.session("s1").await;
    let path = "/v1/fs/file?session_id=s1&path=large.bin";
    let content = vec![7; 5 << 20];
    let write = Request::put(path).header("host", "localhost").body(Body::from(content.clone())).unwrap();
    let written = stage.client.call(write).await;
    assert_eq!(written.status, 200, "{}", written.text());
    assert!(stage.client.get(path).await.body == content, "another file came back");
}

async fn busy_session_does_not_delay_another() {
    const TURNS: usize = 10;
    const PAGES_A_TURN: usize = 10;
    let stage = Stage::new();
    for id in ["busy", "other"] {
        stage.session(id).await;
    }
    stage.send("busy", "/flood 100000000").await;
    while stage.client.get("/v1/sessions/busy").await.json()["eventCount"].as_u64().unwrap() < 20_000 {
        tokio::task::yield_now().await;
    }
    // A client of the busy session reads the largest pages, one after another.
    let (done, pages) = (CancellationToken::new(), Arc::new(AtomicUsize::new(0)));
    let readers: Vec<_> = (0..2)
        .map(|_| {
            let (client, done, pages) = (stage.client.clone(), done.clone(), pages.clone());
            tokio::spawn(async move {
                while !done.is_cancelled() {
                    let page = client.get("/v1/sessions/busy/events?limit=10000").await.json();
                    assert_eq!(page["events"].as_array().unwrap().len(), 10_000);
                    pages.fetch_add(1, Ordering::SeqCst);
                    tokio::task::yield_now().await;
                }
            })
        })
        .collect();
    while pages.load(Ordering::SeqCst) == 0 {
        tokio::task::yield_now().await;
    }
    let read_before = pages.load(Ordering::SeqCst);
    for _ in 0..TURNS {
        assert_eq!(turn(&stage, "other", "/echo done").await.last().unwrap().event, "turn.ended");
    }
    let read_meanwhile = pages.load(Ordering::SeqCst) - read_before;
    done.cancel();
    for reader in readers {
        reader.await.unwrap();
    }
    // Compares order, not time: a delayed client would let many pages pass at each step.
    assert!(read_meanwhile < PAGES_A_TURN * TURNS, "{TURNS} turns took as long as {read_meanwhile} large pages");
    let busy = stage.client.get("/v1/sessions/busy/events?offset=1000&limit=10000").await.json();
    let ended = busy["events"].as_array().unwrap().iter().any(|event| event["type"] == "turn.ended");
    assert!(!ended, "the other one was not busy");
}

async fn archive_may_be_larger_than_two_megabytes() {
    let stage = Stage::new();
    stage.session("s1").await;
    let content = vec![7_u8; 5 << 20];
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_size(content.len() as u64);
    header.set_mode(0o644);
    archive.append_data(&mut header, "large.bin", content.as_slice()).unwrap();
    let upload = Request::post("/v1/fs/upload-batch?session_id=s1&path=in").header("host", "localhost");
    let unpacked = stage.client.call(upload.body(Body::from(archive.into_inner().unwrap())).unwrap()).await;
    assert_eq!(unpacked.status, 200, "{}", unpacked.text());
    let read = stage.client.get("/v1/fs/file?session_id=s1&path=in/large.bin").await;
    assert!(read.body == content, "another file came back");
}

async fn sub_agent_items_have_their_call_as_parent() {
    let stage = Stage::new();
    stage.session("s1").await;
    let frames = turn(&stage, "s1", "/subagent").await;
    let items: Vec<Value> = frames.iter().map(|frame| frame.json()["data"]["item"].clone()).collect();
    let below: Vec<&Value> = items.iter().filter(|item| item["parent_id"].is_string()).collect();
    assert!(!below.is_empty(), "nothing stands below anything");
    for item in below {
        assert!(items.iter().any(|parent| parent["item_id"] == item["parent_id"]), "{item} is below nothing");
    }
}

async fn every_event_has_a_time() {
    let stage = Stage::new();
    stage.session("s1").await;
    let frames = turn(&stage, "s1", "/tool").await;
    let times: Vec<jiff::Timestamp> =
        frames.iter().map(|frame| frame.json()["time"].as_str().unwrap().parse().unwrap()).collect();
    assert!(times.len() > 4 && times.is_sorted(), "{times:?}");
}
