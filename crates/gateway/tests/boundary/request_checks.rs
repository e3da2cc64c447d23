//! Checks of a request before it is sent upstream: token, route, model list, size, JSON and request budget.

use std::sync::Arc;

use crate::support::{
    test_client::TestResponse,
    test_gateway::{TestGateway, prompt},
};
use bytes::Bytes;
use gateway::{GatewayLimits, PriceTable, VendorConfig, VendorKind, VendorUpstream};
use http::{Method, Request, StatusCode};
use http_body_util::Full;
use policy::{BaseLayer, CeilingLayer, PolicySource};
use serde_json::{Value, json};
use store::{LimitAmount, LimitScope, LimitWindow, UsageLimit};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

const HELLO: &str = "  - answer: [text: 'Hello, ${prompt}!']\n";

#[track_caller]
fn check_rejected(answer: &TestResponse, status: u16, kind: &str) {
    assert_eq!(answer.status.as_u16(), status);
    assert_eq!(answer.headers["x-should-retry"], "false");
    let body = answer.json();
    assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!(kind)), "{body}");
}

fn request(header: Option<(&str, &str)>, path: &str, body: String) -> Request<Full<Bytes>> {
    let mut request = Request::post(path).header("host", "h");
    if let Some((name, value)) = header {
        request = request.header(name, value);
    }
    request.body(Full::new(body.into())).unwrap()
}

#[tokio::test]
async fn wrong_or_missing_token_is_rejected_and_nothing_is_recorded() {
    let gateway = TestGateway::with_script(HELLO);
    for header in
        [None, Some(("authorization", "Bearer viv_ses_wrong")), Some(("x-api-key", "")), Some(("cookie", "a"))]
    {
        let answer = gateway.fetch(request(header, "/v1/messages", prompt("x", false))).await;
        check_rejected(&answer, 403, "permission_error");
        assert_eq!(answer.headers["x-viv-code"], "token_invalid");
    }
    assert!(gateway.events().is_empty());
}

#[tokio::test]
async fn token_is_accepted_in_the_header_of_each_api() {
    let gateway = TestGateway::with_script(HELLO);
    for name in ["x-api-key", "x-goog-api-key"] {
        let answer = gateway.fetch(request(Some((name, &gateway.token)), "/v1/messages", prompt("x", false))).await;
        assert_eq!(answer.status, StatusCode::OK, "{name}");
    }
}

#[tokio::test]
async fn error_has_the_shape_of_the_clients_api() {
    let gateway = TestGateway::with_script(HELLO);
    let openai: Value = gateway.fetch(request(None, "/v1/chat/completions", "{}".into())).await.json();
    assert!(openai["error"]["message"].is_string() && openai["error"]["code"] == "token_invalid");
    let gemini: Value = gateway.fetch(request(None, "/v1beta/models/m:generateContent", "{}".into())).await.json();
    assert_eq!((&gemini["error"]["code"], &gemini["error"]["status"]), (&json!(403), &json!("PERMISSION_DENIED")));
}

#[tokio::test]
async fn only_model_routes_exist() {
    let gateway = TestGateway::with_script(HELLO);
    for path in
        ["/v1/sessions", "/healthz", "/v1/messages/batches", "/v1/messages/../../x", "/metrics", "//v1/messages"]
    {
        let mut request = gateway.request(Method::POST, path, "{}");
        request.headers_mut().insert("anthropic-version", "2023-06-01".parse().unwrap());
        check_rejected(&gateway.fetch(request).await, 404, "not_found_error");
    }
    let mut wrong_method = gateway.request(Method::DELETE, "/v1/messages", "");
    wrong_method.headers_mut().insert("anthropic-version", "2023-06-01".parse().unwrap());
    check_rejected(&gateway.fetch(wrong_method).await, 405, "invalid_request_error");
}

#[tokio::test]
async fn health_check_needs_no_token() {
    let gateway = TestGateway::with_script(HELLO);
    for path in ["/", "/api/hello"] {
        let request = Request::head(path).header("host", "h").body(Full::default()).unwrap();
        assert_eq!(gateway.fetch(request).await.status, StatusCode::OK);
    }
}

#[tokio::test]
async fn models_are_listed_in_the_shape_of_the_clients_api() {
    let gateway = TestGateway::with_script(HELLO);
    let openai = gateway.fetch(gateway.request(Method::GET, "/v1/models", "")).await.json();
    assert_eq!((&openai["object"], &openai["data"][0]["id"]), (&json!("list"), &json!("scripted")));
    let mut request = gateway.request(Method::GET, "/v1/models", "");
    request.headers_mut().insert("anthropic-version", "2023-06-01".parse().unwrap());
    assert_eq!(gateway.fetch(request).await.json()["first_id"], "scripted");
}

#[tokio::test]
async fn allowed_models_of_the_vendor_with_a_price_are_listed() {
    let mut config = VendorConfig::new("stub", VendorKind::Anthropic, "http://127.0.0.1:9");
    config.aliases.insert("claude-fast".into(), "claude-haiku-4-5".into());
    config.aliases.insert("claude-lost".into(), "claude-unknown".into());
    let base = BaseLayer::read(&PolicySource::new(
        "p",
        "version: 1\nmodels:\n  allow: [\"claude-*-4-5\", \"claude-fast\", gpt-5]\n",
    ));
    let policy = policy::effective(&CeilingLayer::built_in().unwrap(), &base.unwrap(), &[]);
    let upstream = Arc::new(VendorUpstream::new(config).unwrap());
    let gateway = TestGateway::with_identity(upstream, PriceTable::built_in().unwrap(), |identity| {
        identity.policy = Some(Arc::new(policy));
    });
    let get = async |path: &str| gateway.fetch(gateway.request(Method::GET, path, "")).await;
    let listed = get("/v1/models").await.json();
    let names: Vec<&str> =
        listed["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert_eq!(names[0], "claude-fast");
    assert!(names.contains(&"claude-sonnet-4-5") && names.contains(&"claude-haiku-4-5"), "{names:?}");
    // Not listed: models of other vendors, without a price, or not allowed by the policy.
    assert!(names[1..].iter().all(|name| name.starts_with("claude-") && name.ends_with("-4-5")), "{names:?}");
    let gemini = get("/v1beta/models").await.json();
    assert_eq!(gemini["models"][0]["name"], "models/claude-fast");
    assert_eq!(get("/v1/models/claude-fast").await.json()["id"], "claude-fast");
    assert_eq!(get("/v1/models/claude%2Dfast").await.json()["id"], "claude-fast");
    assert_eq!(get("/v1beta/models/claude-fast").await.json()["displayName"], "claude-fast");
    for path in ["/v1/models/gpt-5", "/v1/models/claude-lost", "/v1beta/models/x", "/v1/models/"] {
        assert_eq!(get(path).await.status, StatusCode::NOT_FOUND, "{path}");
    }
    assert_eq!(get("/v1beta/models/claude-fast:generateContent").await.status, StatusCode::METHOD_NOT_ALLOWED);
}

#[tokio::test]
async fn body_over_the_limit_is_rejected_with_or_without_a_content_length() {
    let gateway =
        TestGateway::with_script_and_limits(HELLO, GatewayLimits { request_bytes: 300, ..GatewayLimits::default() });
    check_rejected(&gateway.post("/v1/messages", prompt(&"x".repeat(300), false)).await, 413, "request_too_large");
    assert_eq!(gateway.post("/v1/messages", prompt("x", false)).await.status, StatusCode::OK);

    let mut stream = tokio::net::TcpStream::connect(gateway.address).await.unwrap();
    let head = format!(
        "POST /v1/messages HTTP/1.1\r\nhost: h\r\nx-api-key: {}\r\ntransfer-encoding: chunked\r\n\r\n",
        gateway.token
    );
    stream.write_all(head.as_bytes()).await.unwrap();
    stream.write_all(format!("200\r\n{}\r\n", "x".repeat(0x200)).as_bytes()).await.unwrap();
    let mut status = [0; 12];
    stream.read_exact(&mut status).await.unwrap();
    assert_eq!(&status, b"HTTP/1.1 413");
}

#[tokio::test]
async fn invalid_request_body_is_rejected_before_it_is_sent() {
    let gateway = TestGateway::with_script(HELLO);
    for body in ["", "{", "[1]", r#"{"model":"a","model":"b","messages":[]}"#] {
        check_rejected(&gateway.post("/v1/messages", body).await, 400, "invalid_request_error");
    }
    assert!(gateway.events().is_empty());
}

#[tokio::test]
async fn requests_over_the_request_budget_are_rejected() {
    let limit = UsageLimit {
        name: "max_requests",
        scope: LimitScope::Session,
        window: LimitWindow::Ever,
        max: LimitAmount::Requests(2),
    };
    let gateway = TestGateway::with_script_and_budgets(HELLO, vec![limit]);
    assert_eq!(gateway.post("/v1/messages", prompt("x", false)).await.status, StatusCode::OK);
    assert_eq!(gateway.post("/v1/messages/count_tokens", prompt("x", false)).await.status, StatusCode::OK);
    check_rejected(&gateway.post("/v1/messages", prompt("x", false)).await, 402, "billing_error");
    assert_eq!(gateway.wait_for_event("budget.exceeded").await["limit"], "max_requests");
}

#[tokio::test]
async fn token_never_appears_in_the_journal_or_a_response() {
    let gateway = TestGateway::with_script("  - answer: [text: ok]\n");
    let mut answers = Vec::new();
    let path = format!("/v1/messages?beta=true&key={}", gateway.token);
    answers.push(gateway.post(&path, prompt("x", true)).await);
    answers.push(gateway.post(&format!("/v1/{}", gateway.token), "{}").await);
    answers.push(gateway.post("/v1/messages", "{").await);
    gateway.wait_for_event("llm.call").await;
    let journal = serde_json::to_string(&gateway.events()).unwrap();
    assert!(!journal.contains(&gateway.token), "{journal}");
    assert!(!answers[0].text().contains(&gateway.token));
}
