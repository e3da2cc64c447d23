//! Events as pages and streams: a client that reconnects gets exactly the same events.

use axum::body::Body;
use http::Request;
use serde_json::{Value, json};
use server::{EventFilter, ServerConfig};

use crate::stage::{Stage, config};
use testkit::SseFrame;

crate::trials!(
    next_page_continues_after_the_last_one,
    raw_output_is_returned_only_on_request,
    stream_resumes_exactly_after_any_sequence_number,
    stream_frames_have_id_type_and_retry,
    stream_of_an_ended_session_is_empty_and_a_browser_stops,
    clients_get_frames_and_events_of_the_contract_by_default,
    page_without_a_limit_has_all_events,
    cursor_beyond_the_end_gets_a_gap,
    page_size_in_bytes_is_limited,
    invalid_sequence_number_is_refused,
    contract_filter_returns_only_contract_events,
);

/// Creates an ended session with many kinds of events.
async fn finished(stage: &Stage) -> Vec<Value> {
    stage.session("s1").await;
    for command in ["/demo", "/unknown", "/garbage", "/echo last"] {
        let body = json!({"message": command, "whenBusy": "queue"}).to_string();
        stage.client.post("/v1/sessions/s1/messages", &body).await;
    }
    let body = json!({"message": "/end"}).to_string();
    stage.client.post("/v1/sessions/s1/messages", &body).await;
    let answer = stage.client.get("/v1/sessions/s1/events/sse").await;
    answer.frames().iter().map(SseFrame::json).collect()
}

async fn page(stage: &Stage, query: &str) -> (Vec<Value>, bool) {
    let page = stage.client.get(&format!("/v1/sessions/s1/events?{query}")).await.json();
    (page["events"].as_array().unwrap().clone(), page["hasMore"].as_bool().unwrap())
}

async fn next_page_continues_after_the_last_one() {
    let stage = Stage::new();
    let all = finished(&stage).await;
    let (mut seen, mut more) = (Vec::new(), true);
    while more {
        let (events, has_more) = page(&stage, &format!("offset={}&limit=7", seen.len())).await;
        assert!(events.len() <= 7);
        seen.extend(events);
        more = has_more;
    }
    assert_eq!(seen, all);
    assert_eq!(page(&stage, "").await, (all.clone(), false));
    assert_eq!(page(&stage, &format!("offset={}", all.len())).await, (Vec::new(), false));
    assert_eq!(page(&stage, "limit=0").await, (Vec::new(), true));
}

async fn raw_output_is_returned_only_on_request() {
    let stage = Stage::new();
    finished(&stage).await;
    let has_raw = |events: &[Value]| events.iter().any(|event| !event["raw"].is_null());
    assert!(!has_raw(&page(&stage, "").await.0));
    assert!(has_raw(&page(&stage, "include_raw=true").await.0));
    assert!(has_raw(&page(&stage, "includeRaw=true").await.0));
    let streamed = stage.client.get("/v1/sessions/s1/events/sse?includeRaw=true").await.frames();
    assert!(has_raw(&streamed.iter().map(SseFrame::json).collect::<Vec<_>>()));
}

async fn stream_resumes_exactly_after_any_sequence_number() {
    let stage = Stage::new();
    let all = finished(&stage).await;
    let sequences: Vec<u64> = all.iter().map(|event| event["sequence"].as_u64().unwrap()).collect();
    assert_eq!(sequences, (1..=all.len() as u64).collect::<Vec<_>>(), "numbers are not contiguous");
    for seen in 0..all.len() {
        let by_offset = stage.client.get(&format!("/v1/sessions/s1/events/sse?offset={seen}")).await.frames();
        let request = Request::get("/v1/sessions/s1/events/sse?offset=0").header("host", "localhost");
        let request = request.header("last-event-id", seen.to_string()).body(Body::empty()).unwrap();
        let by_header = stage.client.call(request).await.frames();
        assert_eq!(by_offset.iter().map(SseFrame::json).collect::<Vec<_>>(), all[seen..], "from {seen}");
        assert_eq!(by_header, by_offset, "from {seen}");
    }
}

async fn stream_frames_have_id_type_and_retry() {
    let stage = Stage::new();
    finished(&stage).await;
    let text = stage.client.get("/v1/sessions/s1/events/sse").await.text();
    assert!(text.starts_with("retry: 2000\n"), "{}", &text[..40]);
    for (number, frame) in testkit::sse_frames(&text).iter().enumerate() {
        assert_eq!(frame.sequence(), Some(number as u64 + 1));
        assert_eq!(frame.json()["type"], frame.event.as_str());
        assert_eq!(frame.json()["event_id"], format!("evt_{}", number + 1));
    }
}

async fn stream_of_an_ended_session_is_empty_and_a_browser_stops() {
    let stage = Stage::new();
    let all = finished(&stage).await;
    assert_eq!(all.last().unwrap()["type"], "session.ended");
    for offset in [all.len(), all.len() + 7] {
        let over = stage.client.get(&format!("/v1/sessions/s1/events/sse?offset={offset}")).await;
        assert_eq!((over.status, over.frames().len()), (200, 0));
        assert_eq!(over.headers["content-type"], "text/event-stream");
        let again = Request::get("/v1/sessions/s1/events/sse").header("host", "localhost");
        let again = again.header("last-event-id", offset.to_string()).body(Body::empty()).unwrap();
        assert_eq!(stage.client.call(again).await.status, 204, "an `EventSource` would reconnect for ever");
    }
}

/// A browser passes only frames without `event:` to `EventSource.onmessage`.
async fn clients_get_frames_and_events_of_the_contract_by_default() {
    let stage = Stage::with(ServerConfig { events: EventFilter::default(), ..config() });
    let all = finished(&stage).await;
    let contract: Value = serde_json::from_str(include_str!("../contract/openapi.json")).unwrap();
    let known = contract["components"]["schemas"]["UniversalEventType"]["enum"].as_array().unwrap();
    assert!(!all.is_empty() && all.iter().all(|event| known.contains(&event["type"])), "{all:?}");
    let text = stage.client.get("/v1/sessions/s1/events/sse").await.text();
    assert!(!text.lines().any(|line| line.starts_with("event:")), "{text}");
    assert_eq!(text.lines().filter(|line| line.starts_with("data: {")).count(), all.len());
    let ours = stage.client.get("/v1/sessions/s1/events/sse?events=all").await.text();
    assert!(ours.contains("event: policy.effective\n"), "{ours}");
}

async fn page_without_a_limit_has_all_events() {
    let stage = Stage::new();
    stage.session("s1").await;
    for _ in 0..300 {
        let body = json!({"message": "/echo x"}).to_string();
        assert_eq!(stage.client.post("/v1/sessions/s1/messages/stream", &body).await.status, 200);
    }
    let (events, more) = page(&stage, "").await;
    assert!(events.len() > 1000 && !more, "{} events", events.len());
    assert_eq!(page(&stage, "limit=1200").await.0.len(), 1200);
}

async fn cursor_beyond_the_end_gets_a_gap() {
    let stage = Stage::new();
    stage.session("s1").await;
    let frames = stage.client.first_frames("/v1/sessions/s1/events/sse?offset=1000", 1).await;
    assert_eq!(frames[0].event, "stream.gap");
    assert_eq!(frames[0].json()["offset"], 1000);
    assert_eq!(frames[0].sequence(), frames[0].json()["last"].as_u64());
}

async fn page_size_in_bytes_is_limited() {
    let stage = Stage::new();
    stage.session("s1").await;
    // The text is in four events: two of the prompt and two of the echo.
    let body = json!({"message": format!("/echo {}", "x".repeat(3 << 20))}).to_string();
    stage.client.post("/v1/sessions/s1/messages/stream", &body).await;
    let (mut seen, mut more, mut pages) = (0, true, 0);
    while more {
        let answer = stage.client.get(&format!("/v1/sessions/s1/events?offset={seen}")).await;
        assert!(answer.body.len() < 16 << 20);
        let page = answer.json();
        seen = page["events"].as_array().unwrap().last().unwrap()["sequence"].as_u64().unwrap();
        more = page["hasMore"].as_bool().unwrap();
        pages += 1;
    }
    assert!(pages > 1, "everything came at once");
}

async fn invalid_sequence_number_is_refused() {
    let stage = Stage::new();
    stage.session("s1").await;
    let request = Request::get("/v1/sessions/s1/events/sse").header("host", "localhost");
    let request = request.header("last-event-id", "seven").body(Body::empty()).unwrap();
    let refused = stage.client.call(request).await;
    assert_eq!((refused.status, &refused.json()["code"]), (400, &"invalid_request".into()));
}

async fn contract_filter_returns_only_contract_events() {
    let stage = Stage::new();
    let all = finished(&stage).await;
    let contract: Value = serde_json::from_str(include_str!("../contract/openapi.json")).unwrap();
    let known = contract["components"]["schemas"]["UniversalEventType"]["enum"].as_array().unwrap();
    let wanted: Vec<Value> = all.iter().filter(|event| known.contains(&event["type"])).cloned().collect();
    assert!(known.iter().filter(|kind| wanted.iter().any(|event| event["type"] == **kind)).count() > 7, "{wanted:?}");
    assert!(wanted.len() < all.len(), "there are no additional event types");
    let (mut seen, mut more) = (Vec::<Value>::new(), true);
    while more {
        let offset = seen.last().map_or(0, |event| event["sequence"].as_u64().unwrap());
        let (events, has_more) = page(&stage, &format!("events=contract&offset={offset}&limit=5")).await;
        assert!(events.len() == 5 || !has_more, "a page is full, or the last one");
        seen.extend(events);
        more = has_more;
    }
    assert_eq!(seen, wanted);
    let served = stage.client.get("/v1/sessions/s1/events/sse?events=contract").await;
    assert_eq!(served.frames().iter().map(SseFrame::json).collect::<Vec<_>>(), wanted);
    let bad = stage.client.get("/v1/sessions/s1/events?events=some").await;
    assert_eq!(bad.status, 400);

    let strict = Stage::with(ServerConfig { events: EventFilter::Contract, ..config() });
    strict.session("s1").await;
    let say = async |query: &str| {
        let path = format!("/v1/sessions/s1/messages/stream{query}");
        let frames = strict.client.post(&path, r#"{"message":"/ask hello"}"#).await.frames();
        frames.iter().all(|frame| known.contains(&frame.json()["type"]))
    };
    assert!(say("").await, "the server's default filter is `contract`");
    assert!(!say("?events=all").await, "a client that asks for all gets all");
    let ahead = strict.client.first_text(
        Request::get("/v1/sessions/s1/events/sse?offset=100000")
            .header("host", "localhost")
            .body(Body::empty())
            .unwrap(),
        "retry",
    );
    assert!(!ahead.await.contains("stream.gap"));
}
