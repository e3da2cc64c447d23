//! Change sets over the API: scopes and refusals. A workspace without an overlay has no changes.

use axum::body::Body;
use base::Digest;
use http::{Method, Request};
use serde_json::{Value, json};
use server::{AccessToken, AuthMode, ServerConfig, TokenScope};

use crate::client::{ApiResponse, request};
use crate::stage::{Stage, config};
use crate::trials;

trials!(
    empty_change_set_is_shown_in_every_format,
    changes_are_applied_or_discarded_after_the_end,
    apply_needs_the_digest_of_the_set_that_was_reviewed,
    earlier_set_is_shown_compared_and_applied,
    saved_changes_of_an_earlier_build_are_set_one,
    read_scope_may_not_apply_changes,
);

async fn empty_change_set_is_shown_in_every_format() {
    let stage = Stage::new();
    stage.session("s1").await;
    let client = &stage.client;
    let empty = client.get("/v1/sessions/s1/changes").await;
    let json = empty.json();
    assert_eq!((&json["set"], &json["changes"]), (&json!(0), &json!([])));
    assert_eq!(tag(&empty), format!("\"{}\"", json["digest"].as_str().unwrap()));
    for (format, media_type, text) in [("stat", "text/plain", "0 paths changed, +0 -0\n"), ("diff", "text/x-diff", "")]
    {
        let answer = client.get(&format!("/v1/sessions/s1/changes?format={format}")).await;
        assert_eq!((answer.status, answer.text().as_str()), (200, text), "{format}");
        assert!(answer.headers["content-type"].to_str().unwrap().starts_with(media_type), "{format}");
    }
    assert_eq!(client.get("/v1/sessions/s1/changes?format=song").await.status, 400);
    assert_eq!(client.get("/v1/sessions/none/changes").await.status, 404);
}

async fn changes_are_applied_or_discarded_after_the_end() {
    let stage = Stage::new();
    stage.session("s1").await;
    for action in ["apply", "discard"] {
        let path = format!("/v1/sessions/s1/{action}");
        let early = stage.client.post(&path, "").await;
        assert_eq!((early.status, &early.json()["code"]), (409, &"session_open".into()), "{action}");
        assert_eq!(early.headers["content-type"], "application/problem+json");
        assert_eq!(stage.client.post(&format!("/v1/sessions/none/{action}"), "").await.status, 404);
    }
    assert_eq!(stage.client.post("/v1/sessions/s1/terminate", "").await.status, 204);
    let empty = tag(&stage.client.get("/v1/sessions/s1/changes").await);
    let applied = apply(&stage, &empty, "").await;
    assert_eq!((applied.status, &applied.json()["applied"]), (200, &json!([])));
    assert_eq!(apply(&stage, &empty, r#"{"path":"a"}"#).await.status, 400);
    assert_eq!(stage.client.post("/v1/sessions/s1/discard", "").await.status, 204);
}

fn tag(response: &ApiResponse) -> String {
    response.headers["etag"].to_str().unwrap().to_owned()
}

/// Calls `apply` with the header `If-Match`.
async fn apply(stage: &Stage, digest: &str, body: &str) -> ApiResponse {
    let mut call = request(Method::POST, "/v1/sessions/s1/apply", body);
    call.headers_mut().insert("if-match", digest.parse().unwrap());
    stage.client.call(call).await
}

/// Writes saved changes with one new file, as builds without change sets did.
fn plant(stage: &Stage, content: &str) {
    let folder = stage.directory.path().join("data/changes/s1");
    std::fs::create_dir_all(folder.join("contents")).unwrap();
    let digest = Digest::of(content.as_bytes()).to_string();
    std::fs::write(folder.join("contents").join(&digest), content).unwrap();
    let entry = json!({"type": "regular", "mode": 0o644, "size": content.len(), "sha256": digest});
    let manifest = json!({"version": 1, "workspace": stage.workspace(), "since_nanos": 0, "saved_nanos": 0,
        "changes": [{"path": "note.md", "kind": "added", "entry": entry}]});
    std::fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
}

/// Returns a stage with an ended session and its changes.
async fn reviewed(content: &str) -> Stage {
    let stage = Stage::new();
    stage.session("s1").await;
    assert_eq!(stage.client.post("/v1/sessions/s1/terminate", "").await.status, 204);
    plant(&stage, content);
    stage
}

#[track_caller]
fn check_refused(response: &ApiResponse, status: u16, code: &str) {
    assert_eq!((response.status, &response.json()["code"]), (status, &json!(code)), "{}", response.text());
}

async fn apply_needs_the_digest_of_the_set_that_was_reviewed() {
    let stage = reviewed("one\n").await;
    let note = stage.workspace().join("note.md");
    let shown = tag(&stage.client.get("/v1/sessions/s1/changes?format=diff").await);
    check_refused(&stage.client.post("/v1/sessions/s1/apply", "").await, 428, "digest_required");
    check_refused(&apply(&stage, "*", "").await, 428, "digest_required");
    let forged = format!("\"{}\"", "0".repeat(64));
    check_refused(&apply(&stage, &forged, "").await, 412, "change_set_changed");
    check_refused(&apply(&stage, &format!("W/{shown}"), "").await, 412, "change_set_changed");
    check_refused(&apply(&stage, &shown[..20], "").await, 412, "change_set_changed");
    // The changes are saved again, as another set.
    plant(&stage, "two\n");
    check_refused(&apply(&stage, &shown, "").await, 412, "change_set_changed");
    assert!(!note.exists());
    let mut discard = request(Method::POST, "/v1/sessions/s1/discard", "");
    discard.headers_mut().insert("if-match", shown.parse().unwrap());
    check_refused(&stage.client.call(discard).await, 412, "change_set_changed");
    let shown = tag(&stage.client.get("/v1/sessions/s1/changes").await);
    let applied = apply(&stage, &format!("{forged}, {shown}"), "").await;
    assert_eq!((applied.status, &applied.json()["applied"][0]["path"]), (200, &json!("note.md")));
    assert_eq!(std::fs::read_to_string(&note).unwrap(), "two\n");
    // The rest is another set, with another digest.
    assert_eq!((&applied.json()["set"], tag(&applied) == shown), (&json!(2), false));
    check_refused(&apply(&stage, &shown, "").await, 412, "change_set_changed");
}

async fn earlier_set_is_shown_compared_and_applied() {
    let stage = reviewed("one\n").await;
    let first = tag(&stage.client.get("/v1/sessions/s1/changes").await);
    assert_eq!(apply(&stage, &first, "").await.status, 200);
    std::fs::remove_file(stage.workspace().join("note.md")).unwrap();
    let get = async |query: &str| stage.client.get(&format!("/v1/sessions/s1/changes{query}")).await;
    let current = get("").await;
    assert_eq!((&current.json()["set"], &current.json()["changes"]), (&json!(2), &json!([])));
    let earlier = get("?set=1").await;
    assert_eq!((tag(&earlier), &earlier.json()["changes"][0]["path"]), (first.clone(), &json!("note.md")));
    assert!(get("?set=1&format=diff").await.text().contains("+one"));
    let differences = get("?set=1&against=2").await.json()["differences"].clone();
    assert_eq!(differences, json!([{"path": "note.md", "kind": "added"}]));
    assert_eq!(get("?against=1").await.json()["differences"][0]["kind"], "deleted");
    for query in ["?set=3", "?set=0", "?against=9"] {
        check_refused(&get(query).await, 404, "change_set_not_found");
    }
    let sets: Value = get("/sets").await.json();
    let numbers: Vec<_> = sets["sets"].as_array().unwrap().iter().map(|set| set["set"].clone()).collect();
    assert_eq!((numbers, &sets["sets"][1]["origin"]), (vec![json!(1), json!(2)], &json!("apply")));
    check_refused(&apply(&stage, &tag(&current), r#"{"set":1}"#).await, 412, "change_set_changed");
    check_refused(&apply(&stage, &first, r#"{"set":7}"#).await, 404, "change_set_not_found");
    let applied = apply(&stage, &first, r#"{"set":1}"#).await;
    assert_eq!((applied.status, &applied.json()["applied"][0]["path"]), (200, &json!("note.md")));
    assert_eq!(std::fs::read_to_string(stage.workspace().join("note.md")).unwrap(), "one\n");
}

async fn saved_changes_of_an_earlier_build_are_set_one() {
    let stage = reviewed("one\n").await;
    let shown = stage.client.get("/v1/sessions/s1/changes").await;
    assert_eq!((&shown.json()["set"], &shown.json()["changes"][0]["path"]), (&json!(1), &json!("note.md")));
    let sets = stage.client.get("/v1/sessions/s1/changes/sets").await.json();
    assert_eq!((&sets["sets"][0]["set"], &sets["sets"][0]["added"]), (&json!(1), &json!(1)), "{sets}");
}

async fn read_scope_may_not_apply_changes() {
    let tokens = vec![AccessToken::new("reader", [TokenScope::Read]), AccessToken::new("driver", [TokenScope::Drive])];
    let stage = Stage::with(ServerConfig { auth: AuthMode::Tokens(tokens), ..config() });
    let status = async |token: &str, method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path).header("host", "localhost");
        let request = request.header("authorization", format!("Bearer {token}"));
        stage.client.call(request.body(Body::empty()).unwrap()).await.status
    };
    assert_eq!(status("reader", "GET", "/v1/sessions/s1/changes").await, 404);
    assert_eq!(status("driver", "GET", "/v1/sessions/s1/changes").await, 403);
    for path in ["/v1/sessions/s1/apply", "/v1/sessions/s1/discard"] {
        assert_eq!(status("reader", "POST", path).await, 403, "{path}");
        assert_eq!(status("driver", "POST", path).await, 404, "{path}");
        assert_eq!(status("nobody", "POST", path).await, 401, "{path}");
    }
}
