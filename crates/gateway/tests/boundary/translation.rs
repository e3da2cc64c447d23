//! Translation: clients of one API with upstreams of another.

use std::sync::Arc;

use gateway::{GatewayLimits, ModelPrice, PriceTable, TokenRates, VendorConfig, VendorKind, VendorUpstream};
use secret::Secret;
use serde_json::{Value, json};

use crate::support::{
    stub_vendor::{StubVendor, http_event_stream, http_response},
    test_gateway::{TestGateway, prompt},
};

fn start_gateway(kind: VendorKind, vendor: &StubVendor, base_path: &str) -> TestGateway {
    let mut config = VendorConfig::new("stub", kind, format!("{}{base_path}", vendor.url()));
    config.key = Some(Secret::new("sk-1"));
    config.model = Some("their-model".into());
    let price = ModelPrice::flat(TokenRates {
        input: 1,
        output: 1_000,
        cache_read: 1_000_000,
        cache_write: 1_000_000_000,
        ..TokenRates::default()
    });
    let prices = PriceTable::default().with_price("their-model", price);
    TestGateway::with_upstream(Arc::new(VendorUpstream::new(config).unwrap()), prices, GatewayLimits::default())
}

fn event_data(text: &str) -> Vec<Value> {
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: ")).filter(|data| *data != "[DONE]");
    lines.map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[tokio::test]
async fn messages_client_streams_from_a_chat_server() {
    let vendor = StubVendor::answering(http_event_stream(&[
        "data: {\"id\":\"1\",\"model\":\"their-model\",\"choices\":[{\"delta\":{\"role\":\"assistant\",\"content\":\"hel\"}}]}\n\n",
        ": keep-alive\n\n",
        "data: {\"choices\":[{\"delta\":{\"content\":\"lo\"},\"finish_reason\":\"stop\"}]}\n\n",
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3,\"prompt_tokens_details\":{\"cached_tokens\":4}}}\n\n",
        "data: [DONE]\n\n",
    ]))
    .await;
    let gateway = start_gateway(VendorKind::OpenaiCompatible, &vendor, "/openai/v1");
    let mut request = gateway.request(http::Method::POST, "/v1/messages?beta=true", prompt("hi", true));
    request.headers_mut().insert("anthropic-beta", "x".parse().unwrap());
    let answer = gateway.fetch(request).await;
    let events = event_data(answer.text());
    let text: String = events.iter().filter_map(|event| event["delta"]["text"].as_str()).collect();
    assert_eq!((text.as_str(), &events.last().unwrap()["type"]), ("hello", &json!("message_stop")));

    let received = &vendor.received()[0];
    assert_eq!(received.line(), "POST /openai/v1/chat/completions HTTP/1.1");
    assert_eq!((received.header("authorization"), received.header("anthropic-beta")), (Some("Bearer sk-1"), None));
    let sent: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!(
        (&sent["model"], &sent["messages"]),
        (&json!("their-model"), &json!([{"role": "user", "content": "hi"}]))
    );

    let call = gateway.wait_for_event("llm.call").await;
    assert_eq!((&call["usage"]["input_tokens"], &call["usage"]["cache_read_tokens"]), (&json!(5), &json!(4)));
    assert_eq!(call["cost_picos"], 5 + 3 * 1_000 + 4 * 1_000_000);
    assert_eq!(gateway.journal.event_types(), ["anthropic_request", "anthropic_response", "llm.call"]);
    assert_eq!(gateway.recorded_body(&gateway.wait_for_event("anthropic_response").await), answer.body);
}

#[tokio::test]
async fn messages_client_gets_documents_and_errors_of_a_chat_server_in_its_own_api() {
    let completion = r#"{"id":"1","model":"their-model","choices":[{"message":{"role":"assistant","content":"hello"},"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#;
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", completion)).await;
    let answer = start_gateway(VendorKind::Openai, &vendor, "").post("/v1/messages", prompt("hi", false)).await.json();
    assert_eq!((&answer["type"], &answer["content"][0]["text"]), (&json!("message"), &json!("hello")));

    let vendor = StubVendor::answering(http_response(
        "429 Too Many Requests",
        "application/json",
        r#"{"error":{"message":"slow down","code":"x"}}"#,
    ))
    .await;
    let gateway = start_gateway(VendorKind::Openai, &vendor, "");
    let answer = gateway.post("/v1/messages", prompt("hi", true)).await;
    assert_eq!(answer.status.as_u16(), 429);
    assert_eq!(answer.json(), json!({"type": "error", "error": {"type": "rate_limit_error", "message": "slow down"}}));
    assert_eq!(gateway.wait_for_event("upstream_error").await["status"], 429);
}

#[tokio::test]
async fn messages_client_gets_an_error_event_when_a_chat_stream_is_interrupted() {
    let vendor =
        StubVendor::answering(http_event_stream(&["data: {\"choices\":[{\"delta\":{\"content\":\"hel\"}}]}\n\n"]))
            .await;
    let gateway = start_gateway(VendorKind::Openai, &vendor, "");
    let events = event_data(gateway.post("/v1/messages", prompt("hi", true)).await.text());
    assert_eq!(events.last().unwrap()["type"], "error");
    gateway.wait_for_event("upstream_error").await;
}

#[tokio::test]
async fn tokens_are_estimated_if_the_upstream_cannot_count() {
    let vendor = StubVendor::answering("").await;
    let gateway = start_gateway(VendorKind::OpenaiCompatible, &vendor, "");
    let answer = gateway.post("/v1/messages/count_tokens", prompt("hi", false)).await.json();
    assert!(answer["input_tokens"].as_u64().unwrap() > 0);
    assert!(vendor.received().is_empty());
}

#[tokio::test]
async fn chat_client_streams_from_an_anthropic_server() {
    let events = [
        "event: message_start\ndata: {\"type\":\"message_start\",\"message\":{\"id\":\"m\",\"model\":\"their-model\",\"usage\":{\"input_tokens\":5,\"cache_creation_input_tokens\":2,\"output_tokens\":1}}}\n\n",
        "event: content_block_start\ndata: {\"type\":\"content_block_start\",\"index\":0,\"content_block\":{\"type\":\"text\",\"text\":\"\"}}\n\n",
        "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":\"hello\"}}\n\n",
        "event: message_delta\ndata: {\"type\":\"message_delta\",\"delta\":{\"stop_reason\":\"end_turn\"},\"usage\":{\"output_tokens\":3}}\n\n",
        "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n",
    ];
    let vendor = StubVendor::answering(http_event_stream(&events)).await;
    let gateway = start_gateway(VendorKind::Anthropic, &vendor, "");
    let body = json!({"model": "any", "stream": true, "messages": [{"role": "user", "content": "hi"}]});
    let answer = gateway.post("/v1/chat/completions", body.to_string()).await;
    let chunks = event_data(answer.text());
    let text: String = chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str()).collect();
    assert_eq!(text, "hello");
    // The client did not request usage, so usage is charged but hidden.
    assert!(answer.text().ends_with("data: [DONE]\n\n") && chunks.iter().all(|chunk| chunk.get("usage").is_none()));

    let received = &vendor.received()[0];
    assert_eq!(received.line(), "POST /v1/messages HTTP/1.1");
    assert_eq!(
        (received.header("x-api-key"), received.header("anthropic-version")),
        (Some("sk-1"), Some("2023-06-01"))
    );
    let sent: Value = serde_json::from_slice(&received.body).unwrap();
    assert_eq!((&sent["model"], &sent["max_tokens"]), (&json!("their-model"), &json!(8192)));
    let call = gateway.wait_for_event("llm.call").await;
    assert_eq!(call["cost_picos"], 5 + 3 * 1_000 + 2 * 1_000_000_000_i64);
}

const PATCH: &str = r#"{"model":"any","stream":true,"input":"fix it","tools":[{"type":"custom","name":"patch"},{"type":"function","name":"run","parameters":{"type":"object"}}]}"#;

#[tokio::test]
async fn responses_client_streams_from_a_chat_server() {
    let call = |index: u64, id: &str, name: &str, arguments: &str| {
        let function = json!({"name": name, "arguments": arguments});
        let delta = json!({"tool_calls": [{"index": index, "id": id, "function": function}]});
        format!("data: {}\n\n", json!({"id": "1", "model": "their-model", "choices": [{"delta": delta}]}))
    };
    let events = [
        "data: {\"id\":\"1\",\"model\":\"their-model\",\"choices\":[{\"delta\":{\"reasoning_content\":\"hm\"}}]}\n\n"
            .to_owned(),
        "data: {\"choices\":[{\"delta\":{\"content\":\"ok\"}}]}\n\n".to_owned(),
        call(0, "c1", "patch", "{\"input\":\"*** "),
        call(1, "c2", "run", "{\"a\":1}"),
        call(0, "c1", "", "x\"}"),
        "data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"tool_calls\"}]}\n\n".to_owned(),
        "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":3}}\n\n".to_owned(),
        "data: [DONE]\n\n".to_owned(),
    ];
    let vendor = StubVendor::answering(http_event_stream(&events.each_ref().map(String::as_str))).await;
    let gateway = start_gateway(VendorKind::OpenaiCompatible, &vendor, "/v1");
    let events = event_data(gateway.post("/v1/responses", PATCH).await.text());
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let last = events.last().unwrap();
    assert_eq!(last["type"], "response.completed");
    let output = last["response"]["output"].as_array().unwrap();
    let kinds: Vec<&str> = output.iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "custom_tool_call", "function_call"]);
    assert_eq!((&output[2]["input"], &output[3]["arguments"]), (&json!("*** x"), &json!("{\"a\":1}")));
    let done: Vec<&Value> = events.iter().filter(|event| event["type"] == "response.output_item.done").collect();
    assert_eq!(done.iter().map(|event| &event["item"]).collect::<Vec<_>>(), output.iter().collect::<Vec<_>>());
    assert_eq!(gateway.wait_for_event("llm.call").await["usage"]["output_tokens"], 3);

    let sent: Value = serde_json::from_slice(&vendor.received()[0].body).unwrap();
    assert_eq!(vendor.received()[0].line(), "POST /v1/chat/completions HTTP/1.1");
    assert_eq!((&sent["model"], &sent["tools"][0]["function"]["name"]), (&json!("their-model"), &json!("patch")));
}

#[tokio::test]
async fn responses_client_gets_documents_and_failures_of_a_chat_server() {
    let completion = r#"{"id":"1","model":"their-model","choices":[{"message":{"role":"assistant","content":"hello"},"finish_reason":"length"}],"usage":{"prompt_tokens":9,"completion_tokens":3}}"#;
    let vendor = StubVendor::answering(http_response("200 OK", "application/json", completion)).await;
    let client = start_gateway(VendorKind::OpenaiCompatible, &vendor, "");
    let answer = client.post("/v1/responses", r#"{"model":"any","input":"hi"}"#).await.json();
    assert_eq!((&answer["object"], &answer["status"]), (&json!("response"), &json!("incomplete")));
    assert_eq!(answer["output"][0]["content"][0]["text"], "hello");

    let failure =
        ["data: {\"choices\":[{\"delta\":{\"content\":\"a\"}}]}\n\n", "data: {\"error\":{\"message\":\"broken\"}}\n\n"];
    let vendor = StubVendor::answering(http_event_stream(&failure)).await;
    let client = start_gateway(VendorKind::OpenaiCompatible, &vendor, "");
    let events = event_data(client.post("/v1/responses", PATCH).await.text());
    assert_eq!(events.last().unwrap()["response"]["error"]["message"], "broken");
    assert_eq!(client.wait_for_event("upstream_error").await["message"], "broken");
}
