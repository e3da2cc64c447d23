//! Access control: tokens, scopes and host names.

use axum::body::Body;
use http::Request;
use server::{AccessToken, AuthMode, ServerConfig, TokenScope};

use crate::client::ApiResponse;
use crate::stage::{Stage, config};

crate::trials!(
    only_health_needs_no_token,
    token_allows_only_its_scopes,
    caller_learns_its_own_scopes,
    inspector_is_served_with_a_strict_policy,
    session_token_of_the_gateway_is_rejected,
    unknown_host_is_refused_even_with_a_token,
    token_cannot_open_more_sessions_than_its_limit,
);

async fn token_cannot_open_more_sessions_than_its_limit() {
    let budget = session::HostBudget { sessions_per_token: 1, ..session::HostBudget::default() };
    let stage = Stage::within(budget, ServerConfig { auth: AuthMode::Tokens(tokens()), ..config() });
    let create = async |token: &str, id: &str| {
        call(&stage, token, "POST", &format!("/v1/sessions/{id}"), r#"{"agent":"mock"}"#).await
    };
    assert_eq!(create("driver", "s1").await.status, 200);
    let refused = create("driver", "s2").await;
    assert_eq!((refused.status, &refused.json()["code"]), (429, &"too_many_sessions".into()), "{}", refused.text());
    assert_eq!(create("admin", "s3").await.status, 200, "the limit does not apply to the operator");
    let metrics = call(&stage, "admin", "GET", "/metrics", "").await;
    assert!(
        metrics.text().contains("viv_host_limit_reached_total{limit=\"sessions_per_token\"} "),
        "{}",
        metrics.text()
    );
}

fn guarded() -> Stage {
    Stage::with(ServerConfig { auth: AuthMode::Tokens(tokens()), ..config() })
}

fn tokens() -> Vec<AccessToken> {
    vec![
        AccessToken::new("admin", [TokenScope::Admin]),
        AccessToken::new("reader", [TokenScope::Read]),
        AccessToken::new("driver", [TokenScope::Drive, TokenScope::Read]),
        AccessToken::new("answerer", [TokenScope::Answer]),
    ]
}

async fn call(stage: &Stage, token: &str, method: &str, path: &str, body: &str) -> ApiResponse {
    let builder = Request::builder().method(method).uri(path).header("host", "localhost");
    let builder = builder.header("authorization", format!("Bearer {token}")).header("content-type", "application/json");
    stage.client.call(builder.body(Body::from(body.to_owned())).unwrap()).await
}

async fn only_health_needs_no_token() {
    let stage = guarded();
    assert_eq!(stage.client.get("/v1/health").await.json(), serde_json::json!({"status": "ok"}));
    for path in ["/v1/agents", "/v1/sessions", "/v1/sessions/s1", "/v1/sessions/s1/events", "/v1/pending"] {
        let refused = stage.client.get(path).await;
        assert_eq!((refused.status, &refused.json()["code"]), (401, &"token_invalid".into()), "{path}");
        assert_eq!(refused.headers["www-authenticate"], "Bearer");
    }
    for path in ["/v1/sessions/s1", "/v1/sessions/s1/terminate", "/v1/sessions/s1/permissions/p/reply"] {
        assert_eq!(stage.client.post(path, "{}").await.status, 401, "{path}");
    }
}

async fn token_allows_only_its_scopes() {
    let stage = guarded();
    let create = r#"{"agent":"mock"}"#;
    assert_eq!(call(&stage, "reader", "POST", "/v1/sessions/s1", create).await.status, 403);
    assert_eq!(call(&stage, "driver", "POST", "/v1/sessions/s1", create).await.status, 200);
    assert_eq!(call(&stage, "reader", "GET", "/v1/sessions/s1/events", "").await.status, 200);
    assert_eq!(call(&stage, "answerer", "GET", "/v1/sessions/s1", "").await.status, 403);
    let reply = "/v1/sessions/s1/permissions/per_1_1/reply";
    assert_eq!(call(&stage, "driver", "POST", reply, r#"{"reply":"once"}"#).await.status, 403);
    assert_eq!(call(&stage, "answerer", "POST", reply, r#"{"reply":"once"}"#).await.status, 404);
    let widen = "/v1/sessions/s1/policy/grant";
    let more = r#"{"rules":["net.enabled=true"],"seconds":60}"#;
    for token in ["answerer", "driver"] {
        assert_eq!(call(&stage, token, "POST", widen, more).await.status, 403, "{token} lets a session reach more");
    }
    assert_eq!(call(&stage, "admin", "POST", "/v1/sessions/s1/terminate", "").await.status, 204);
    assert_eq!(call(&stage, "nobody", "GET", "/v1/sessions", "").await.status, 401);
}

async fn session_token_of_the_gateway_is_rejected() {
    let stage = guarded();
    let (_, token) = gateway::SessionToken::issue();
    assert_eq!(call(&stage, &token, "GET", "/v1/sessions", "").await.status, 401);
}

async fn unknown_host_is_refused_even_with_a_token() {
    let stage = guarded();
    for (header, value) in [("host", "evil.example.org"), ("origin", "https://evil.example.org")] {
        let mut request =
            Request::get("/v1/sessions").header("authorization", "Bearer admin").body(Body::empty()).unwrap();
        request.headers_mut().insert("host", "localhost".parse().unwrap());
        request.headers_mut().insert(header, value.parse().unwrap());
        let refused = stage.client.call(request).await;
        assert_eq!((refused.status, &refused.json()["code"]), (403, &"host_not_allowed".into()));
    }
}

async fn caller_learns_its_own_scopes() {
    let stage = guarded();
    for (token, scopes) in [
        ("reader", vec!["read"]),
        ("driver", vec!["read", "drive"]),
        ("answerer", vec!["answer"]),
        ("admin", vec!["read", "drive", "answer", "admin"]),
    ] {
        let told = call(&stage, token, "GET", "/v1/whoami", "").await;
        assert_eq!((told.status, &told.json()["scopes"]), (200, &serde_json::json!(scopes)), "{token}");
    }
    assert_eq!(call(&stage, "unknown", "GET", "/v1/whoami", "").await.status, 401);
    assert_eq!(stage.client.get("/v1/whoami").await.status, 401);
}

async fn inspector_is_served_with_a_strict_policy() {
    let stage = guarded();
    let page = stage.client.get("/ui/").await;
    assert_eq!(page.status, 200, "{}", page.text());
    let policy = page.headers["content-security-policy"].to_str().unwrap();
    assert!(policy.starts_with("default-src 'none'; script-src 'self'; style-src 'self'"), "{policy}");
    assert!(!policy.contains("unsafe"), "{policy}");
    assert_eq!(page.headers["x-content-type-options"], "nosniff");
    let browser = Request::get("/").header("host", "localhost").header("accept", "text/html,*/*");
    let led = stage.client.call(browser.body(Body::empty()).unwrap()).await;
    assert_eq!((led.status, led.headers["location"].to_str().unwrap()), (303, "/ui/"));
    for path in ["/", "/ui/../api.token", "/ui/assets/none.js", "/ui/%2e%2e/api.token"] {
        assert_eq!(stage.client.get(path).await.status, 404, "{path}");
    }
}
