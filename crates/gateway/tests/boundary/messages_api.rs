//! `POST /v1/messages` from the client's side, with the scripted model.

use std::time::Duration;

use crate::support::{
    test_client::{TestClient, next_frame},
    test_gateway::{TestGateway, prompt},
};
use gateway::GatewayLimits;
use http::{Method, StatusCode};
use serde_json::{Value, json};

const HELLO: &str = "  - answer: [text: 'Hello, ${prompt}!']\n    usage: {input: 11, output: 7, cache_read: 5}\n";

/// Returns the events of an Anthropic stream; panics if the name and the `type` of an event differ.
fn sse_events(text: &str) -> Vec<Value> {
    text.split_terminator("\n\n")
        .map(|event| {
            let (name, data) = event.split_once('\n').unwrap();
            let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
            assert_eq!(name, format!("event: {}", data["type"].as_str().unwrap()));
            data
        })
        .collect()
}

#[tokio::test]
async fn document_is_recorded_unchanged() {
    let gateway = TestGateway::with_script(HELLO);
    let sent = prompt("you", false);
    let answer = gateway.post("/v1/messages?beta=true", sent.clone()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.json()["content"], json!([{"type": "text", "text": "Hello, you!"}]));

    let request = gateway.wait_for_event("anthropic_request").await;
    assert_eq!(request["path"], "POST /v1/messages?beta=true");
    assert_eq!(gateway.recorded_body(&request), sent);
    let response = gateway.wait_for_event("anthropic_response").await;
    assert_eq!(gateway.recorded_body(&response), answer.body);
    let call = gateway.wait_for_event("llm.call").await;
    assert_eq!(
        call["usage"],
        json!({"input_tokens": 11, "output_tokens": 7, "cache_read_tokens": 5, "cache_write_tokens": 0, "cache_write_1h_tokens": 0})
    );
    assert_eq!((&call["upstream"], &call["cost_picos"]), (&json!("scripted"), &json!(0)));
    assert_eq!(call["call_id"], request["call_id"]);
    assert_eq!(gateway.journal.event_types(), ["anthropic_request", "anthropic_response", "llm.call"]);
}

#[tokio::test]
async fn stream_is_valid_and_recorded_unchanged() {
    let gateway = TestGateway::with_script(
        "  - answer: [thinking: hm, text: 'Hello, ${prompt}!', tool: {name: run, input: {a: [1, '${prompt}']}}]\n    usage: {input: 11, output: 7}\n    pace: {chars: 3}\n",
    );
    let answer = gateway.post("/v1/messages", prompt("you", true)).await;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let response = gateway.wait_for_event("anthropic_response").await;
    assert_eq!(gateway.recorded_body(&response), answer.body);
    assert_eq!(response["usage"]["output_tokens"], 7);
    assert_eq!(response["stop_reason"], "tool_use");

    let events = sse_events(answer.text());
    assert_eq!(events.first().unwrap()["type"], "message_start");
    assert_eq!(events.last().unwrap()["type"], "message_stop");
    let text: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!(text, "Hello, you!");
    let input: String = events.iter().filter_map(|event| event["delta"]["partial_json"].as_str()).collect();
    assert_eq!(serde_json::from_str::<Value>(&input).unwrap(), json!({"a": [1, "you"]}));
    let opened: Vec<&Value> = events.iter().filter(|event| event["type"] == "content_block_start").collect();
    assert_eq!(opened.iter().map(|event| event["index"].as_u64().unwrap()).collect::<Vec<_>>(), [0, 1, 2]);
}

#[tokio::test]
async fn frames_are_forwarded_before_the_response_ends() {
    let gateway = TestGateway::with_script("  - answer: [text: first, hang]\n");
    let mut client = TestClient::connect(gateway.address).await;
    let mut body = client.send(gateway.request(Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    let mut seen = String::new();
    // The upstream never ends the response, so every frame is forwarded before the end.
    while !seen.contains("first") {
        seen.push_str(std::str::from_utf8(&next_frame(&mut body).await.unwrap()).unwrap());
    }
    assert_eq!(gateway.journal.event_types(), ["anthropic_request"]);
}

#[tokio::test]
async fn response_is_metered_to_its_end_after_the_client_leaves() {
    let gateway = TestGateway::with_script(
        "  - answer: [text: first, delay_ms: 30, text: second]\n    usage: {input: 3, output: 99}\n",
    );
    let mut client = TestClient::connect(gateway.address).await;
    let mut body = client.send(gateway.request(Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    next_frame(&mut body).await.unwrap();
    drop((body, client));
    let call = gateway.wait_for_event("llm.call").await;
    assert_eq!(call["usage"]["output_tokens"], 99);
    let recorded = gateway.recorded_body(&gateway.wait_for_event("anthropic_response").await);
    assert!(recorded.ends_with(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
}

#[tokio::test]
async fn endless_response_is_cancelled_after_the_drain_time_when_the_client_leaves() {
    let limits = GatewayLimits { drain: Duration::from_millis(20), ..GatewayLimits::default() };
    let gateway = TestGateway::with_script_and_limits(
        "  - answer: [text: first, hang]\n    usage: {input: 3, output: 99}\n",
        limits,
    );
    let mut client = TestClient::connect(gateway.address).await;
    let mut body = client.send(gateway.request(Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    next_frame(&mut body).await.unwrap();
    drop((body, client));
    let error = gateway.wait_for_event("upstream_error").await;
    assert_eq!(error["message"], "the client disconnected and the rest of the response did not arrive in time");
    assert_eq!(gateway.wait_for_event("llm.call").await["usage"]["input_tokens"], 3);
}

#[tokio::test]
async fn interrupted_stream_ends_with_an_error_event_of_the_clients_api() {
    let gateway = TestGateway::with_script("  - answer: [text: first, cut]\n");
    let answer = gateway.post("/v1/messages", prompt("x", true)).await;
    let last = answer.text().trim_end().rsplit("\n\n").next().unwrap().to_owned();
    assert_eq!(
        last.trim_start(),
        "event: error\ndata: {\"error\":{\"message\":\"the connection to the upstream closed before the response was complete\",\"type\":\"api_error\"},\"type\":\"error\"}"
    );
    assert_eq!(
        gateway.wait_for_event("upstream_error").await["message"],
        "the connection to the upstream closed before the response was complete"
    );
    // The record holds only the bytes of the upstream, without the gateway's error event.
    assert!(!gateway.recorded_body(&gateway.wait_for_event("anthropic_response").await).ends_with(last.as_bytes()));
    gateway.wait_for_event("llm.call").await;
}

#[tokio::test]
async fn error_response_is_forwarded_and_recorded() {
    let gateway = TestGateway::with_script(
        "  - {times: 1, error: {status: 529, type: overloaded_error, message: Overloaded}}\n  - answer: [text: fine]\n",
    );
    let answer = gateway.post("/v1/messages", prompt("x", false)).await;
    assert_eq!(answer.status.as_u16(), 529);
    assert_eq!(answer.json(), json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}));
    assert_eq!(gateway.wait_for_event("upstream_error").await["message"], "overloaded_error: Overloaded");
    assert_eq!(gateway.wait_for_event("llm.call").await["status"], 529);
    assert_eq!(gateway.post("/v1/messages", prompt("x", false)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn response_that_is_not_json_is_forwarded_and_recorded_as_an_error() {
    let gateway = TestGateway::with_script("  - answer: [raw: '<html>busy</html>']\n");
    let answer = gateway.post("/v1/messages", prompt("x", false)).await;
    assert_eq!(answer.text(), "<html>busy</html>");
    assert_eq!(
        gateway.wait_for_event("upstream_error").await["message"],
        "the upstream's response does not have the format of its API"
    );
}

#[tokio::test]
async fn response_over_the_limit_is_cut_off() {
    let limits = GatewayLimits { answer_bytes: 2_000, ..GatewayLimits::default() };
    let gateway =
        TestGateway::with_script_and_limits(&format!("  - answer: [text: '{}']\n", "long ".repeat(1_000)), limits);
    let answer = gateway.post("/v1/messages", prompt("x", true)).await;
    assert!(answer.text().contains("the upstream's response is longer than 2000 bytes"));
    assert!(answer.body.len() < 2_300, "received {} bytes", answer.body.len());
    gateway.wait_for_event("upstream_error").await;
}

#[tokio::test]
async fn count_tokens_returns_the_token_count() {
    let gateway = TestGateway::with_script(HELLO);
    let answer = gateway.post("/v1/messages/count_tokens?beta=true", prompt("12345678", false)).await;
    assert_eq!(answer.json(), json!({"input_tokens": 2}));
    gateway.wait_for_event("anthropic_response").await;
    assert_eq!(gateway.journal.event_types(), ["anthropic_request", "anthropic_response"]);
}

#[tokio::test]
async fn closing_ends_a_hanging_call_and_records_it() {
    let limits = GatewayLimits { close_grace: Duration::from_millis(20), ..GatewayLimits::default() };
    let gateway = TestGateway::with_script_and_limits("  - answer: [text: first, hang]\n", limits);
    let mut client = TestClient::connect(gateway.address).await;
    let mut body = client.send(gateway.request(Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    next_frame(&mut body).await.unwrap();
    gateway.attachment.close().await;
    assert_eq!(
        gateway.journal.event_types(),
        ["anthropic_request", "upstream_error", "anthropic_response", "llm.call"]
    );
    assert!(tokio::net::TcpStream::connect(gateway.address).await.is_err());
}

#[tokio::test]
async fn concurrent_calls_each_get_their_own_answer() {
    let gateway = TestGateway::with_script(HELLO);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..50 {
        let request = gateway.request(Method::POST, "/v1/messages", prompt(&format!("n{number}"), number % 2 == 0));
        let address = gateway.address;
        clients.spawn(async move {
            let mut client = TestClient::connect(address).await;
            let mut body = client.send(request).await.into_body();
            let mut text = String::new();
            while let Some(bytes) = next_frame(&mut body).await {
                text.push_str(std::str::from_utf8(&bytes).unwrap());
            }
            assert!(text.contains(&format!("Hello, n{number}!")), "{text}");
        });
    }
    clients.join_all().await;
    gateway.attachment.close().await;
    assert_eq!(gateway.journal.event_types().iter().filter(|name| *name == "llm.call").count(), 50);
}
