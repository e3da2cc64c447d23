//! The same script in the words of every API: each client reads its own.

use http::{Method, StatusCode};
use serde_json::{Value, json};

use crate::support::{Answer, Desk};

const RULES: &str = "  - when: {prompt: {contains: break}}\n    answer: [text: a, fail: {type: overloaded_error, message: Overloaded}]\n  - when: {prompt: {contains: refuse}}\n    error: {status: 429, message: slow down}\n  - when: {step: 1}\n    answer: [thinking: Hm., text: 'Hello, ${prompt}!', tool: {name: run, input: {a: 1}}]\n    usage: {input: 10, output: 7, cache_read: 5}\n    pace: {chars: 2}\n  - answer: [text: 'It said ${tool_result}.']\n";

const CHAT: &str = "/v1/chat/completions";
const RESPONSES: &str = "/v1/responses";
const WHOLE: &str = "/v1beta/models/m:generateContent";
const STREAM: &str = "/v1beta/models/m:streamGenerateContent?alt=sse";

fn chat(text: &str, stream: bool) -> String {
    json!({"model": "m", "stream": stream, "messages": [{"role": "user", "content": text}]}).to_string()
}

fn responses(text: &str, stream: bool) -> String {
    json!({"model": "m", "stream": stream, "input": text}).to_string()
}

fn contents(text: &str) -> String {
    json!({"contents": [{"role": "user", "parts": [{"text": text}]}]}).to_string()
}

/// The data of the events of a stream.
fn events(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.headers["content-type"], "text/event-stream");
    let lines = answer.text().lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter(|data| *data != "[DONE]").map(|data| serde_json::from_str(data).unwrap()).collect()
}

/// The texts at `pointer` of all events, put together.
fn text_at(events: &[Value], pointer: &str) -> String {
    events.iter().filter_map(|event| event.pointer(pointer)?.as_str()).collect()
}

async fn check_usage(desk: &Desk, family: &str) {
    let call = desk.event("llm.call").await;
    let usage = json!({"input_tokens": 10, "output_tokens": 7, "cache_read_tokens": 5, "cache_write_tokens": 0, "cache_write_1h_tokens": 0});
    assert_eq!(call["usage"], usage);
    assert_eq!(call["model_answered"], "m");
    assert_eq!(desk.notes.names(), [&*format!("{family}_request"), &*format!("{family}_response"), "llm.call"]);
}

#[tokio::test]
async fn chat_whole() {
    let desk = Desk::playing(RULES);
    let answer = desk.post(CHAT, chat("you", false)).await.json();
    let message = &answer["choices"][0]["message"];
    assert_eq!((&message["content"], &message["reasoning_content"]), (&json!("Hello, you!"), &json!("Hm.")));
    assert_eq!(message["tool_calls"][0]["function"], json!({"name": "run", "arguments": "{\"a\":1}"}));
    assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
    check_usage(&desk, "openai").await;
}

#[tokio::test]
async fn chat_streamed() {
    let desk = Desk::playing(RULES);
    let answer = desk.post(CHAT, chat("you", true)).await;
    assert!(answer.text().ends_with("data: [DONE]\n\n"));
    let events = events(&answer);
    assert_eq!(text_at(&events, "/choices/0/delta/content"), "Hello, you!");
    assert_eq!(text_at(&events, "/choices/0/delta/tool_calls/0/function/arguments"), "{\"a\":1}");
    assert_eq!(text_at(&events, "/choices/0/finish_reason"), "tool_calls");
    // Usage was not asked for, so it is counted and not shown.
    assert!(events.iter().all(|event| event.get("usage").is_none()));
    check_usage(&desk, "openai").await;
}

#[tokio::test]
async fn chat_goes_on_after_a_tool() {
    let desk = Desk::playing(RULES);
    let call = json!({"id": "c", "type": "function", "function": {"name": "run", "arguments": "{}"}});
    let body = json!({"model": "m", "messages": [
        {"role": "user", "content": "you"},
        {"role": "assistant", "content": "x", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "done"},
    ]});
    let answer = desk.post(CHAT, body.to_string()).await.json();
    assert_eq!(answer["choices"][0]["message"]["content"], "It said done.");
    assert_eq!(answer["choices"][0]["finish_reason"], "stop");
}

#[tokio::test]
async fn responses_whole() {
    let desk = Desk::playing(RULES);
    let answer = desk.post(RESPONSES, responses("you", false)).await.json();
    assert_eq!((&answer["object"], &answer["status"]), (&json!("response"), &json!("completed")));
    let kinds: Vec<&str> =
        answer["output"].as_array().unwrap().iter().map(|item| item["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["reasoning", "message", "function_call"]);
    assert_eq!(answer["output"][1]["content"][0]["text"], "Hello, you!");
    check_usage(&desk, "openai").await;
}

#[tokio::test]
async fn responses_streamed() {
    let desk = Desk::playing(RULES);
    let events = events(&desk.post(RESPONSES, responses("you", true)).await);
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
    check_usage(&desk, "openai").await;
}

#[tokio::test]
async fn responses_has_no_websocket() {
    let desk = Desk::playing(RULES);
    let mut request = desk.request(Method::GET, RESPONSES, "");
    request.headers_mut().insert("connection", "Upgrade".parse().unwrap());
    request.headers_mut().insert("upgrade", "websocket".parse().unwrap());
    assert_eq!(desk.fetch(request).await.status, StatusCode::UPGRADE_REQUIRED);
}

#[tokio::test]
async fn gemini_whole() {
    let desk = Desk::playing(RULES);
    let answer = desk.post(WHOLE, contents("you")).await.json();
    let parts = &answer["candidates"][0]["content"]["parts"];
    assert_eq!((&parts[0]["thought"], &parts[1]["text"]), (&json!(true), &json!("Hello, you!")));
    assert_eq!(
        (&parts[2]["functionCall"]["name"], &parts[2]["functionCall"]["args"]),
        (&json!("run"), &json!({"a": 1}))
    );
    check_usage(&desk, "gemini").await;
}

#[tokio::test]
async fn gemini_streamed_as_events_and_as_a_list() {
    let desk = Desk::playing(RULES);
    let events = events(&desk.post(STREAM, contents("you")).await);
    assert_eq!(text_at(&events, "/candidates/0/content/parts/0/text"), "Hm.Hello, you!");
    assert_eq!(text_at(&events, "/candidates/0/finishReason"), "STOP");
    check_usage(&desk, "gemini").await;

    let desk = Desk::playing(RULES);
    let list = desk.post("/v1beta/models/m:streamGenerateContent", contents("you")).await.json();
    assert_eq!(list[0]["candidates"][0]["content"]["parts"][1]["text"], "Hello, you!");
    check_usage(&desk, "gemini").await;
}

#[tokio::test]
async fn an_error_of_the_model_has_the_shape_of_each_api() {
    for (path, body, pointer) in [
        (CHAT, chat("refuse", false), "/error/message"),
        (RESPONSES, responses("refuse", true), "/error/message"),
        (STREAM, contents("refuse"), "/error/message"),
        ("/v1/messages", chat("refuse", true), "/error/message"),
    ] {
        let desk = Desk::playing(RULES);
        let answer = desk.post(path, body).await;
        assert_eq!(answer.status, StatusCode::TOO_MANY_REQUESTS);
        assert_eq!(answer.json().pointer(pointer).unwrap(), "slow down", "{path}");
        assert!(desk.event("upstream_error").await["message"].as_str().unwrap().contains("slow down"));
    }
}

#[tokio::test]
async fn an_error_in_mid_stream_is_heard_in_each_api() {
    for (path, body) in [
        (CHAT, chat("break", true)),
        (RESPONSES, responses("break", true)),
        (STREAM, contents("break")),
        ("/v1/messages", chat("break", true)),
    ] {
        let desk = Desk::playing(RULES);
        assert!(desk.post(path, body).await.text().contains("Overloaded"), "{path}");
        assert!(desk.event("upstream_error").await["message"].as_str().unwrap().contains("Overloaded"), "{path}");
        desk.event("llm.call").await;
    }
}
