//! The same script through every API: each client gets responses in its own dialect.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{test_client::TestResponse, test_gateway::TestGateway};

const RULES: &str = "  - when: {prompt: {contains: break}}\n    answer: [text: a, fail: {type: overloaded_error, message: Overloaded}]\n  - when: {prompt: {contains: refuse}}\n    error: {status: 429, message: slow down}\n  - when: {step: 1}\n    answer: [thinking: Hm., text: 'Hello, ${prompt}!', tool: {name: run, input: {a: 1}}]\n    usage: {input: 10, output: 7, cache_read: 5}\n    pace: {chars: 2}\n  - answer: [text: 'It said ${tool_result}.']\n";

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const GENERATE: &str = "/v1beta/models/m:generateContent";
const STREAM_GENERATE: &str = "/v1beta/models/m:streamGenerateContent?alt=sse";

fn chat(text: &str, stream: bool) -> String {
    json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]}).to_string()
}

fn responses(text: &str, stream: bool) -> String {
    json!({"model": "m", "stream": stream, "input": text}).to_string()
}

fn contents(text: &str) -> String {
    json!({"contents": [{"role": "user", "parts": [{"text": text}]}]}).to_string()
}

/// Returns the data of all events of a stream.
fn events(answer: &TestResponse) -> Vec<Value> {
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let lines = answer.text().lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// Returns the strings at `pointer` of all events, joined.
fn text_at(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

async fn check_usage(gateway: &TestGateway, family: &str) {
    let call = gateway.wait_for_event("llm.call").await;
    let usage = json!({"input_tokens": 10, "output_tokens": 7, "cache_read_tokens": 5, "cache_write_tokens": 0, "cache_write_1h_tokens": 0});
    assert_eq!(call["usage"], usage);
    assert_eq!(call["model_answered"], "m");
    assert_eq!(
        gateway.journal.event_types(),
        [&*format!("{family}_request"), &*format!("{family}_response"), "llm.call"]
    );
}

#[tokio::test]
async fn chat_document() {
    let gateway = TestGateway::with_script(RULES);
    let answer = gateway.post(CHAT, chat("you", false)).await.json();
    let message = &answer["choices"][0]["message"];
    assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("Hello, you!"), &json!("Hm.")));
    assert_eq!(message["tool_calls"][0]["function"], json!({"name": "run", "arguments": "{\"a\":1}"}));
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    check_usage(&gateway, "openai").await;
}

#[tokio::test]
async fn chat_stream() {
    let gateway = TestGateway::with_script(RULES);
    let answer = gateway.post(CHAT, chat("you", true)).await;
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    let events = events(&answer);
    assert_eq!(text_at(&events, "/choices/0/delta/content"), "Hello, you!");
    assert_eq!(text_at(&events, "/choices/0/delta/tool_calls/0/function/arguments"), "{\"a\":1}");
    assert_eq!(text_at(&events, "/choices/0/finish_reason"), "tool_calls");
    // The client did not request usage, so usage is charged but hidden.
    assert!(events.iter().all(|event| event.get("usage").is_none()));
    check_usage(&gateway, "openai").await;
}

#[tokio::test]
async fn chat_continues_after_a_tool_result() {
    let gateway = TestGateway::with_script(RULES);
    let call = json!({"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}});
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "you"},
        {"role": "assistant", "content": "x", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]});
    let answer = gateway.post(CHAT, body.to_string()).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "It said done.");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn responses_document() {
    let gateway = TestGateway::with_script(RULES);
    let answer = gateway.post(RESPONSES, responses("you", false)).await.json();
    assert_eq!((&answer["object"], &answer["status"]), (&json!("response"), &json!("completed")));
    let kinds: Vec<&str> =
        answer["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(answer["output"][1]["content"][0]["text"], "Hello, you!");
    check_usage(&gateway, "openai").await;
}

#[tokio::test]
async fn responses_stream() {
    let gateway = TestGateway::with_script(RULES);
    let events = events(&gateway.post(RESPONSES, responses("you", true)).await);
    for (number, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], number);
    }
    let of_kind = |kind: &str| events.iter().filter(|event| event["type"] == kind).cloned().collect::<Vec<_>>();
    assert_eq!(text_at(&of_kind("response.output_text.delta"), "/delta"), "Hello, you!");
    assert_eq!(text_at(&of_kind("response.function_call_arguments.delta"), "/delta"), "{\"a\":1}");
    let last = events.last().unwrap();
    assert_eq!((&last["type"], &last["response"]["output"][2]["name"]), (&json!("response.completed"), &json!("run")));
    let done: Vec<Value> = of_kind("response.output_item.done").iter().map(|event| event["item"].clone()).collect();
    assert_eq!(last["response"]["output"], json!(done));
    check_usage(&gateway, "openai").await;
}

#[tokio::test]
async fn responses_websocket_is_rejected() {
    let gateway = TestGateway::with_script(RULES);
    let mut request = gateway.request(Method::GET, RESPONSES, "");
    request.headers_mut().insert("connection", "Upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    assert_eq!(gateway.fetch(request).await.status, StatusCode::UPGRADE_REQUIRED);
}

#[tokio::test]
async fn gemini_document() {
    let gateway = TestGateway::with_script(RULES);
    let answer = gateway.post(GENERATE, contents("you")).await.json();
    let parts = &answer["candidates"][0]["content"]["parts"];
    assert_eq!((&parts[0]["thought"], &parts[1]["text"]), (&json!(true), &json!("Hello, you!")));
    assert_eq!(
        (&parts[2]["functionCall"]["name"], &parts[2]["functionCall"]["args"]),
        (&json!("run"), &json!({"a": 1}))
    );
    check_usage(&gateway, "gemini").await;
}

#[tokio::test]
async fn gemini_stream_as_events_and_as_a_list() {
    let gateway = TestGateway::with_script(RULES);
    let events = events(&gateway.post(STREAM_GENERATE, contents("you")).await);
    assert_eq!(text_at(&events, "/candidates/0/content/parts/0/text"), "Hm.Hello, you!");
    assert_eq!(text_at(&events, "/candidates/0/finishReason"), "STOP");
    check_usage(&gateway, "gemini").await;

    let gateway = TestGateway::with_script(RULES);
    let list = gateway.post("/v1beta/models/m:streamGenerateContent", contents("you")).await.json();
    assert_eq!(list[0]["candidates"][0]["content"]["parts"][1]["text"], "Hello, you!");
    check_usage(&gateway, "gemini").await;
}

#[tokio::test]
async fn error_response_has_the_shape_of_each_api() {
    for (path, body, pointer) in [
        (CHAT, chat("refuse", false), "/error/message"),
        (RESPONSES, responses("refuse", true), "/error/message"),
        (STREAM_GENERATE, contents("refuse"), "/error/message"),
        ("/v1/messages", chat("refuse", true), "/error/message"),
    ] {
        let gateway = TestGateway::with_script(RULES);
        let answer = gateway.post(path, body).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.json().pointer(pointer).unwrap(), "slow down", "{path}");
        assert!(gateway.wait_for_event("upstream_error").await["message"].as_str().unwrap().contains("slow down"));
    }
}

#[tokio::test]
async fn error_during_a_stream_is_sent_in_each_api() {
    for (path, body) in [
        (CHAT, chat("break", true)),
        (RESPONSES, responses("break", true)),
        (STREAM_GENERATE, contents("break")),
        ("/v1/messages", chat("break", true)),
    ] {
        let gateway = TestGateway::with_script(RULES);
        assert!(gateway.post(path, body).await.text().contains("Overloaded"), "{path}");
        assert!(
            gateway.wait_for_event("upstream_error").await["message"].as_str().unwrap().contains("Overloaded"),
            "{path}"
        );
        gateway.wait_for_event("llm.call").await;
    }
}
