//! Invalid input: each gets a problem document, and nothing is started or lost.

use axum::body::Body;
use http::{Method, Request};
use serde_json::Value;

use crate::client::{ApiResponse, request};
use crate::stage::{Stage, config};

crate::trials!(
    every_refusal_is_a_problem_document,
    session_id_cannot_contain_a_path,
    oversized_body_is_refused,
    message_body_limit_is_larger,
    request_id_of_the_caller_is_kept,
    refused_requests_start_nothing,
    refusal_has_a_detail_and_a_hint,
    json_list_is_not_accepted_as_an_object,
    limit_of_zero_returns_no_row,
    unknown_query_parameter_is_refused,
    title_has_a_largest_length,
);

async fn json_list_is_not_accepted_as_an_object() {
    let stage = Stage::new();
    stage.session("s1").await;
    for (method, path, body) in [
        (Method::POST, "/v1/sessions/list", r#"["mock",null,null,null,null,null,null,null,null,null,null]"#),
        (Method::POST, "/v1/sessions/s1/messages", r#"["hi",[]]"#),
        (Method::PATCH, "/v1/sessions/s1", r#" ["title"]"#),
    ] {
        let problem = check(&stage.client.call(request(method, path, body)).await, 400, "invalid_request");
        let detail = problem["detail"].as_str().unwrap();
        assert!(!detail.contains("struct") && problem["hint"].is_string(), "{problem}");
    }
}

async fn limit_of_zero_returns_no_row() {
    let stage = Stage::new();
    stage.session("s1").await;
    let page = stage.client.get("/v1/sessions/s1/events?limit=0").await.json();
    assert_eq!((&page["events"], &page["hasMore"]), (&serde_json::json!([]), &true.into()));
    // A page of a list with no row has no cursor, so a client could not continue.
    for path in ["/v1/sessions?limit=0", "/v1/usage?limit=0", "/v1/sessions/s1/pending?limit=0"] {
        check(&stage.client.get(path).await, 400, "invalid_request");
    }
}

/// Otherwise a filter with a typing error would return everything.
async fn unknown_query_parameter_is_refused() {
    let stage = Stage::new();
    stage.session("s1").await;
    let posted = stage.client.post("/v1/sessions/s2?agnet=mock", r#"{"agent":"mock"}"#).await;
    check(&posted, 400, "invalid_request");
    for path in [
        "/v1/sessions?agnet=claude",
        "/v1/sessions/s1?x=1",
        "/v1/sessions/s1/events?ofset=3",
        "/v1/sessions/s1/events/sse?Offset=3",
        "/v1/events?sesion=s1",
        "/v1/agents?x",
        "/v1/fs/entries?session_id=s1&recursive=true",
    ] {
        let problem = check(&stage.client.get(path).await, 400, "invalid_request");
        assert!(problem["detail"].as_str().unwrap().starts_with("unknown query parameter `"), "{problem}");
    }
    for path in
        ["/v1/sessions?limit=1", "/v1/sessions/s1/events?includeRaw=true&offset=0", "/v1/fs/entries?sessionId=s1"]
    {
        assert_eq!(stage.client.get(path).await.status, 200, "{path}");
    }
}

async fn title_has_a_largest_length() {
    let stage = Stage::new();
    let body = |title: usize| serde_json::json!({"agent": "mock", "title": "é".repeat(title)}).to_string();
    check(&stage.client.post("/v1/sessions/s1", &body(1001)).await, 400, "invalid_request");
    assert_eq!(stage.client.post("/v1/sessions/s1", &body(1000)).await.status, 200);
}

/// Checks that a response is a complete problem document, and returns it.
#[track_caller]
fn check(answer: &ApiResponse, status: u16, code: &str) -> Value {
    assert_eq!(answer.headers["content-type"], "application/problem+json", "{}", answer.text());
    let problem = answer.json();
    assert_eq!((answer.status, problem["code"].as_str().unwrap()), (status, code), "{problem}");
    assert_eq!(problem["status"], status);
    assert_eq!(problem["type"], format!("urn:viv:error:{code}"));
    assert_eq!(problem["request_id"], answer.headers["x-request-id"].to_str().unwrap());
    assert!(!problem["detail"].as_str().unwrap().is_empty());
    problem
}

async fn every_refusal_is_a_problem_document() {
    let stage = Stage::new();
    stage.session("s1").await;
    let with_type = |kind: &str, body: &str| {
        let builder = Request::post("/v1/sessions/x").header("host", "localhost").header("content-type", kind);
        builder.body(Body::from(body.to_owned())).unwrap()
    };
    let post = |path: &str, body: &str| request(Method::POST, path, body);
    let get = |path: &str| request(Method::GET, path, "");
    let refused = [
        (get("/v1/nothing"), 404, "route_not_found"),
        (get("/"), 404, "route_not_found"),
        (request(Method::DELETE, "/v1/sessions", ""), 405, "method_not_allowed"),
        (request(Method::PUT, "/v1/health", "{}"), 405, "method_not_allowed"),
        (post("/v1/sessions/x", "{"), 400, "invalid_request"),
        (post("/v1/sessions/x", "[]"), 400, "invalid_request"),
        (post("/v1/sessions/x", r#"{"agent":7}"#), 400, "invalid_request"),
        (post("/v1/sessions/x", "{}"), 400, "invalid_request"),
        (post("/v1/sessions/x", r#"{"agent":"mock","colour":"red"}"#), 400, "invalid_request"),
        (with_type("text/plain", r#"{"agent":"mock"}"#), 415, "unsupported_media_type"),
        (request(Method::POST, "/v1/sessions/x", ""), 415, "unsupported_media_type"),
        (with_type("application/json", "\u{0}"), 400, "invalid_request"),
        (post("/v1/sessions/x", r#"{"agent":"nobody"}"#), 400, "unsupported_agent"),
        (post("/v1/sessions/x", r#"{"agent":"mock","permissionMode":"yolo"}"#), 400, "mode_not_supported"),
        (post("/v1/sessions/x", r#"{"agent":"mock","directory":"here"}"#), 400, "invalid_request"),
        (post("/v1/sessions/x", r#"{"agent":"mock","directory":"/nowhere/at/all"}"#), 400, "invalid_request"),
        (post("/v1/sessions/s1", r#"{"agent":"mock"}"#), 409, "session_already_exists"),
        (post("/v1/sessions/nobody/messages", r#"{"message":"hi"}"#), 404, "session_not_found"),
        (post("/v1/sessions/nobody/messages/stream", r#"{"message":"hi"}"#), 404, "session_not_found"),
        (post("/v1/sessions/s1/messages", r#"{"text":"hi"}"#), 400, "invalid_request"),
        (post("/v1/sessions/s1/messages", r#"{"message":"hi","whenBusy":"maybe"}"#), 400, "invalid_request"),
        (get("/v1/sessions/nobody"), 404, "session_not_found"),
        (get("/v1/sessions/nobody/events"), 404, "session_not_found"),
        (get("/v1/sessions/nobody/events/sse"), 404, "session_not_found"),
        (get("/v1/sessions/s1/events?offset=-1"), 400, "invalid_request"),
        (get("/v1/sessions/s1/events?limit=many"), 400, "invalid_request"),
        (get("/v1/sessions?cursor=somewhere"), 400, "invalid_request"),
        (post("/v1/sessions/nobody/terminate", "{}"), 404, "session_not_found"),
        (post("/v1/sessions/s1/permissions/per_9_9/reply", r#"{"reply":"once"}"#), 404, "permission_not_found"),
        (post("/v1/sessions/s1/permissions/per_9_9/reply", r#"{"reply":"perhaps"}"#), 400, "invalid_request"),
        (post("/v1/sessions/s1/questions/que_9_9/reply", r#"{"answers":[["a"]]}"#), 404, "question_not_found"),
        (post("/v1/sessions/s1/questions/que_9_9/reject", "{}"), 404, "question_not_found"),
    ];
    for (request, status, code) in refused {
        let what = format!("{} {}", request.method(), request.uri());
        let answer = stage.client.call(request).await;
        assert_eq!(answer.status, status, "{what}: {}", answer.text());
        check(&answer, status, code);
    }
}

async fn session_id_cannot_contain_a_path() {
    let stage = Stage::new();
    for id in
        ["..", "%2e%2e", "%2E%2E", "a%2Fb", "..%2Fetc", "a%00b", "%20", "a..b", ".hidden", "%C3%A9", &"x".repeat(129)]
    {
        let answer = stage.client.post(&format!("/v1/sessions/{id}"), r#"{"agent":"mock"}"#).await;
        check(&answer, 400, "invalid_request");
        check(&stage.client.get(&format!("/v1/sessions/{id}/events")).await, 400, "invalid_request");
    }
    check(&stage.client.post("/v1/sessions/../../etc/passwd", r#"{"agent":"mock"}"#).await, 404, "route_not_found");
}

async fn oversized_body_is_refused() {
    let stage = Stage::with(server::ServerConfig { message_bytes: 4096, ..config() });
    stage.session("s1").await;
    let large = serde_json::json!({"message": "x".repeat(5000)}).to_string();
    check(&stage.client.post("/v1/sessions/s1/messages", &large).await, 413, "body_too_large");
    let large = serde_json::json!({"reply": "x".repeat(2 << 20)}).to_string();
    check(&stage.client.post("/v1/sessions/s1/permissions/p/reply", &large).await, 413, "body_too_large");
    // Only messages may be so large.
    let stage = Stage::new();
    let large = serde_json::json!({"agent": "mock", "title": "x".repeat(2 << 20)}).to_string();
    check(&stage.client.post("/v1/sessions/s1", &large).await, 413, "body_too_large");
}

async fn message_body_limit_is_larger() {
    let stage = Stage::new();
    stage.session("s1").await;
    stage.send("s1", &format!("/echo {}", "x".repeat(3 << 20))).await;
}

async fn request_id_of_the_caller_is_kept() {
    let stage = Stage::new();
    let named = |name: &str| {
        let builder = Request::get("/v1/nothing").header("host", "localhost").header("x-request-id", name);
        builder.body(Body::empty()).unwrap()
    };
    let answer = stage.client.call(named("mine-7")).await;
    assert_eq!(check(&answer, 404, "route_not_found")["request_id"], "mine-7");
    for foreign in ["a b", "<script>", &"x".repeat(200)] {
        let answer = stage.client.call(named(foreign)).await;
        assert_ne!(check(&answer, 404, "route_not_found")["request_id"], foreign);
    }
}

async fn refused_requests_start_nothing() {
    let stage = Stage::new();
    for body in ["{", r#"{"agent":"nobody"}"#, r#"{"agent":"mock","directory":"/nowhere/at/all"}"#] {
        stage.client.post("/v1/sessions/s1", body).await;
    }
    assert_eq!(stage.client.get("/v1/sessions").await.json(), serde_json::json!({"sessions": []}));
    assert!(!stage.directory.path().join("scratch").exists(), "a sandbox was made");
    let journals = std::fs::read_dir(stage.directory.path().join("data/trajectory")).unwrap().count();
    assert_eq!(journals, 0);
}

async fn refusal_has_a_detail_and_a_hint() {
    let stage = Stage::new();
    stage.session("s1").await;
    let bundle = stage.client.get("/v1/sessions/s1/export").await.body;
    assert_eq!(stage.client.call(request(Method::DELETE, "/v1/sessions/s1", "")).await.status, 204);
    let import = Request::post("/v1/import").header("host", "localhost").body(Body::from(bundle)).unwrap();
    let get = |path: &str| request(Method::GET, path, "");
    for (request, code, word, hint) in [
        (get("/v1/agents/nobody/models"), "unsupported_agent", "unknown agent `nobody`", "viv agents ls"),
        (get("/v1/agents/nobody/modes"), "unsupported_agent", "unknown agent `nobody`", "viv agents ls"),
        (get("/v1/agents/claude/models"), "agent_not_installed", "`claude`", "viv agents install claude"),
        (get("/v1/nothing"), "route_not_found", "`/v1/nothing`", "viv api GET /openapi.json"),
        (
            request(Method::POST, "/v1/sessions/s2", r#"{"agent":"mock","directory":"/nowhere/at/all"}"#),
            "invalid_request",
            "`/nowhere/at/all`",
            "viv api GET /openapi.json",
        ),
        (
            request(Method::POST, "/v1/sessions/s2", r#"{"agent":"mock","permissionMode":"yolo"}"#),
            "mode_not_supported",
            "`yolo`",
            "viv api GET /openapi.json",
        ),
        (get("/v1/fs/entries"), "invalid_request", "`session_id` is missing", "viv sessions ls"),
        (get("/v1/fs/file?path=a"), "invalid_request", "`session_id` is missing", "viv sessions ls"),
        (import, "session_already_exists", "deleted session", "viv sessions ls"),
        (
            request(Method::POST, "/v1/sessions/s1", r#"{"agent":"mock"}"#),
            "session_already_exists",
            "deleted session",
            "viv sessions ls",
        ),
    ] {
        let problem = stage.client.call(request).await.json();
        assert_eq!((&problem["code"], &problem["hint"]), (&code.into(), &hint.into()), "{problem}");
        assert!(problem["detail"].as_str().unwrap().contains(word), "{problem}");
    }
}
