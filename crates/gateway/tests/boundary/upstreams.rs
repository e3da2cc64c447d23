//! Upstreams over real connections: what leaves, and what comes back.

use std::{sync::Arc, time::Duration};

use gateway::{
    GatewayLimits, ModelPrice, PriceTable, TokenRates, UpstreamTimeouts, VendorConfig, VendorKind, VendorUpstream,
};
use http::{Method, StatusCode};
use http_body_util::BodyExt;
use secret::Secret;
use serde_json::json;
use tokio::{io::AsyncWriteExt, sync::Notify};

use crate::{
    support::{Client, Desk, next_frame, prompt},
    vendor::{Pipe, StubVendor, chunked, whole},
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

pub(crate) fn desk(config: VendorConfig) -> Desk {
    limited(config, GatewayLimits::default())
}

pub(crate) fn limited(config: VendorConfig, limits: GatewayLimits) -> Desk {
    Desk::before(Arc::new(VendorUpstream::new(config).unwrap()), prices(), limits)
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
async fn a_call_passes_byte_for_byte_and_is_charged() {
    let vendor = StubVendor::saying(whole("200 OK", "application/json", MESSAGE)).await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let body = "{ \"model\":\"claude-test\",\"messages\":[ {\"role\":\"user\",\"content\":\"\\u0068i  \"}],\"max_tokens\":10,\"temperature\":1.0e0 }";
    let mut request = desk.request(Method::POST, "/v1/messages?beta=true", body);
    request.headers_mut().insert("anthropic-beta", "a-1,b-2".parse().unwrap());
    request.headers_mut().insert("cookie", "no=1".parse().unwrap());
    request.headers_mut().insert("accept-encoding", "zstd".parse().unwrap());
    let answer = desk.fetch(request).await;
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
    let call = desk.event("llm.call").await;
    assert_eq!(call["cost_picos"], 10 * 3_000_000 + 4 * 15_000_000 + 2 * 300_000);
    assert_eq!((&call["model"], &call["model_answered"]), (&json!("claude-test"), &json!("claude-real")));
}

#[tokio::test]
async fn a_stream_arrives_piece_by_piece() {
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let vendor = StubVendor::playing(move |_, mut pipe: Box<dyn Pipe>| {
        let gate = gate.clone();
        async move {
            let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
            pipe.write_all(format!("{head}9\r\ndata: 1\n\n\r\n").as_bytes()).await.ok()?;
            gate.notified().await;
            pipe.write_all(b"9\r\ndata: 2\n\n\r\n0\r\n\r\n").await.ok()?;
            Some(pipe)
        }
    })
    .await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let mut client = Client::connect(desk.address).await;
    let mut body = client.send(desk.request(Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    // The second piece is sent only after the first has arrived.
    assert_eq!(next_frame(&mut body).await.unwrap(), "data: 1\n\n");
    opened.notify_one();
    assert_eq!(next_frame(&mut body).await.unwrap(), "data: 2\n\n");
}

#[tokio::test]
async fn a_connection_serves_the_next_call_too() {
    let vendor = StubVendor::saying(whole("200 OK", "application/json", MESSAGE)).await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let mut client = Client::connect(desk.address).await;
    for _ in 0..3 {
        let answer = client.send(desk.request(Method::POST, "/v1/messages", prompt("x", false))).await;
        assert_eq!(answer.into_body().collect().await.unwrap().to_bytes(), MESSAGE);
    }
    assert!(vendor.received().iter().all(|request| request.connection == 0));
}

#[tokio::test]
async fn an_alias_changes_the_model_and_nothing_else() {
    let vendor = StubVendor::saying(whole("200 OK", "application/json", MESSAGE)).await;
    let mut config = config(VendorKind::Anthropic, &vendor);
    config.aliases.insert("fast".into(), "claude-test".into());
    let desk = desk(config);
    let answer = desk.post("/v1/messages", r#"{"max_tokens": 5,"model": "fast", "messages":[]}"#).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(vendor.received()[0].body, r#"{"max_tokens": 5,"model": "claude-test", "messages":[]}"#);
    let models = desk.fetch(desk.request(Method::GET, "/v1/models", "")).await.json();
    assert_eq!(models["data"][0]["id"], "fast");
}

#[tokio::test]
async fn a_model_without_a_price_is_refused_before_anything_leaves() {
    let vendor = StubVendor::saying(whole("200 OK", "application/json", MESSAGE)).await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let answer = desk.post("/v1/messages", r#"{"model":"claude-next","messages":[]}"#).await;
    assert_eq!(
        (answer.status, &answer.headers["x-should-retry"]),
        (StatusCode::BAD_REQUEST, &"false".parse().unwrap())
    );
    assert!(vendor.received().is_empty() && desk.events().is_empty());
}

#[tokio::test]
async fn the_key_is_covered_wherever_a_server_repeats_it() {
    let echo = format!(r#"{{"type":"error","error":{{"type":"authentication_error","message":"bad key {KEY}"}}}}"#);
    let head = format!(
        "HTTP/1.1 401 Unauthorized\r\ncontent-type: application/json\r\nrequest-id: {KEY}\r\ncontent-length: {}\r\n\r\n",
        echo.len()
    );
    let (first, second) = echo.split_at(echo.find(KEY).unwrap() + 7);
    let (first, second) = (format!("{head}{first}"), second.to_owned());
    let gate = Arc::new(Notify::new());
    let opened = gate.clone();
    let vendor = StubVendor::playing(move |_, mut pipe: Box<dyn Pipe>| {
        let (first, second, gate) = (first.clone(), second.clone(), gate.clone());
        async move {
            pipe.write_all(first.as_bytes()).await.ok()?;
            gate.notified().await;
            pipe.write_all(second.as_bytes()).await.ok()?;
            Some(pipe)
        }
    })
    .await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let mut client = Client::connect(desk.address).await;
    let sent = client.send(desk.request(Method::POST, "/v1/messages", prompt("x", false)));
    let open = async {
        // The first half is on its way.
        desk.event("anthropic_request").await;
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
    desk.event("llm.call").await;
    assert!(!serde_json::to_string(&desk.events()).unwrap().contains(KEY));
    assert!(!desk.body(&desk.event("anthropic_response").await).windows(KEY.len()).any(|text| text == KEY.as_bytes()));
}

#[tokio::test]
async fn a_redirect_is_an_answer_and_is_not_followed() {
    let vendor = StubVendor::saying(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: http://127.0.0.1:1/\r\ncontent-length: 0\r\n\r\n",
    )
    .await;
    let desk = desk(config(VendorKind::Anthropic, &vendor));
    let answer = desk.post("/v1/messages", prompt("x", false)).await;
    assert_eq!((answer.status.as_u16(), answer.headers.get("location")), (307, None));
    assert_eq!(vendor.received().len(), 1);
}

#[tokio::test]
async fn usage_of_a_chat_stream_is_asked_for_and_hidden() {
    let (text, usage) = (
        "data: {\"model\":\"gpt-test\",\"choices\":[{\"delta\":{\"content\":\"hi\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"model\":\"gpt-test\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n",
    );
    let vendor = StubVendor::saying(chunked(&[text, usage, "data: [DONE]\n\n"])).await;
    let desk = desk(config(VendorKind::Openai, &vendor));
    let body = r#"{"model":"gpt-test","stream":true,"messages":[]}"#;
    let answer = desk.post("/v1/chat/completions", body).await;
    assert_eq!(answer.text(), format!("{text}data: [DONE]\n\n"));
    assert_eq!(
        vendor.received()[0].body,
        r#"{"model":"gpt-test","stream":true,"messages":[],"stream_options":{"include_usage":true}}"#
    );
    assert_eq!(vendor.received()[0].header("authorization"), Some(format!("Bearer {KEY}").as_str()));
    let call = desk.event("llm.call").await;
    assert_eq!((&call["usage"]["input_tokens"], &call["usage"]["output_tokens"]), (&json!(9), &json!(3)));
    // A client that asks gets what it asked for, byte for byte.
    let body = r#"{"model":"gpt-test","stream":true,"stream_options":{"include_usage":true},"messages":[]}"#;
    assert!(desk.post("/v1/chat/completions", body).await.text().contains(usage));
    assert_eq!(vendor.received()[1].body, body);
}

#[tokio::test]
async fn a_gemini_call_names_its_model_in_the_path() {
    let event = "data: {\"candidates\":[{\"finishReason\":\"STOP\"}],\"usageMetadata\":{\"promptTokenCount\":9,\"candidatesTokenCount\":3}}\n\n";
    let vendor = StubVendor::saying(chunked(&[event])).await;
    let mut config = config(VendorKind::Gemini, &vendor);
    config.aliases.insert("fast".into(), "gemini-test".into());
    let desk = desk(config);
    let path = format!("/v1beta/models/fast:streamGenerateContent?alt=sse&key={}", desk.token);
    let answer = desk.post(&path, r#"{"contents":[]}"#).await;
    assert_eq!(answer.text(), event);
    let received = &vendor.received()[0];
    assert_eq!(received.line(), "POST /v1beta/models/gemini-test:streamGenerateContent?alt=sse HTTP/1.1");
    assert_eq!(received.header("x-goog-api-key"), Some(KEY));
    let request = desk.event("gemini_request").await;
    assert_eq!((&request["model"], &request["stream"]), (&json!("fast"), &json!(true)));
    assert_eq!(desk.event("llm.call").await["usage"]["output_tokens"], 3);
}

#[tokio::test]
async fn a_credential_in_the_query_reaches_no_vendor() {
    let vendor = StubVendor::saying(whole("200 OK", "application/json", "{}")).await;
    let desk = desk(config(VendorKind::Gemini, &vendor));
    let path = "/v1beta/models/gemini-test:generateContent";
    desk.post(&format!("{path}?%6bey=A&a=%6b&access_token=B&API_KEY=C"), r#"{"contents":[]}"#).await;
    assert_eq!(vendor.received()[0].line(), format!("POST {path}?a=%6b HTTP/1.1"));
    assert_eq!(desk.event("gemini_request").await["path"], format!("POST {path}?a=%6b"));
}

#[tokio::test]
async fn a_call_that_cannot_be_sent_holds_nothing() {
    let vendor = StubVendor::saying("").await;
    let refused = |answer: crate::support::Answer| {
        assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.text());
        assert_eq!(answer.headers["x-should-retry"], "false");
    };
    let openai = desk(config(VendorKind::Openai, &vendor));
    for body in [
        r#"["gpt-test",true,5]"#,
        "null",
        r#"{"model":"gpt-test","Model":"their-model","messages":[]}"#,
        r#"{"model":"gpt-test","stream":true,"stream_options":5,"messages":[]}"#,
    ] {
        refused(openai.post("/v1/chat/completions", body).await);
    }
    let upstream = Arc::new(VendorUpstream::new(config(VendorKind::Litellm, &vendor)).unwrap());
    let litellm = Desk::with(upstream, prices(), |identity| identity.account = "two\nlines".into());
    refused(litellm.post("/v1/chat/completions", r#"{"model":"gpt-test","messages":[]}"#).await);
    for desk in [openai, litellm] {
        let books = desk.close().await;
        assert!(books.unknowns().is_empty());
        assert_eq!(books.bill().held_picos, 0);
    }
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn a_litellm_proxy_is_told_who_pays() {
    let vendor = StubVendor::saying(whole("200 OK", "application/json", MESSAGE)).await;
    let desk = desk(config(VendorKind::Litellm, &vendor));
    let mut request = desk.request(Method::POST, "/v1/messages", prompt("x", false));
    request.headers_mut().insert("x-litellm-end-user-id", "somebody-else".parse().unwrap());
    desk.fetch(request).await;
    let received = &vendor.received()[0];
    assert_eq!(received.header("x-litellm-end-user-id"), Some("acme"));
    let metadata: serde_json::Value =
        serde_json::from_str(received.header("x-litellm-spend-logs-metadata").unwrap()).unwrap();
    let call = metadata["call_id"].as_str().unwrap();
    let expected = json!({"run_id": "r1", "attempt": 1, "session_id": "s1", "user_id": "ann", "call_id": call});
    assert_eq!(metadata, expected);
    assert_eq!(desk.event("llm.call").await["call_id"], call);
}

#[tokio::test]
async fn a_call_the_upstream_does_not_take_is_refused() {
    let vendor = StubVendor::saying("").await;
    let desk = desk(config(VendorKind::Gemini, &vendor));
    let answer = desk.post("/v1/responses", r#"{"model":"gpt-test","input":"x"}"#).await;
    assert_eq!(
        (answer.status, &answer.headers["x-should-retry"]),
        (StatusCode::BAD_REQUEST, &"false".parse().unwrap())
    );
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn tls_is_spoken_with_a_trusted_server_and_no_other() {
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
    let wrap: crate::vendor::Wrap = Arc::new(move |stream| {
        let acceptor = acceptor.clone();
        Box::pin(async move {
            match acceptor.accept(stream).await {
                Ok(stream) => Box::new(stream) as Box<dyn Pipe>,
                Err(_) => Box::new(tokio::io::empty()) as Box<dyn Pipe>,
            }
        })
    });
    let vendor = StubVendor::wrapped(wrap, |_, mut pipe: Box<dyn Pipe>| async move {
        pipe.write_all(whole("200 OK", "application/json", MESSAGE).as_bytes()).await.ok()?;
        pipe.flush().await.ok()?;
        Some(pipe)
    })
    .await;
    let mut config = config(VendorKind::Anthropic, &vendor);
    config.base_url = format!("https://localhost:{}", vendor.address.port());
    config.retries = 0;
    let mut trusting = config.clone();
    trusting.extra_roots = vec![cert.der().clone()];
    assert_eq!(desk(trusting).post("/v1/messages", prompt("x", false)).await.json()["id"], "msg_1");
    // The same server is a stranger to who does not trust it; a root of another name keeps TLS possible at all.
    let other = generate_simple_self_signed(["example.com".to_owned()]).unwrap();
    config.extra_roots = vec![other.cert.der().clone()];
    assert_eq!(desk(config).post("/v1/messages", prompt("x", false)).await.status, StatusCode::BAD_GATEWAY);
}
