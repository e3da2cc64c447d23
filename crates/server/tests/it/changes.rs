//! Change sets over the API: scopes and refusals. A workspace without an overlay has no changes.

use axum::body::Body;
use http::Request;
use server::{AccessToken, AuthMode, ServerConfig, TokenScope};

use crate::stage::{Stage, config};
use crate::trials;

trials!(
    empty_change_set_is_shown_in_every_format,
    changes_are_applied_or_discarded_after_the_end,
    read_scope_may_not_apply_changes,
);

async fn empty_change_set_is_shown_in_every_format() {
    let stage = Stage::new();
    stage.session("s1").await;
    let client = &stage.client;
    assert_eq!(client.get("/v1/sessions/s1/changes").await.json(), serde_json::json!({"changes": []}));
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
    assert_eq!(stage.client.post("/v1/sessions/s1/apply", "").await.json(), serde_json::json!({"applied": []}));
    assert_eq!(stage.client.post("/v1/sessions/s1/apply", r#"{"path":"a"}"#).await.status, 400);
    assert_eq!(stage.client.post("/v1/sessions/s1/discard", "").await.status, 204);
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
