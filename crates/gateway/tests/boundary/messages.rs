//! `POST /v1/messages` from a client's side, over a real connection.

use std::time::Duration;

use crate::support::{Client, Desk, next_frame, prompt};
use gateway::GatewayLimits;
use http::{Method, StatusCode};
use serde_json::{Value, json};

const HELLO: &str = "  - answer: [text: 'Hello, ${prompt}!']\n    usage: {input: 11, output: 7, cache_read: 5}\n";

/// The events of an Anthropic stream; fails where name and data disagree.
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
async fn a_whole_answer_is_recorded_byte_for_byte() {
    let desk = Desk::playing(HELLO);
    let sent = prompt("you", false);
    let answer = desk.post("/v1/messages?beta=true", sent.clone()).await;
    assert_eq!(answer.status, StatusCode::OK);
    assert_eq!(answer.json()["content"], json!([{"type": "text", "text": "Hello, you!"}]));

    let request = desk.event("anthropic_request").await;
    assert_eq!(request["path"], "POST /v1/messages?beta=true");
    assert_eq!(desk.body(&request), sent);
    let response = desk.event("anthropic_response").await;
    assert_eq!(desk.body(&response), answer.body);
    let call = desk.event("llm.call").await;
    assert_eq!(
        call["usage"],
        json!({"input_tokens": 11, "output_tokens": 7, "cache_read_tokens": 5, "cache_write_tokens": 0, "cache_write_1h_tokens": 0})
    );
    assert_eq!((&call["upstream"], &call["cost_picos"]), (&json!("scripted"), &json!(0)));
    assert_eq!(call["call_id"], request["call_id"]);
    assert_eq!(desk.notes.names(), ["anthropic_request", "anthropic_response", "llm.call"]);
}

#[tokio::test]
async fn a_streamed_answer_is_a_valid_stream_and_recorded_byte_for_byte() {
    let desk = Desk::playing(
        "  - answer: [thinking: hm, text: 'Hello, ${prompt}!', tool: {name: run, input: {a: [1, '${prompt}']}}]\n    usage: {input: 11, output: 7}\n    pace: {chars: 3}\n",
    );
    let answer = desk.post("/v1/messages", prompt("you", true)).await;
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let response = desk.event("anthropic_response").await;
    assert_eq!(desk.body(&response), answer.body);
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
async fn frames_arrive_while_the_answer_is_still_open() {
    let desk = Desk::playing("  - answer: [text: first, hang]\n");
    let mut client = Client::connect(desk.address).await;
    let mut body = client.send(desk.request(Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    let mut seen = String::new();
    // The upstream never ends: whatever arrives was handed on before the end.
    while !seen.contains("first") {
        seen.push_str(std::str::from_utf8(&next_frame(&mut body).await.unwrap()).unwrap());
    }
    assert_eq!(desk.notes.names(), ["anthropic_request"]);
}

#[tokio::test]
async fn a_client_that_leaves_is_metered_to_the_end() {
    let desk =
        Desk::playing("  - answer: [text: first, delay_ms: 30, text: second]\n    usage: {input: 3, output: 99}\n");
    let mut client = Client::connect(desk.address).await;
    let mut body = client.send(desk.request(Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    next_frame(&mut body).await.unwrap();
    drop((body, client));
    let call = desk.event("llm.call").await;
    assert_eq!(call["usage"]["output_tokens"], 99);
    let recorded = desk.body(&desk.event("anthropic_response").await);
    assert!(recorded.ends_with(b"event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
}

#[tokio::test]
async fn a_client_that_leaves_an_endless_answer_is_given_up_after_the_drain() {
    let limits = GatewayLimits { drain: Duration::from_millis(20), ..GatewayLimits::default() };
    let desk = Desk::limited("  - answer: [text: first, hang]\n    usage: {input: 3, output: 99}\n", limits);
    let mut client = Client::connect(desk.address).await;
    let mut body = client.send(desk.request(Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    next_frame(&mut body).await.unwrap();
    drop((body, client));
    let error = desk.event("upstream_error").await;
    assert_eq!(error["message"], "the client left and the rest of the answer was given up");
    assert_eq!(desk.event("llm.call").await["usage"]["input_tokens"], 3);
}

#[tokio::test]
async fn an_answer_cut_in_mid_stream_ends_with_an_error_the_client_understands() {
    let desk = Desk::playing("  - answer: [text: first, cut]\n");
    let answer = desk.post("/v1/messages", prompt("x", true)).await;
    let last = answer.text().trim_end().rsplit("\n\n").next().unwrap().to_owned();
    assert_eq!(
        last.trim_start(),
        "event: error\ndata: {\"error\":{\"message\":\"the upstream's answer was cut before its end\",\"type\":\"api_error\"},\"type\":\"error\"}"
    );
    assert_eq!(desk.event("upstream_error").await["message"], "the upstream's answer was cut before its end");
    // What is recorded is what the upstream sent, without our word on it.
    assert!(!desk.body(&desk.event("anthropic_response").await).ends_with(last.as_bytes()));
    desk.event("llm.call").await;
}

#[tokio::test]
async fn an_error_of_the_model_is_passed_on_and_recorded() {
    let desk = Desk::playing(
        "  - {times: 1, error: {status: 529, type: overloaded_error, message: Overloaded}}\n  - answer: [text: fine]\n",
    );
    let answer = desk.post("/v1/messages", prompt("x", false)).await;
    assert_eq!(answer.status.as_u16(), 529);
    assert_eq!(answer.json(), json!({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}));
    assert_eq!(desk.event("upstream_error").await["message"], "overloaded_error: Overloaded");
    assert_eq!(desk.event("llm.call").await["status"], 529);
    assert_eq!(desk.post("/v1/messages", prompt("x", false)).await.status, StatusCode::OK);
}

#[tokio::test]
async fn garbage_is_passed_on_and_said() {
    let desk = Desk::playing("  - answer: [raw: '<html>busy</html>']\n");
    let answer = desk.post("/v1/messages", prompt("x", false)).await;
    assert_eq!(answer.text(), "<html>busy</html>");
    assert_eq!(
        desk.event("upstream_error").await["message"],
        "the upstream's response does not have the format of its API"
    );
}

#[tokio::test]
async fn an_answer_that_grows_too_long_is_cut() {
    let limits = GatewayLimits { answer_bytes: 2_000, ..GatewayLimits::default() };
    let desk = Desk::limited(&format!("  - answer: [text: '{}']\n", "long ".repeat(1_000)), limits);
    let answer = desk.post("/v1/messages", prompt("x", true)).await;
    assert!(answer.text().contains("the upstream's answer is longer than 2000 bytes"));
    assert!(answer.body.len() < 2_300, "{} bytes came", answer.body.len());
    desk.event("upstream_error").await;
}

#[tokio::test]
async fn tokens_are_counted_for_those_who_ask() {
    let desk = Desk::playing(HELLO);
    let answer = desk.post("/v1/messages/count_tokens?beta=true", prompt("12345678", false)).await;
    assert_eq!(answer.json(), json!({"input_tokens": 2}));
    desk.event("anthropic_response").await;
    assert_eq!(desk.notes.names(), ["anthropic_request", "anthropic_response"]);
}

#[tokio::test]
async fn closing_cuts_what_hangs_and_leaves_nothing_unrecorded() {
    let limits = GatewayLimits { close_grace: Duration::from_millis(20), ..GatewayLimits::default() };
    let desk = Desk::limited("  - answer: [text: first, hang]\n", limits);
    let mut client = Client::connect(desk.address).await;
    let mut body = client.send(desk.request(Method::POST, "/v1/messages", prompt("x", true))).await.into_body();
    next_frame(&mut body).await.unwrap();
    desk.attachment.close().await;
    assert_eq!(desk.notes.names(), ["anthropic_request", "upstream_error", "anthropic_response", "llm.call"]);
    assert!(tokio::net::TcpStream::connect(desk.address).await.is_err());
}

#[tokio::test]
async fn many_calls_at_once_each_get_their_own_answer() {
    let desk = Desk::playing(HELLO);
    let mut clients = tokio::task::JoinSet::new();
    for number in 0..50 {
        let request = desk.request(Method::POST, "/v1/messages", prompt(&format!("n{number}"), number % 2 == 0));
        let address = desk.address;
        clients.spawn(async move {
            let mut client = Client::connect(address).await;
            let mut body = client.send(request).await.into_body();
            let mut text = String::new();
            while let Some(bytes) = next_frame(&mut body).await {
                text.push_str(std::str::from_utf8(&bytes).unwrap());
            }
            assert!(text.contains(&format!("Hello, n{number}!")), "{text}");
        });
    }
    clients.join_all().await;
    desk.attachment.close().await;
    assert_eq!(desk.notes.names().iter().filter(|name| *name == "llm.call").count(), 50);
}
