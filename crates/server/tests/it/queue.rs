//! The message queue: list and removal.

use http::Method;
use serde_json::{Value, json};

use crate::child::{call, post, socket, start};
use crate::client::{ApiResponse, request};
use crate::stage::Stage;

crate::trials!(
    queue_is_listed_in_order,
    queue_is_listed_by_page,
    removed_message_is_never_answered,
    message_stream_ends_when_the_message_is_removed,
    only_queued_messages_can_be_removed,
    end_of_the_session_clears_the_queue,
    removal_survives_kill_9,
);

/// Sends a message and returns its turn.
async fn send(stage: &Stage, body: Value) -> String {
    let answer = stage.client.post("/v1/sessions/s1/messages", &body.to_string()).await;
    assert_eq!(answer.status, 204, "{}", answer.text());
    answer.headers["x-viv-turn-id"].to_str().unwrap().to_owned()
}

async fn queue(stage: &Stage, query: &str) -> Value {
    let answer = stage.client.get(&format!("/v1/sessions/s1/queue{query}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()
}

async fn remove(stage: &Stage, turn: &str) -> ApiResponse {
    stage.client.call(request(Method::DELETE, &format!("/v1/sessions/s1/queue/{turn}"), "")).await
}

fn turns(list: &Value) -> Vec<String> {
    let turn = |one: &Value| one["turnId"].as_str().unwrap().to_owned();
    list["messages"].as_array().unwrap().iter().map(turn).collect()
}

/// Creates a session with a turn that outlasts the test.
async fn busy() -> Stage {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.send("s1", "/permission").await;
    stage
}

async fn queue_is_listed_in_order() {
    let stage = busy().await;
    assert_eq!(queue(&stage, "").await, json!({"messages": []}));
    let body = json!({"message": "one", "clientMessageId": "m1", "attachments": [{"path": "a.md"}]});
    let (first, second) = (send(&stage, body).await, send(&stage, json!({"message": "two"})).await);
    let list = queue(&stage, "").await;
    assert_eq!(turns(&list), [first, second]);
    let one = &list["messages"][0];
    assert_eq!(
        (&one["message"], &one["clientMessageId"], &one["steers"]),
        (&"one".into(), &"m1".into(), &false.into())
    );
    assert_eq!(one["attachments"][0]["path"], "a.md");
    let events = stage.client.get("/v1/sessions/s1/events").await.json();
    let told = events["events"].as_array().unwrap().iter().find(|event| event["type"] == "message.queued").unwrap();
    assert_eq!((&one["sequence"], &one["queuedAt"]), (&told["sequence"], &told["time"]));
}

async fn queue_is_listed_by_page() {
    let stage = busy().await;
    let mut sent = Vec::new();
    for number in 0..12 {
        sent.push(send(&stage, json!({"message": format!("{number}")})).await);
    }
    let (mut seen, mut query) = (Vec::new(), "?limit=5".to_owned());
    loop {
        let page = queue(&stage, &query).await;
        seen.extend(turns(&page));
        let Some(cursor) = page["nextCursor"].as_str() else { break };
        query = format!("?limit=5&cursor={cursor}");
    }
    assert_eq!(seen, sent);
}

async fn removed_message_is_never_answered() {
    let stage = Stage::new();
    stage.session("s1").await;
    send(&stage, json!({"message": "/slow 3"})).await;
    let body = json!({"message": "/echo first", "clientMessageId": "m1"});
    let first = send(&stage, body.clone()).await;
    assert_eq!(remove(&stage, &first).await.status, 204);
    assert_eq!(queue(&stage, "").await, json!({"messages": []}));
    // A repeated request gets the same response, and the message stays removed.
    assert_eq!(send(&stage, body).await, first);
    let second = stage.client.post("/v1/sessions/s1/messages/stream", r#"{"message":"/echo second"}"#).await;
    assert_eq!(second.frames().last().unwrap().event, "turn.ended");
    let events = stage.client.get("/v1/sessions/s1/events").await.json();
    let of_first = events["events"].as_array().unwrap().iter().filter(|event| event["turn_id"] == *first);
    let kinds: Vec<&str> = of_first.filter_map(|event| event["type"].as_str()).collect();
    assert_eq!(kinds, ["message.removed"]);
}

async fn message_stream_ends_when_the_message_is_removed() {
    let stage = busy().await;
    let (client, body) = (stage.client.clone(), json!({"message": "/echo never"}).to_string());
    let follower = tokio::spawn(async move { client.post("/v1/sessions/s1/messages/stream", &body).await });
    let turn = loop {
        if let Some(turn) = turns(&queue(&stage, "").await).pop() {
            break turn;
        }
        tokio::task::yield_now().await;
    };
    assert_eq!(remove(&stage, &turn).await.status, 204);
    let frames = follower.await.unwrap().frames();
    let [removed] = &frames[..] else { panic!("{frames:?}") };
    assert_eq!((removed.event.as_str(), &removed.json()["data"]["turn_id"]), ("message.removed", &turn.into()));
}

async fn only_queued_messages_can_be_removed() {
    let stage = Stage::new();
    stage.session("s1").await;
    let running = send(&stage, json!({"message": "/permission"})).await;
    let waiting = send(&stage, json!({"message": "/echo later"})).await;
    let check = async |turn: &str, status: u16, code: &str| {
        let answer = remove(&stage, turn).await;
        assert_eq!((answer.status, &answer.json()["code"]), (status, &code.into()), "{turn}");
    };
    check(&running, 404, "message_not_found").await;
    check("trn_9_9", 404, "message_not_found").await;
    check("no%20id", 400, "invalid_request").await;
    assert_eq!(remove(&stage, &waiting).await.status, 204);
    check(&waiting, 409, "message_not_queued").await;
    let next = send(&stage, json!({"message": "/echo next"})).await;
    stage.client.post("/v1/sessions/s1/interrupt", "").await;
    while !turns(&queue(&stage, "").await).is_empty() {
        tokio::task::yield_now().await;
    }
    check(&next, 409, "message_not_queued").await;
    let answer = stage.client.call(request(Method::DELETE, "/v1/sessions/none/queue/trn_1_1", "")).await;
    assert_eq!((answer.status, &answer.json()["code"]), (404, &"session_not_found".into()));
    assert_eq!(stage.client.get("/v1/sessions/none/queue").await.status, 404);
}

async fn end_of_the_session_clears_the_queue() {
    let stage = busy().await;
    let turn = send(&stage, json!({"message": "/echo later"})).await;
    assert_eq!(stage.client.post("/v1/sessions/s1/terminate", "").await.status, 204);
    assert_eq!(queue(&stage, "").await, json!({"messages": []}));
    let late = remove(&stage, &turn).await;
    assert_eq!((late.status, &late.json()["code"]), (409, &"session_ended".into()));
}

async fn removal_survives_kill_9() {
    let directory = tempfile::tempdir().unwrap();
    let socket = socket(directory.path());
    let mut server = start(directory.path()).await;
    post(&socket, "/v1/sessions/s1", r#"{"agent":"mock"}"#).await.unwrap();
    let mut sent = Vec::new();
    for message in ["/permission", "/echo gone", "/echo later", "/echo kept"] {
        let answer = post(&socket, "/v1/sessions/s1/messages", &json!({"message": message}).to_string()).await.unwrap();
        let turn = answer.lines().find_map(|line| line.strip_prefix("x-viv-turn-id: ")).unwrap();
        sent.push(turn.trim().to_owned());
    }
    let gone = format!("/v1/sessions/s1/queue/{}", sent[1]);
    assert_eq!(call(&socket, "DELETE", &gone, b"").await.0, 204);
    server.kill();

    let _server = start(directory.path()).await;
    // The session sleeps: its queue is read from the journal.
    let listed = async || {
        let (status, body) = call(&socket, "GET", "/v1/sessions/s1/queue", b"").await;
        assert_eq!(status, 200);
        turns(&serde_json::from_slice(&body).unwrap())
    };
    assert_eq!(listed().await, sent[2..]);
    assert_eq!(call(&socket, "DELETE", &gone, b"").await.0, 409);
    // A message can be removed while the session sleeps.
    let later = format!("/v1/sessions/s1/queue/{}", sent[2]);
    assert_eq!(call(&socket, "DELETE", &later, b"").await.0, 204);
    assert_eq!(listed().await, sent[3..]);
    let answer = post(&socket, "/v1/sessions/s1/messages/stream", r#"{"message":"/echo last"}"#).await.unwrap();
    assert!(answer.contains("turn.ended"), "{answer}");
    let (_, events) = call(&socket, "GET", "/v1/sessions/s1/events", b"").await;
    let events: Value = serde_json::from_slice(&events).unwrap();
    let started = events["events"].as_array().unwrap().iter().filter(|event| event["type"] == "turn.started");
    let started: Vec<_> = started.filter_map(|event| event["turn_id"].as_str()).collect();
    assert_eq!((started.len(), started[0], started[1]), (3, sent[0].as_str(), sent[3].as_str()), "{events}");
}
