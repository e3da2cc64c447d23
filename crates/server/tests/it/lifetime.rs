//! What becomes of sessions: forked, deleted, taken out and in again.

use axum::body::Body;
use http::{Method, Request};
use serde_json::json;

use crate::client::{Answer, request};
use crate::stage::Stage;

crate::trials!(
    a_deleted_session_is_gone_and_its_id_stays_taken,
    a_fork_goes_on_beside_the_other,
    of_a_session_that_has_ended_there_is_no_fork,
    a_bundle_holds_everything_and_can_be_taken_in_elsewhere,
    a_bundle_that_was_changed_is_refused,
    an_import_that_was_killed_can_be_made_again,
    what_a_session_may_do_is_told,
    a_message_sent_twice_under_one_key_is_taken_once,
);

async fn delete(stage: &Stage, path: &str) -> Answer {
    stage.client.call(request(Method::DELETE, path, "")).await
}

async fn import(stage: &Stage, bundle: Vec<u8>) -> Answer {
    let request = Request::post("/v1/import").header("host", "localhost").body(Body::from(bundle)).unwrap();
    stage.client.call(request).await
}

async fn an_import_that_was_killed_can_be_made_again() {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.client.post("/v1/sessions/s1/messages/stream", r#"{"message":"hello"}"#).await;
    let bundle = stage.client.get("/v1/sessions/s1/export").await.body.to_vec();
    let elsewhere = Stage::new();
    // What is there between the two steps of an import: the journal, and no entry.
    let journal = elsewhere.directory.path().join("data/trajectory/s1.jsonl");
    std::fs::copy(stage.directory.path().join("data/trajectory/s1.jsonl"), &journal).unwrap();
    assert_eq!(elsewhere.client.get("/v1/sessions/s1").await.status, 404);
    let taken = import(&elsewhere, bundle.clone()).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    let events = elsewhere.client.get("/v1/sessions/s1/events").await.json();
    assert_eq!(events["events"].as_array().unwrap().last().unwrap()["type"], "session.ended");
    assert_eq!(import(&elsewhere, bundle).await.status, 409);
}

async fn a_deleted_session_is_gone_and_its_id_stays_taken() {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.session("s2").await;
    stage.send("s1", "hello").await;
    assert_eq!(delete(&stage, "/v1/sessions/s1").await.status, 204);
    for path in ["/v1/sessions/s1", "/v1/sessions/s1/events", "/v1/sessions/s1/usage"] {
        let gone = stage.client.get(path).await;
        assert_eq!((gone.status, &gone.json()["code"]), (404, &"session_not_found".into()), "{path}");
    }
    assert_eq!(delete(&stage, "/v1/sessions/s1").await.status, 404);
    assert_eq!(stage.client.get("/v1/sessions").await.json()["sessions"].as_array().unwrap().len(), 1);
    let again = stage.client.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).await;
    assert_eq!((again.status, &again.json()["code"]), (409, &"session_already_exists".into()));
    let left: Vec<_> = std::fs::read_dir(stage.directory.path().join("data/trajectory")).unwrap().collect();
    assert!(left.iter().all(|entry| !entry.as_ref().unwrap().file_name().to_string_lossy().starts_with("s1")));
}

async fn a_fork_goes_on_beside_the_other() {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.client.post("/v1/sessions/s1/messages/stream", r#"{"message":"hello"}"#).await;
    let forked = stage.client.post("/v1/sessions/s1/fork", r#"{"sessionId":"s2","title":"Another way"}"#).await;
    assert_eq!((forked.status, &forked.json()["title"]), (200, &json!("Another way")), "{}", forked.text());
    let events = stage.client.get("/v1/sessions/s2/events").await.json();
    let started = events["events"].as_array().unwrap().iter().find(|event| event["type"] == "session.started").unwrap();
    assert_eq!(started["data"]["metadata"]["forkedFrom"]["sessionId"], "s1");
    stage.client.post("/v1/sessions/s2/messages/stream", r#"{"message":"hello"}"#).await;
    assert_eq!(stage.client.post("/v1/sessions/s2/terminate", "").await.status, 204);
    assert_eq!(stage.client.get("/v1/sessions/s1").await.json()["ended"], json!(false));
    let taken = stage.client.post("/v1/sessions/s1/fork", r#"{"sessionId":"s2"}"#).await;
    assert_eq!((taken.status, &taken.json()["code"]), (409, &"session_already_exists".into()));
    assert_eq!(stage.client.post("/v1/sessions/s1/fork", "").await.status, 200);
}

async fn of_a_session_that_has_ended_there_is_no_fork() {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.client.post("/v1/sessions/s1/terminate", "").await;
    let refused = stage.client.post("/v1/sessions/s1/fork", "").await;
    assert_eq!((refused.status, &refused.json()["code"]), (409, &"session_ended".into()));
}

async fn a_bundle_holds_everything_and_can_be_taken_in_elsewhere() {
    let (stage, other) = (Stage::new(), Stage::new());
    stage.session("s1").await;
    stage.client.post("/v1/sessions/s1/messages/stream", r#"{"message":"/ask hello"}"#).await;
    let bundle = stage.client.get("/v1/sessions/s1/export").await;
    assert_eq!((bundle.status, bundle.headers["content-type"].to_str().unwrap()), (200, "application/x-tar"));
    let mut archive = tar::Archive::new(&bundle.body[..]);
    let names: Vec<_> =
        archive.entries().unwrap().map(|entry| entry.unwrap().path().unwrap().display().to_string()).collect();
    for name in ["session.json", "journal.jsonl", "policy.json"] {
        assert!(names.iter().any(|found| found == name), "{name} is not in {names:?}");
    }

    let taken = import(&other, bundle.body.to_vec()).await;
    assert_eq!((taken.status, &taken.json()["ended"]), (200, &json!(true)), "{}", taken.text());
    let (here, there) = (
        stage.client.get("/v1/sessions/s1/events").await.json(),
        other.client.get("/v1/sessions/s1/events").await.json(),
    );
    let (here, there) = (here["events"].as_array().unwrap(), there["events"].as_array().unwrap());
    assert_eq!((&there[..here.len()], &there[here.len()]["type"]), (&here[..], &json!("session.ended")));
    let again = import(&other, bundle.body.to_vec()).await;
    assert_eq!((again.status, &again.json()["code"]), (409, &"session_already_exists".into()));
    assert_eq!(import(&stage, bundle.body.to_vec()).await.status, 409);
}

async fn a_bundle_that_was_changed_is_refused() {
    let (stage, other) = (Stage::new(), Stage::new());
    stage.session("s1").await;
    let bundle = stage.client.get("/v1/sessions/s1/export").await.body.to_vec();
    // The hash of a line is in the line after it.
    let changed = String::from_utf8_lossy(&bundle).replace("policy.effective", "policy.defective").into_bytes();
    assert_eq!(changed.len(), bundle.len());
    let mut all_bad = vec![changed, b"no tar at all".to_vec(), Vec::new(), bundle[..bundle.len() / 2].to_vec()];
    // Also where it is cut between two files, or in the middle of what ends it.
    all_bad.extend((512..bundle.len()).step_by(512).map(|end| bundle[..end].to_vec()));
    for bad in all_bad {
        let refused = import(&other, bad).await;
        assert_eq!((refused.status, &refused.json()["code"]), (422, &"bundle_invalid".into()), "{}", refused.text());
    }
    assert_eq!(other.client.get("/v1/sessions").await.json()["sessions"], json!([]));
}

async fn what_a_session_may_do_is_told() {
    let stage = Stage::new();
    stage.session("s1").await;
    let policy = stage.client.get("/v1/sessions/s1/policy").await.json();
    assert_eq!(policy["backend"], "unconfined");
    assert!(!policy["keys"].is_null());
}

async fn a_message_sent_twice_under_one_key_is_taken_once() {
    let stage = Stage::new();
    stage.session("s1").await;
    let send = || async {
        let mut request = request(Method::POST, "/v1/sessions/s1/messages", r#"{"message":"hello"}"#);
        request.headers_mut().insert("idempotency-key", "k1".parse().unwrap());
        stage.client.call(request).await
    };
    let (one, other) = (send().await, send().await);
    assert_eq!((one.status, other.status), (204, 204));
    assert_eq!(one.headers["x-viv-turn-id"], other.headers["x-viv-turn-id"]);
}
