//! The host budget at the gateway: bodies in memory, slow bodies, connections and disk space.

use std::{sync::Arc, time::Duration};

use base::ByteBudget;
use gateway::{
    GatewayIdentity, GatewayLimits, ModelPrice, PriceTable, TokenRates, VendorConfig, VendorKind, VendorUpstream,
};
use http::{Method, StatusCode};
use protocol::SessionId;
use store::{FileJournal, FreeSpaceFloor, StorageLimits, StorageMeter, SystemClock};
use testkit::wait_until_async;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::timeout,
};

use crate::support::{
    test_client::TestClient,
    test_gateway::{TEST_TIMEOUT, TestGateway, prompt, scripted},
};

const HELLO: &str = "  - answer: [text: Hello]\n";

fn gateway(limits: GatewayLimits, in_flight: &ByteBudget) -> TestGateway {
    changed(|identity| (identity.limits, identity.in_flight) = (limits, in_flight.clone()))
}

fn changed(change: impl FnOnce(&mut GatewayIdentity)) -> TestGateway {
    TestGateway::with_identity(scripted(HELLO), PriceTable::default(), change)
}

/// Opens a connection and sends the head of a call with a body of `length` bytes.
async fn start_call(gateway: &TestGateway, length: usize) -> TcpStream {
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let token = &gateway.token;
    let head =
        format!("POST /v1/messages HTTP/1.1\r\nhost: h\r\nx-api-key: {token}\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await.unwrap();
    stream
}

/// Reads a response until the gateway closes the connection.
async fn response(mut stream: TcpStream) -> String {
    let mut text = Vec::new();
    // A gateway that closes with unread bytes resets the connection after its response.
    let _ = timeout(TEST_TIMEOUT, stream.read_to_end(&mut text)).await.unwrap();
    String::from_utf8(text).unwrap()
}

/// Returns the resident bytes of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    statm.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

#[tokio::test]
async fn body_without_progress_is_answered_with_408_in_the_clients_format() {
    let limits = GatewayLimits { body_idle: Duration::from_millis(20), ..GatewayLimits::default() };
    let budget = ByteBudget::new(1 << 20);
    let gateway = gateway(limits, &budget);
    let mut stream = start_call(&gateway, 1000).await;
    stream.write_all(b"{").await.unwrap();
    let text = response(stream).await;
    assert!(text.starts_with("HTTP/1.1 408") && text.contains("x-viv-code: timeout"), "{text}");
    assert!(text.contains(r#""type":"timeout_error""#) && text.contains("limits.body_idle"), "{text}");
    assert_eq!((budget.used(), gateway.events().len()), (0, 0));
}

#[tokio::test]
async fn body_that_is_not_complete_in_time_is_answered_with_408() {
    let limits = GatewayLimits { body_total: Duration::from_millis(50), ..GatewayLimits::default() };
    let gateway = gateway(limits, &ByteBudget::new(1 << 20));
    let mut stream = start_call(&gateway, 1 << 20).await;
    stream.write_all(b"{").await.unwrap();
    let text = response(stream).await;
    assert!(text.starts_with("HTTP/1.1 408") && text.contains("limits.body_total"), "{text}");
}

#[tokio::test(flavor = "multi_thread")]
async fn stalled_bodies_of_all_connections_share_one_budget() {
    const BODY: usize = 2 << 20;
    const BUDGET: usize = 16 << 20;
    // Long enough to fill the budget, and the time after which waiting bodies notice that their clients are gone.
    let limits = GatewayLimits { body_idle: Duration::from_secs(5), ..GatewayLimits::default() };
    let budget = ByteBudget::new(BUDGET);
    let gateway = gateway(limits, &budget);
    let body: Arc<[u8]> = vec![b' '; BODY - 1].into();
    let before = resident();
    let mut clients = JoinSet::new();
    for _ in 0..120 {
        let (mut stream, body) = (start_call(&gateway, BODY).await, body.clone());
        clients.spawn(async move {
            let _ = stream.write_all(&body).await;
            std::future::pending::<()>().await;
        });
    }
    // All of them together would need 240 MiB.
    wait_until_async("the budget is full", || async { budget.used() > BUDGET - (64 << 10) }).await;
    let grown = resident().saturating_sub(before);
    assert!(budget.used() <= BUDGET && grown < 64 << 20, "{grown} more bytes are resident");
    clients.shutdown().await;
    wait_until_async("the budget is free", || async { budget.used() == 0 }).await;
    assert_eq!(gateway.post("/v1/messages", prompt("hi", false)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn full_budget_is_answered_with_429_and_a_time_to_retry() {
    let limits = GatewayLimits { body_idle: Duration::from_millis(20), ..GatewayLimits::default() };
    let budget = ByteBudget::new(1 << 20);
    let gateway = gateway(limits, &budget);
    let mut others = budget.reservation();
    assert!(others.try_grow(1 << 20));
    let refused = gateway.post("/v1/messages", prompt("hi", false)).await;
    assert_eq!(
        (refused.status, refused.json()["error"]["type"].as_str()),
        (StatusCode::TOO_MANY_REQUESTS, Some("rate_limit_error"))
    );
    assert_eq!(
        (&refused.headers["x-viv-code"], &refused.headers["retry-after"]),
        (&"host_limit_exceeded".parse().unwrap(), &"1".parse().unwrap())
    );
    drop(others);
    assert_eq!(gateway.post("/v1/messages", prompt("hi", false)).await.status, StatusCode::OK);
    gateway.close().await;
    assert_eq!(budget.used(), 0, "a finished call returns its bytes");
}

#[tokio::test]
async fn abandoned_response_without_room_is_cancelled_and_charged() {
    const BUDGET: usize = 128 << 10;
    // The answer fits in the budget, but not beside the bytes of the others.
    let rules = format!(
        "  - when: {{prompt: {{contains: long}}}}\n    answer: [text: {}]\n    usage: {{input: 3, output: 99}}\n    \
         pace: {{chars: 4096}}\n{HELLO}",
        "x".repeat(80 << 10)
    );
    let budget = ByteBudget::new(BUDGET);
    let mut others = budget.reservation();
    assert!(others.try_grow(BUDGET / 2));
    // A call that waits for room waits for longer than the test.
    let limits = GatewayLimits { body_idle: 10 * TEST_TIMEOUT, drain: 10 * TEST_TIMEOUT, ..GatewayLimits::default() };
    let gateway = TestGateway::with_identity(scripted(&rules), PriceTable::default(), |identity| {
        (identity.limits, identity.in_flight) = (limits, budget.clone());
    });
    let mut client = TestClient::connect(gateway.address).await;
    let response = client.send(gateway.request(Method::POST, "/v1/messages", prompt("long", true))).await;
    wait_until_async("the budget is full", || async { budget.used() > BUDGET - (8 << 10) }).await;
    drop((response, client));
    assert_eq!(
        gateway.wait_for_event("upstream_error").await["message"],
        "the client disconnected and memory was full (limits.in_flight), so the call was cancelled"
    );
    assert_eq!(gateway.post("/v1/messages", prompt("hi", true)).await.status, StatusCode::OK);
    let closed = gateway.close().await;
    assert_eq!((budget.used(), closed.unknown_calls().len()), (BUDGET / 2, 0));
    // The upstream reports the output tokens at the end, so the tokens are estimated from the bytes that arrived.
    let usage = closed.session_usage();
    assert!(usage.calls == 2 && usage.usage.input_tokens >= 3 && usage.usage.output_tokens > 1000, "{usage:?}");
}

#[tokio::test]
async fn body_larger_than_the_budget_is_answered_with_413() {
    let gateway = gateway(GatewayLimits::default(), &ByteBudget::new(1000));
    let refused = gateway.post("/v1/messages", prompt(&"x".repeat(2000), false)).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE);
}

#[tokio::test]
async fn unauthenticated_body_is_refused_before_it_is_read() {
    let gateway = changed(|identity| identity.in_flight = ByteBudget::new(0));
    let mut stream = TcpStream::connect(gateway.address).await.unwrap();
    let head = "POST /v1/messages HTTP/1.1\r\nhost: h\r\nx-api-key: other\r\ncontent-length: 1000000\r\n\r\n";
    stream.write_all(head.as_bytes()).await.unwrap();
    assert!(response(stream).await.starts_with("HTTP/1.1 403"));
}

#[tokio::test]
async fn connection_above_the_limit_waits_until_another_closes() {
    let limits = GatewayLimits { connections: 1, ..GatewayLimits::default() };
    let gateway = gateway(limits, &ByteBudget::new(1 << 20));
    let mut first = TestClient::connect(gateway.address).await;
    let answered = first.send(gateway.request(Method::HEAD, "/", "")).await;
    assert_eq!(answered.status(), StatusCode::OK);
    let mut second = Box::pin(gateway.post("/v1/messages", prompt("hi", false)));
    assert!(timeout(Duration::from_millis(50), &mut second).await.is_err(), "served above the limit");
    drop((first, answered));
    assert_eq!(second.await.status, StatusCode::OK);
}

#[tokio::test]
async fn call_of_a_session_without_disk_space_is_refused_for_good() {
    let directory = tempfile::tempdir().unwrap();
    let free_space = FreeSpaceFloor { bytes: 0, percent: 0 };
    let limits = StorageLimits { journal_bytes: 2_000, body_bytes: 1_000, free_space };
    let storage = Arc::new(StorageMeter::new(directory.path().to_owned(), limits));
    let id = SessionId::new("s1").unwrap();
    let opened = FileJournal::open(directory.path().join("s1.jsonl"), id, Arc::new(SystemClock)).unwrap();
    let journal = Arc::new(opened.journal.with_storage_meter(storage.clone()));
    let gateway = changed(|identity| identity.journal = journal.clone());
    assert_eq!(gateway.post("/v1/messages", prompt("hi", false)).await.status, StatusCode::OK);
    let mut last = gateway.post("/v1/messages", prompt("hi", false)).await;
    for _ in 0..10 {
        last = gateway.post("/v1/messages", prompt("hi", false)).await;
    }
    assert_eq!(last.status, StatusCode::FORBIDDEN, "{}", last.text());
    assert_eq!(
        (&last.headers["x-viv-code"], &last.headers["x-should-retry"]),
        (&"session_storage_full".parse().unwrap(), &"false".parse().unwrap())
    );
    assert!(last.text().contains("limits.journal"), "{}", last.text());
    assert!(journal.bytes() < 6_000, "the journal has {} bytes", journal.bytes());
}

#[tokio::test]
async fn json_of_a_translated_call_counts_as_bytes_in_memory() {
    let mut config = VendorConfig::new("chat", VendorKind::OpenaiCompatible, "http://127.0.0.1:9");
    config.retries = 0;
    let prices =
        PriceTable::default().with_price("m", ModelPrice::flat(TokenRates { input: 1, ..TokenRates::default() }));
    let budget = ByteBudget::new(1 << 20);
    let gateway = TestGateway::with_identity(Arc::new(VendorUpstream::new(config).unwrap()), prices, |identity| {
        identity.in_flight = budget.clone();
    });
    let body = |lists: usize| {
        let input = vec!["[0]"; lists].join(",");
        let call = format!(r#"{{"type":"tool_use","id":"t","name":"t","input":{{"lists":[{input}]}}}}"#);
        format!(r#"{{"model":"m","max_tokens":5,"messages":[{{"role":"assistant","content":[{call}]}}]}}"#)
    };
    // The text of both bodies fits into the budget. The values of the second do not.
    let sent = gateway.fetch(gateway.request(Method::POST, "/v1/messages", body(1_000))).await;
    assert_eq!(sent.status, StatusCode::BAD_GATEWAY, "{}", sent.text());
    let refused = gateway.fetch(gateway.request(Method::POST, "/v1/messages", body(10_000))).await;
    assert_eq!(refused.status, StatusCode::PAYLOAD_TOO_LARGE, "{}", refused.text());
    assert!(refused.text().contains("limits.in_flight"), "{}", refused.text());
    assert_eq!(budget.used(), 0);
    let closed = gateway.close().await;
    assert_eq!((closed.session_usage().calls, closed.session_usage().held_picos), (1, 0));
}
