//! Fork, deletion, export and import of sessions.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::sync::Arc;

use axum::body::Body;
use base::Digest;
use http::{Method, Request};
use serde_json::{Value, json};
use store::{DataDir, SessionIndex, SessionOutcome, SystemClock};

use crate::client::{ApiResponse, request};
use crate::stage::Stage;

crate::trials!(
    deleted_session_is_gone_and_its_id_is_not_reused,
    fork_continues_independently,
    ended_session_can_be_forked,
    bundle_is_complete_and_can_be_imported,
    import_keeps_the_metadata_of_the_session,
    deleted_session_can_be_imported_with_another_id,
    changed_bundle_is_refused,
    inconsistent_bundle_is_refused,
    interrupted_import_can_be_repeated,
    policy_of_a_session_is_returned,
    message_with_a_repeated_key_is_accepted_once,
);

async fn delete(stage: &Stage, path: &str) -> ApiResponse {
    stage.client.call(request(Method::DELETE, path, "")).await
}

async fn import(stage: &Stage, bundle: Vec<u8>) -> ApiResponse {
    import_to(stage, "/v1/import", bundle).await
}

async fn import_to(stage: &Stage, path: &str, bundle: Vec<u8>) -> ApiResponse {
    let request = Request::post(path).header("host", "localhost").body(Body::from(bundle)).unwrap();
    stage.client.call(request).await
}

async fn interrupted_import_can_be_repeated() {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.client.post("/v1/sessions/s1/messages/stream", r#"{"message":"hello"}"#).await;
    stage.until_idle("s1").await;
    let bundle = stage.client.get("/v1/sessions/s1/export").await.body.to_vec();
    let elsewhere = Stage::new();
    // The state between the two steps of an import: a journal without an index entry.
    let journal = elsewhere.directory.path().join("data/trajectory/s1.jsonl");
    std::fs::copy(stage.directory.path().join("data/trajectory/s1.jsonl"), &journal).unwrap();
    assert_eq!(elsewhere.client.get("/v1/sessions/s1").await.status, 404);
    let taken = import(&elsewhere, bundle.clone()).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    let events = elsewhere.client.get("/v1/sessions/s1/events").await.json();
    assert_eq!(events["events"].as_array().unwrap().last().unwrap()["type"], "session.ended");
    assert_eq!(import(&elsewhere, bundle).await.status, 409);
    // Or another session takes the id.
    let left = elsewhere.directory.path().join("data/imported/s2");
    std::fs::create_dir_all(&left).unwrap();
    elsewhere.session("s2").await;
    assert!(!left.exists(), "a new session is taken for one from a bundle");
}

async fn deleted_session_is_gone_and_its_id_is_not_reused() {
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

async fn fork_continues_independently() {
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

async fn ended_session_can_be_forked() {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.client.post("/v1/sessions/s1/terminate", "").await;
    let forked = stage.client.post("/v1/sessions/s1/fork", r#"{"sessionId":"s2"}"#).await;
    assert_eq!(forked.status, 200, "{}", forked.text());
    let answered = stage.client.post("/v1/sessions/s2/messages/stream", r#"{"message":"hello"}"#).await;
    assert!(answered.status == 200 && answered.text().contains("hello"), "{}", answered.text());
}

async fn bundle_is_complete_and_can_be_imported() {
    let (stage, other) = (Stage::new(), Stage::new());
    stage.session("s1").await;
    stage.client.post("/v1/sessions/s1/messages/stream", r#"{"message":"/ask hello"}"#).await;
    stage.until_idle("s1").await;
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

/// The files of a bundle by name.
type Files = BTreeMap<String, Vec<u8>>;

fn unpacked(bundle: &[u8]) -> Files {
    let mut archive = tar::Archive::new(bundle);
    let files = archive.entries().unwrap().map(|entry| {
        let mut entry = entry.unwrap();
        let (name, mut bytes) = (entry.path().unwrap().display().to_string(), Vec::new());
        entry.read_to_end(&mut bytes).unwrap();
        (name, bytes)
    });
    files.collect()
}

fn packed(files: &Files) -> Vec<u8> {
    let mut archive = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(bytes.len() as u64);
        archive.append_data(&mut header, name, &bytes[..]).unwrap();
    }
    archive.into_inner().unwrap()
}

/// Rewrites the manifest for the changed files.
fn vouch(files: &mut Files) {
    files.remove("manifest.json");
    let hashes: BTreeMap<_, _> = files.iter().map(|(name, bytes)| (name, Digest::of(bytes).to_string())).collect();
    let manifest = json!({"version": 1, "files": hashes}).to_string();
    files.insert("manifest.json".to_owned(), manifest.into_bytes());
}

fn replace(files: &mut Files, name: &str, from: &str, to: &str) {
    let text = String::from_utf8(files[name].clone()).unwrap();
    assert!(text.contains(from), "{name}: {text}");
    files.insert(name.to_owned(), text.replacen(from, to, 1).into_bytes());
}

fn cut_last_line(files: &mut Files) {
    let journal = files.get_mut("journal.jsonl").unwrap();
    let end = journal[..journal.len() - 1].iter().rposition(|byte| *byte == b'\n').unwrap();
    journal.truncate(end + 1);
}

/// Adds a change set with one new file, as an overlay sandbox would.
fn plant_changes(stage: &Stage, session: &str) {
    let folder = stage.directory.path().join("data/changes").join(session);
    std::fs::create_dir_all(folder.join("contents")).unwrap();
    let digest = Digest::of(b"one\ntwo\n").to_string();
    std::fs::write(folder.join("contents").join(&digest), "one\ntwo\n").unwrap();
    let entry = json!({"type": "regular", "mode": 0o644, "size": 8, "sha256": digest});
    let manifest = json!({"version": 1, "workspace": "/w", "since_nanos": 0, "saved_nanos": 0,
        "changes": [{"path": "note.md", "kind": "added", "entry": entry}]});
    std::fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
}

/// Returns the outcome of `s1` in the index.
fn outcome(stage: &Stage) -> Option<&'static str> {
    let data = DataDir::open(stage.directory.path().join("data")).unwrap();
    let index = SessionIndex::open(&data, Arc::new(SystemClock)).unwrap();
    index.get(&"s1".parse().unwrap()).unwrap().outcome.map(SessionOutcome::as_str)
}

async fn import_keeps_the_metadata_of_the_session() {
    let (stage, other) = (Stage::new(), Stage::new());
    let made = json!({"agent": "mock", "directory": stage.workspace(), "title": "A title"}).to_string();
    assert_eq!(stage.client.post("/v1/sessions/s1", &made).await.status, 200);
    stage.client.post("/v1/sessions/s1/messages/stream", r#"{"message":"/ask hello"}"#).await;
    stage.client.post("/v1/sessions/s1/terminate", "").await;
    plant_changes(&stage, "s1");
    let mut files = unpacked(&stage.client.get("/v1/sessions/s1/export").await.body);
    // A time in the past, and an unusual end.
    let mut session: Value = serde_json::from_slice(&files["session.json"]).unwrap();
    session["createdAt"] = json!(1_000_000);
    session["nativeSessionId"] = json!("of-the-agent");
    files.insert("session.json".to_owned(), session.to_string().into_bytes());
    replace(&mut files, "journal.jsonl", r#""reason":"terminated""#, r#""reason":"completed""#);
    vouch(&mut files);

    let taken = import(&other, packed(&files)).await;
    assert_eq!(taken.status, 200, "{}", taken.text());
    for field in ["agent", "title", "directory", "createdAt", "nativeSessionId", "eventCount"] {
        assert_eq!((field, &taken.json()[field]), (field, &session[field]));
    }
    assert_eq!(outcome(&other), Some("completed"));
    let both = ["changes?format=stat", "changes?format=diff", "usage"];
    for what in both.map(|what| format!("/v1/sessions/s1/{what}")) {
        let (here, there) = (stage.client.get(&what).await, other.client.get(&what).await);
        assert_eq!((there.status, there.text()), (200, here.text()), "{what}");
    }
    let changes = async |stage: &Stage| stage.client.get("/v1/sessions/s1/changes").await.json()["changes"].clone();
    assert_eq!(changes(&other).await, changes(&stage).await);
    assert_eq!(changes(&other).await[0]["path"], "note.md");
    assert_eq!(other.client.get("/v1/sessions/s1/usage").await.json()["calls"], 1);
    assert_eq!(other.client.get("/v1/usage").await.json()["rows"], json!([]), "another host's bill is in the ledger");

    let applied = other.client.post("/v1/sessions/s1/apply", "").await;
    assert_eq!((applied.status, &applied.json()["code"]), (400, &"invalid_request".into()), "{}", applied.text());
    assert_eq!(other.client.post("/v1/sessions/s1/discard", "").await.status, 204);
    assert_eq!(other.client.get("/v1/sessions/s1/changes").await.json()["changes"], json!([]));
    assert_eq!(delete(&other, "/v1/sessions/s1").await.status, 204);
    assert!(!other.directory.path().join("data/imported/s1").exists());
}

async fn deleted_session_can_be_imported_with_another_id() {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.client.post("/v1/sessions/s1/messages/stream", r#"{"message":"/ask hello"}"#).await;
    stage.until_idle("s1").await;
    let before = stage.client.get("/v1/sessions/s1/events").await.json();
    let bundle = stage.client.get("/v1/sessions/s1/export").await.body.to_vec();
    assert_eq!(delete(&stage, "/v1/sessions/s1").await.status, 204);
    assert_eq!(import(&stage, bundle.clone()).await.status, 409);
    let taken = import_to(&stage, "/v1/import?as=s2", bundle.clone()).await;
    assert_eq!((taken.status, &taken.json()["sessionId"]), (200, &json!("s2")), "{}", taken.text());
    let after = stage.client.get("/v1/sessions/s2/events").await.json();
    let (before, after) = (before["events"].as_array().unwrap(), after["events"].as_array().unwrap());
    for (one, other) in before.iter().zip(after) {
        for field in ["sequence", "time", "type", "data"] {
            assert_eq!(one[field], other[field]);
        }
    }
    assert_eq!(after.len(), before.len() + 1);
    let again = import_to(&stage, "/v1/import?as=s2", bundle.clone()).await;
    assert_eq!((again.status, &again.json()["code"]), (409, &"session_already_exists".into()));
    assert_eq!(import_to(&stage, "/v1/import?as=a/b", bundle).await.status, 400);

    let played = stage.client.post("/v1/sessions/s2/replay", "").await;
    assert_eq!((played.status, &played.json()["same"]), (200, &json!(true)), "{}", played.text());
    let copy = stage.client.get("/v1/sessions/s2/export").await.body.to_vec();
    assert_eq!(import(&Stage::new(), copy).await.status, 200, "an imported session cannot be exported");
}

async fn inconsistent_bundle_is_refused() {
    let (stage, other) = (Stage::new(), Stage::new());
    stage.session("s1").await;
    let whole = unpacked(&stage.client.get("/v1/sessions/s1/export").await.body);
    let check = async |word: &str, vouched: bool, change: fn(&mut Files)| {
        let mut files = whole.clone();
        change(&mut files);
        if vouched {
            vouch(&mut files);
        }
        let refused = import(&other, packed(&files)).await;
        assert_eq!((refused.status, &refused.json()["code"]), (422, &"bundle_invalid".into()), "{word}");
        let detail = refused.json()["detail"].as_str().unwrap().to_owned();
        assert!(detail.contains(word) && !detail.contains("trajectory"), "{word}: {detail}");
    };
    check("`journal.jsonl` does not match", false, cut_last_line).await;
    check("`session.json` does not match", false, |files| replace(files, "session.json", "mock", "claude")).await;
    check("`policy.json` is missing", false, |files| drop(files.remove("policy.json"))).await;
    check("unexpected file `more`", false, |files| drop(files.insert("more".to_owned(), Vec::new()))).await;
    check("`manifest.json` is missing", false, |files| drop(files.remove("manifest.json"))).await;
    check("lists", true, cut_last_line).await;
    check("line 2 of `journal.jsonl`", true, |files| {
        replace(files, "journal.jsonl", "\"sentences\"", "\"sentencez\"");
    })
    .await;
    check("changes.json", true, |files| drop(files.insert("changes.json".to_owned(), b"{}".to_vec()))).await;
    assert_eq!(other.client.get("/v1/sessions").await.json()["sessions"], json!([]));
    let left = std::fs::read_dir(other.directory.path().join("data/trajectory")).unwrap().count();
    assert_eq!(left, 0, "something is left of a bundle that was refused");
    assert_eq!(import(&other, packed(&whole)).await.status, 200);
}

async fn changed_bundle_is_refused() {
    let (stage, other) = (Stage::new(), Stage::new());
    stage.session("s1").await;
    let bundle = stage.client.get("/v1/sessions/s1/export").await.body.to_vec();
    // The hash of a line is in the next line.
    let changed = String::from_utf8_lossy(&bundle).replace("policy.effective", "policy.defective").into_bytes();
    assert_eq!(changed.len(), bundle.len());
    let mut all_bad = vec![changed, b"no tar at all".to_vec(), Vec::new(), bundle[..bundle.len() / 2].to_vec()];
    // Also if it is cut between two files or in the end marker.
    all_bad.extend((512..bundle.len()).step_by(512).map(|end| bundle[..end].to_vec()));
    for bad in all_bad {
        let refused = import(&other, bad).await;
        assert_eq!((refused.status, &refused.json()["code"]), (422, &"bundle_invalid".into()), "{}", refused.text());
    }
    assert_eq!(other.client.get("/v1/sessions").await.json()["sessions"], json!([]));
}

async fn policy_of_a_session_is_returned() {
    let stage = Stage::new();
    stage.session("s1").await;
    let policy = stage.client.get("/v1/sessions/s1/policy").await.json();
    assert_eq!(policy["backend"], "unconfined");
    assert!(!policy["keys"].is_null());
}

async fn message_with_a_repeated_key_is_accepted_once() {
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
