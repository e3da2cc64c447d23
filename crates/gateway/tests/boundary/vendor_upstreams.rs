//! Vendor upstreams over real connections: the request that the vendor receives and the response that the client gets.

use std::{sync::Arc, time::Duration};

use gateway::{
    GatewayLimits, ModelPrice, PriceTable, TokenRates, UpstreamTimeouts, VendorConfig, VendorKind, VendorUpstream,
};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use secret::Secret;
use serde_json::json;
use tokio::{io::AsyncWriteExt, sync::Notify};

use crate::support::{
    stub_vendor::{Connection, StubVendor, http_event_stream, http_response},
    test_client::{TestClient, next_frame},
    test_gateway::{TestGateway, prompt},
};

pub(crate) const KEY: &str = "sk-canary-0123456789";
pub(crate) const MESSAGE: &str = r#"{"id":"msg_1","type":"message","role":"assistant","model":"claude-real","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":10,"output_tokens":4,"cache_read_input_tokens":2}}"#;

pub(crate) fn config(kind: VendorKind, vendor: &StubVendor) -> VendorConfig {
    let mut config = VendorConfig::new("stub", kind, vendor.url());
    config.key = Some(Secret::new(KEY));
    config.timeouts = UpstreamTimeouts {
        first_byte: Duration::from_secs(20),
        idle: Duration::from_secs(20),
        ..UpstreamTimeouts::default()
    };
    config
}

pub(crate) fn start_gateway(config: VendorConfig) -> TestGateway {
    start_gateway_with_limits(config, GatewayLimits::default())
}

pub(crate) fn start_gateway_with_limits(config: VendorConfig, limits: GatewayLimits) -> TestGateway {
    TestGateway::with_upstream(Arc::new(VendorUpstream::new(config).unwrap()), prices(), limits)
}

fn prices() -> PriceTable {
    let price = ModelPrice::flat(TokenRates {
        input: 3_000_000,
        output: 15_000_000,
        cache_read: 300_000,
        ..TokenRates::default()
    });
    ["claude-test", "claude-real", "gpt-test", "gemini-test", "their-model"]
        .into_iter()
        .fold(PriceTable::default(), |prices, model| prices.with_price(model, price.clone()))
}

#[tokio::test]
async fn call_is_forwarded_unchanged_and_charged() {
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", MESSAGE)).await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let body = "{ \"model\":\"claude-test\",\"messages\":[ {\"role\":\"user\",\"content\":\"\\u0068i  \"}],\"max_tokens\":10,\"temperature\":1.0e0 }";
    let mut request = gateway.request(Method::POST, "/v1/messages?beta=true", body);
    request.headers_mut().insert("anthropic-beta", "a-1,b-2".parse().unwrap());
    request.headers_mut().insert("cookie", "no=1".parse().unwrap());
    request.headers_mut().insert("accept-encoding", "zstd".parse().unwrap());
    let answer = gateway.fetch(request).await;
    assert_eq!((answer.status, &answer.body[..]), (StatusCode::OK, MESSAGE.as_bytes()));

    let received = &vendor.received()[0];
    assert_eq!(received.line(), "POST /v1/messages?beta=true HTTP/1.1");
    assert_eq!(received.body, body);
    assert_eq!(received.header("x-api-key"), Some(KEY));
    assert_eq!(received.header("anthropic-beta"), Some("a-1,b-2"));
    assert_eq!(received.header("host"), Some(vendor.address.to_string().as_str()));
    assert_eq!(received.header("accept-encoding"), Some("identity"));
    for absent in ["authorization", "cookie", "x-should-retry"] {
        assert_eq!(received.header(absent), None, "{absent}");
    }
    let call = gateway.wait_for_event("llm.call").await;
    assert_eq!(call["cost_picos"], 10 * 3_000_000 + 4 * 15_000_000 + 2 * 300_000);
    assert_eq!((&call["model"], &call["model_answered"]), (&json!("claude-test"), &json!("claude-real")));
}

#[tokio::test]
async fn stream_is_forwarded_piece_by_piece() {
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let vendor = StubVendor::with_handler(move |_, mut connection: Box<dyn Connection>| {
        let gate = gate.clone();
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            connection.write_all(format!("{head}9\r\ndata: 1\n\n\r\n").as_bytes()).await.ok()?;
            gate.notified().await;
            connection.write_all(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n").await.ok()?;
            Some(connection)
        }
    })
    .await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let mut client = TestClient::connect(gateway.address).await;
    let mut body = client.send(gateway.request(Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    // The second piece is sent only after the first has arrived.
    assert_eq!(next_frame(&mut body).await.unwrap(), "data: 1\n\n");
    opened.notify_one();
    assert_eq!(next_frame(&mut body).await.unwrap(), "data: 2\n\n");
}

#[tokio::test]
async fn connection_is_reused_for_the_next_call() {
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", MESSAGE)).await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let mut client = TestClient::connect(gateway.address).await;
    for _ in 0..3 {
        let answer = client.send(gateway.request(Method::POST, "/v1/messages", prompt("x", false))).await;
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), MESSAGE);
    }
    assert!(vendor.received().iter().all(|request| request.connection == 0));
}

#[tokio::test]
async fn alias_changes_only_the_model_name() {
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", MESSAGE)).await;
    let mut config = config(VendorKind::Anthropic, &vendor);
    config.aliases.insert("fast".into(), "claude-test".into());
    let gateway = start_gateway(config);
    let answer = gateway.post("/v1/messages", r#"{"max_tokens": 5,"model": "fast", "messages":[]}"#).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(vendor.received()[0].body, r#"{"max_tokens": 5,"model": "claude-test", "messages":[]}"#);
    let models = gateway.fetch(gateway.request(Method::GET, "/v1/models", "")).await.json();
    assert_eq!(models["data"][0]["id"], "fast");
}

#[tokio::test]
async fn model_without_a_price_is_rejected_before_sending() {
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", MESSAGE)).await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let answer = gateway.post("/v1/messages", r#"{"model":"claude-next","messages":[]}"#).await;
    assert_eq!(
        (answer.status, &answer.headers["x-should-retry"]),
        (StatusCode::BAD_REQUEST, &"false".parse().unwrap())
    );
    assert!(vendor.received().is_empty());
    assert_eq!(gateway.wait_for_event("error").await["code"], "price_unknown");
}

#[tokio::test]
async fn key_is_redacted_in_the_headers_and_body_of_a_response() {
    let echo = format!(r#"{{"type":"error","error":{{"type":"authentication_error","message":"bad key {KEY}"}}}}"#);
    let head = format!(
        "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nrequest-id: {KEY}\r\ncontent-length: {}\r\n\r\n",
        echo.len()
    );
    let (first, second) = echo.split_at(echo.find(KEY).unwrap() + 7);
    let (first, second) = (format!("{head}{first}"), second.to_owned());
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let vendor = StubVendor::with_handler(move |_, mut connection: Box<dyn Connection>| {
        let (first, second, gate) = (first.clone(), second.clone(), gate.clone());
        async move {
            connection.write_all(first.as_bytes()).await.ok()?;
            gate.notified().await;
            connection.write_all(second.as_bytes()).await.ok()?;
            Some(connection)
        }
    })
    .await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let mut client = TestClient::connect(gateway.address).await;
    let sent = client.send(gateway.request(Method::POST, "/v1/messages", prompt("x", false)));
    let open = async {
        // The first half is on its way.
        gateway.wait_for_event("anthropic_request").await;
        opened.notify_one();
    };
    let (response, ()) = tokio::join!(sent, open);
    assert!(!response.headers().contains_key("request-id"));
    let mut body = response.into_body();
    let mut text = Vec::new();
    while let Some(bytes) = next_frame(&mut body).await {
        text.extend_from_slice(&bytes);
    }
    assert_eq!(String::from_utf8(text).unwrap(), echo.replace(KEY, &"*".repeat(KEY.len())));
    gateway.wait_for_event("llm.call").await;
    assert!(!serde_json::to_string(&gateway.events()).unwrap().contains(KEY));
    assert!(
        !gateway
            .recorded_body(&gateway.wait_for_event("anthropic_response").await)
            .windows(KEY.len())
            .any(|text| text == KEY.as_bytes())
    );
}

#[tokio::test]
async fn redirect_is_forwarded_and_not_followed() {
    let vendor = StubVendor::answering(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let gateway = start_gateway(config(VendorKind::Anthropic, &vendor));
    let answer = gateway.post("/v1/messages", prompt("x", false)).await;
    assert_eq!((answer.status.as_u16(), answer.headers.get("location")), (307, None));
    assert_eq!(vendor.received().len(), 1);
}

#[tokio::test]
async fn usage_of_a_chat_stream_is_requested_and_hidden() {
    let (text, usage) = (
        "data: {\"model\":\"gpt-test\",\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"model\":\"gpt-test\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n",
    );
    let vendor = StubVendor::answering(http_event_stream(&[text, usage, "data: [DONE]\n\n"])).await;
    let gateway = start_gateway(config(VendorKind::Openai, &vendor));
    let body = r#"{"model":"gpt-test","stream":true,"messages":[]}"#;
    let answer = gateway.post("/v1/chat/completions", body).await;
    assert_eq!(answer.text(), format!("{text}data: [DONE]\n\n"));
    assert_eq!(
        vendor.received()[0].body,
        r#"{"model":"gpt-test","stream":true,"messages":[],"stream_options":{"include_usage":true}}"#
    );
    assert_eq!(vendor.received()[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    let call = gateway.wait_for_event("llm.call").await;
    assert_eq!((&call["usage"]["input_tokens"], &call["usage"]["output_tokens"]), (&json!(9), &json!(3)));
    // A client that requests usage gets it, and its request is forwarded unchanged.
    let body = r#"{"model":"gpt-test","stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;
    assert!(gateway.post("/v1/chat/completions", body).await.text().contains(usage));
    assert_eq!(vendor.received()[1].body, body);
}

#[tokio::test]
async fn gemini_model_is_read_from_the_path() {
    let event = "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":3}}\n\n";
    let vendor = StubVendor::answering(http_event_stream(&[event])).await;
    let mut config = config(VendorKind::Gemini, &vendor);
    config.aliases.insert("fast".into(), "gemini-test".into());
    let gateway = start_gateway(config);
    let path = format!("/v1beta/models/fast:streamGenerateContent?alt=sse&key={}", gateway.token);
    let answer = gateway.post(&path, r#"{"contents":[]}"#).await;
    assert_eq!(answer.text(), event);
    let received = &vendor.received()[0];
    assert_eq!(received.line(), "POST /v1beta/models/gemini-test:streamGenerateContent?alt=sse HTTP/1.1");
    assert_eq!(received.header("x-goog-api-key"), Some(KEY));
    let request = gateway.wait_for_event("gemini_request").await;
    assert_eq!((&request["model"], &request["stream"]), (&json!("fast"), &json!(true)));
    assert_eq!(gateway.wait_for_event("llm.call").await["usage"]["output_tokens"], 3);
}

#[tokio::test]
async fn credentials_in_the_query_are_not_forwarded() {
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", "{}")).await;
    let gateway = start_gateway(config(VendorKind::Gemini, &vendor));
    let path = "/v1beta/models/gemini-test:generateContent";
    gateway.post(&format!("{path}?%6bey=A&a=%6b&access_token=B&API_KEY=C"), r#"{"contents":[]}"#).await;
    assert_eq!(vendor.received()[0].line(), format!("POST {path}?a=%6b HTTP/1.1"));
    assert_eq!(gateway.wait_for_event("gemini_request").await["path"], format!("POST {path}?a=%6b"));
}

#[tokio::test]
async fn call_that_cannot_be_sent_leaves_no_hold() {
    let vendor = StubVendor::answering("").await;
    let check_rejected = |answer: crate::support::test_client::TestResponse| {
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text());
        assert_eq!(answer.headers["x-should-retry"], "false");
    };
    let openai = start_gateway(config(VendorKind::Openai, &vendor));
    for body in [
        r#"["gpt-test",true,5]"#,
        "null",
        r#"{"model":"gpt-test","Model":"their-model","messages":[]}"#,
        r#"{"model":"gpt-test","stream":true,"stream_options":5,"messages":[]}"#,
    ] {
        check_rejected(openai.post("/v1/chat/completions", body).await);
    }
    let upstream = Arc::new(VendorUpstream::new(config(VendorKind::Litellm, &vendor)).unwrap());
    let litellm = TestGateway::with_identity(upstream, prices(), |identity| identity.account = "two\nlines".into());
    check_rejected(litellm.post("/v1/chat/completions", r#"{"model":"gpt-test","messages":[]}"#).await);
    for gateway in [openai, litellm] {
        let closed = gateway.close().await;
        assert!(closed.unknown_calls().is_empty());
        assert_eq!(closed.session_usage().held_picos, 0);
    }
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn litellm_proxy_receives_the_account_and_the_call_metadata() {
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", MESSAGE)).await;
    let gateway = start_gateway(config(VendorKind::Litellm, &vendor));
    let mut request = gateway.request(Method::POST, "/v1/messages", prompt("x", false));
    request.headers_mut().insert("x-litellm-end-user-id", "somebody-else".parse().unwrap());
    gateway.fetch(request).await;
    let received = &vendor.received()[0];
    assert_eq!(received.header("x-litellm-end-user-id"), Some("acme"));
    let metadata: serde_json::Value =
        serde_json::from_str(received.header("x-litellm-spend-logs-metadata").unwrap()).unwrap();
    let call = metadata["call_id"].as_str().unwrap();
    let expected = json!({"run_id": "r1", "attempt": 1, "session_id": "s1", "user_id": "ann", "call_id": call});
    assert_eq!(metadata, expected);
    assert_eq!(gateway.wait_for_event("llm.call").await["call_id"], call);
}

#[tokio::test]
async fn tls_works_only_with_a_trusted_server() {
    use rcgen::{CertifiedKey, generate_simple_self_signed};
    let CertifiedKey { cert, signing_key } = generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let key = rustls_pki_types::PrivatePkcs8KeyDer::from(signing_key.serialize_der());
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let server = rustls::ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![cert.der().clone()], key.into())
        .unwrap();
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server));
    let wrapper: crate::support::stub_vendor::ConnectionWrapper = Arc::new(move |stream| {
        let acceptor = acceptor.clone();
        Box::pin(async move {
            match acceptor.accept(stream).await {
                Ok(stream) => Box::new(stream) as Box<dyn Connection>,
                Err(_) => Box::new(tokio::io::empty()) as Box<dyn Connection>,
            }
        })
    });
    let vendor = StubVendor::with_wrapper(wrapper, |_, mut connection: Box<dyn Connection>| async move {
        connection.write_all(http_response("200 OK", "application/json", MESSAGE).as_bytes()).await.ok()?;
        connection.flush().await.ok()?;
        Some(connection)
    })
    .await;
    let mut config = config(VendorKind::Anthropic, &vendor);
    config.base_url = format!("https://localhost:{}", vendor.address.port());
    config.retries = 0;
    let mut trusting = config.clone();
    trusting.extra_roots = vec![cert.der().clone()];
    assert_eq!(start_gateway(trusting).post("/v1/messages", prompt("x", false)).await.json()["id"], "msg_1");
    // Without its root the server is not trusted; another root is configured so that TLS can be set up at all.
    let other = generate_simple_self_signed(["example.com".to_owned()]).unwrap();
    config.extra_roots = vec![other.cert.der().clone()];
    assert_eq!(start_gateway(config).post("/v1/messages", prompt("x", false)).await.status, StatusCode::BAD_GATEWAY);
}
