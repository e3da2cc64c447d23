//! Every pair of a client's API and an upstream's API: tool calls, results and refusals by name.

use std::sync::Arc;

use gateway::{GatewayLimits, ModelPrice, PriceTable, TokenRates, VendorConfig, VendorKind, VendorUpstream};
use secret::Secret;
use serde_json::{Value, json};
use tokio::io::AsyncWriteExt;

use crate::support::{
    stub_vendor::{StubVendor, http_event_stream, http_response},
    test_gateway::TestGateway,
};

fn start_gateway(kind: VendorKind, model: &str, vendor: &StubVendor) -> TestGateway {
    let mut config = VendorConfig::new("stub", kind, vendor.url());
    config.key = Some(Secret::new("sk-1"));
    config.model = Some(model.to_owned());
    let rates = TokenRates {
        input: 1,
        output: 1_000,
        cache_read: 1_000_000,
        cache_write: 1_000_000_000,
        ..TokenRates::default()
    };
    let prices = PriceTable::default().with_price(model, ModelPrice::flat(rates));
    TestGateway::with_upstream(Arc::new(VendorUpstream::new(config).unwrap()), prices, GatewayLimits::default())
}

const KINDS: [(VendorKind, &str); 4] = [
    (VendorKind::Anthropic, "claude-opus-4-6"),
    (VendorKind::Openai, "gpt-5.2"),
    (VendorKind::OpenaiCompatible, "m"),
    (VendorKind::Gemini, "gemini-3-pro-preview"),
];

/// Returns a request of each API with two tools, a call with its result, an image, and a system text.
fn conversations() -> [(&'static str, Value); 4] {
    let schema = json!({"type": "object", "properties": {"a": {"type": "integer"}}});
    let picture = "data:image/png;base64,AA==";
    let messages = json!({
        "model": "m", "max_tokens": 4096, "system": "be good", "thinking": {"type": "adaptive"},
        "tools": [{"name": "run", "input_schema": schema}, {"name": "read", "input_schema": schema}],
        "messages": [
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "run", "input": {"a": 1}}, {"type": "tool_use", "id": "c2", "name": "read", "input": {"a": 2}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "one"}, {"type": "tool_result", "tool_use_id": "c2", "content": "two"}]},
        ],
    });
    let function = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": schema}});
    let call = |id: &str, name: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
    let chat = json!({
        "model": "m", "reasoning_effort": "high", "tools": [function("run"), function("read")],
        "messages": [
            {"role": "system", "content": "be good"},
            {"role": "user", "content": [{"type": "text", "text": "look"}, {"type": "image_url", "image_url": {"url": picture}}]},
            {"role": "assistant", "content": null, "tool_calls": [call("c1", "run", "{\"a\":1}"), call("c2", "read", "{\"a\":2}")]},
            {"role": "tool", "tool_call_id": "c1", "content": "one"},
            {"role": "tool", "tool_call_id": "c2", "content": "two"},
        ],
    });
    // As Codex declares the tools of its newest models.
    let responses = json!({
        "model": "m", "instructions": "be good", "reasoning": {"effort": "high", "summary": "auto"}, "store": false,
        "parallel_tool_calls": false,
        "input": [
            {"type": "additional_tools", "role": "developer", "tools": [
                {"type": "function", "name": "run", "parameters": schema, "strict": false},
                {"type": "namespace", "name": "mcp__shop", "description": "a shop", "tools": [{"type": "function", "name": "buy", "parameters": schema}]},
                {"type": "custom", "name": "read", "description": "reads", "format": {"type": "grammar", "syntax": "lark", "definition": "start: /x/"}},
            ]},
            {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "look"}, {"type": "input_image", "image_url": picture}]},
            {"type": "reasoning", "summary": [{"type": "summary_text", "text": "hm"}], "encrypted_content": "other"},
            {"type": "function_call", "call_id": "c1", "name": "run", "arguments": "{\"a\":1}"},
            {"type": "custom_tool_call", "call_id": "c2", "name": "read", "input": "x"},
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {"type": "custom_tool_call_output", "call_id": "c2", "output": [{"type": "input_text", "text": "two"}]},
        ],
    });
    let result = |name: &str, text: &str| json!({"functionResponse": {"name": name, "response": {"output": text}}});
    let gemini = json!({
        "systemInstruction": {"role": "user", "parts": [{"text": "be good"}]},
        "tools": [{"functionDeclarations": [{"name": "run", "parameters": {"type": "OBJECT"}}, {"name": "read", "parametersJsonSchema": schema}]}],
        "generationConfig": {"temperature": 1, "topK": 64, "thinkingConfig": {"includeThoughts": true}},
        "contents": [
            {"role": "user", "parts": [{"text": "look"}, {"inlineData": {"mimeType": "image/png", "data": "AA=="}}]},
            {"role": "model", "parts": [{"functionCall": {"name": "run", "args": {"a": 1}}}, {"functionCall": {"name": "read", "args": {}}}]},
            {"role": "user", "parts": [result("run", "one"), result("read", "two")]},
        ],
    });
    [
        ("/v1/messages", messages),
        ("/v1/chat/completions", chat),
        ("/v1/responses", responses),
        ("/v1beta/models/m:generateContent", gemini),
    ]
}

/// Returns an answer of the upstream's API: a text, and a call of `run`.
fn answer(kind: VendorKind) -> Value {
    match kind {
        VendorKind::Anthropic => json!({
            "id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "tool_use",
            "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "text", "text": "ok"}, {"type": "tool_use", "id": "c3", "name": "run", "input": {"a": 3}}],
            "usage": {"input_tokens": 5, "cache_read_input_tokens": 2, "cache_creation_input_tokens": 1, "output_tokens": 7},
        }),
        VendorKind::Gemini => json!({
            "candidates": [{"content": {"role": "model", "parts": [{"text": "hm", "thought": true}, {"text": "ok"}, {"functionCall": {"id": "c3", "name": "run", "args": {"a": 3}}, "thoughtSignature": "c2ln"}]}, "finishReason": "STOP"}],
            "usageMetadata": {"promptTokenCount": 7, "cachedContentTokenCount": 2, "candidatesTokenCount": 3, "thoughtsTokenCount": 4}, "modelVersion": "m", "responseId": "r",
        }),
        _ => json!({
            "id": "1", "object": "chat.completion", "model": "m",
            "choices": [{"index": 0, "message": {"role": "assistant", "content": "ok", "tool_calls": [{"id": "c3", "type": "function", "function": {"name": "run", "arguments": "{\"a\":3}"}}]}, "finish_reason": "tool_calls"}],
            "usage": {"prompt_tokens": 7, "completion_tokens": 7, "prompt_tokens_details": {"cached_tokens": 2}},
        }),
    }
}

/// Returns the text, and the name and the arguments of the call, that a client reads from its answer.
fn read_answer(path: &str, answer: &Value) -> (String, String, Value) {
    let text = |value: &Value| value.as_str().unwrap_or_else(|| panic!("{answer}")).to_owned();
    let of_kind = |list: &Value, field: &str, kind: &str| {
        list.as_array().unwrap().iter().find(|part| part[field] == kind).unwrap_or_else(|| panic!("{answer}")).clone()
    };
    let parsed = |value: &Value| serde_json::from_str(value.as_str().unwrap()).unwrap();
    match path {
        "/v1/messages" => {
            let (words, call) =
                (of_kind(&answer["content"], "type", "text"), of_kind(&answer["content"], "type", "tool_use"));
            (text(&words["text"]), text(&call["name"]), call["input"].clone())
        }
        "/v1/chat/completions" => {
            let message = &answer["choices"][0]["message"];
            let function = &message["tool_calls"][0]["function"];
            (text(&message["content"]), text(&function["name"]), parsed(&function["arguments"]))
        }
        "/v1/responses" => {
            let (message, call) =
                (of_kind(&answer["output"], "type", "message"), of_kind(&answer["output"], "type", "function_call"));
            (text(&message["content"][0]["text"]), text(&call["name"]), parsed(&call["arguments"]))
        }
        _ => {
            let parts = answer["candidates"][0]["content"]["parts"].as_array().unwrap();
            let words = parts.iter().find(|part| part["text"].is_string() && part["thought"].is_null()).unwrap();
            let call = parts.iter().find(|part| part["functionCall"].is_object()).unwrap();
            (text(&words["text"]), text(&call["functionCall"]["name"]), call["functionCall"]["args"].clone())
        }
    }
}

#[tokio::test]
async fn every_client_calls_tools_at_every_upstream() {
    for (kind, model) in KINDS {
        for (path, conversation) in conversations() {
            let body = answer(kind).to_string();
            let vendor = StubVendor::answering(http_response("200 OK", "application/json", &body)).await;
            let gateway = start_gateway(kind, model, &vendor);
            let answer = gateway.post(path, conversation.to_string()).await;
            assert_eq!(answer.status, 200, "{path} at {kind:?}: {}", answer.text());
            let received = &vendor.received()[0];
            let sent: Value = serde_json::from_slice(&received.body).unwrap();
            let target = received.line().split(' ').nth(1).unwrap();
            let forwarded = target == path || kind == VendorKind::Gemini && path.contains(":generateContent");
            // A body that is not translated is the client's own.
            if !forwarded {
                assert_eq!(testkit::check_vendor_request(target, &sent), Ok(()), "{path} at {kind:?}: {sent}");
                for part in ["be good", "look", "one", "two", "AA==", "run", "read"] {
                    assert!(sent.to_string().contains(part), "{part} is lost: {path} at {kind:?}: {sent}");
                }
                let (text, name, arguments) = read_answer(path, &answer.json());
                assert_eq!(
                    (text.as_str(), name.as_str(), arguments),
                    ("ok", "run", json!({"a": 3})),
                    "{path} at {kind:?}"
                );
                let call = gateway.wait_for_event("llm.call").await;
                let written = u64::from(kind == VendorKind::Anthropic);
                let expected = 5 + 7 * 1_000 + 2 * 1_000_000 + written * 1_000_000_000;
                assert_eq!(call["cost_picos"], expected, "{path} at {kind:?}: {call}");
            }
        }
    }
}

#[tokio::test]
async fn tools_of_a_namespace_keep_their_name_at_the_client() {
    let events = [
        r#"{"id":"1","model":"m","choices":[{"delta":{"tool_calls":[{"index":0,"id":"c3","function":{"name":"mcp__shop__buy","arguments":"{}"}},{"index":1,"id":"c4","function":{"name":"read","arguments":"{\"input\":\"x\"}"}}]},"finish_reason":"tool_calls"}]}"#,
        "[DONE]",
    ]
    .map(|event| format!("data: {event}\n\n"));
    let vendor = StubVendor::answering(http_event_stream(&events.each_ref().map(String::as_str))).await;
    let gateway = start_gateway(VendorKind::OpenaiCompatible, "m", &vendor);
    let [_, _, (path, mut conversation), _] = conversations();
    conversation["stream"] = true.into();
    let answer = gateway.post(path, conversation.to_string()).await;
    let last = answer.text().lines().rfind(|line| line.starts_with("data: ")).unwrap().to_owned();
    let last: Value = serde_json::from_str(last.trim_start_matches("data: ")).unwrap();
    let output = &last["response"]["output"];
    assert_eq!((&output[0]["namespace"], &output[0]["name"]), (&json!("mcp__shop"), &json!("buy")), "{last}");
    assert_eq!((&output[1]["type"], &output[1]["input"]), (&json!("custom_tool_call"), &json!("x")), "{last}");
}

#[tokio::test]
async fn part_without_an_equivalent_is_refused_by_name() {
    let refused = [
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [{"type": "document", "source": {}}]}]}),
            "messages[0].content[0].type: document",
        ),
        (
            "/v1/messages",
            json!({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}], "tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
            "tools",
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": [{"role": "user", "content": "hi"}], "logprobs": true}),
            "logprobs",
        ),
        (
            "/v1/chat/completions",
            json!({"model": "m", "messages": [{"role": "user", "content": [{"type": "input_audio", "input_audio": {}}]}]}),
            "messages[0].content[0].type: input_audio",
        ),
        (
            "/v1/responses",
            json!({"model": "m", "input": [{"type": "item_reference", "id": "x"}]}),
            "input[0].type: item_reference",
        ),
        ("/v1/responses", json!({"model": "m", "input": "hi", "tools": [{"type": "web_search"}]}), "tools"),
        (
            "/v1/responses",
            json!({"model": "m", "input": "hi", "previous_response_id": "resp_1"}),
            "previous_response_id",
        ),
    ];
    for (path, body, field) in refused {
        let vendor = StubVendor::answering("").await;
        let gateway = start_gateway(VendorKind::Gemini, "gemini-3-pro-preview", &vendor);
        let answer = gateway.post(path, body.to_string()).await;
        assert_eq!(answer.status, 400, "{path} {body}");
        let message = answer.json()["error"]["message"].as_str().unwrap().to_owned();
        assert!(message.contains(&format!("`{field}`")), "{message}");
        assert_eq!(answer.headers["x-should-retry"], "false");
        assert!(vendor.received().is_empty());
    }
    let body = json!({"contents": [{"role": "user", "parts": [{"text": "hi"}]}], "cachedContent": "cachedContents/1"});
    let vendor = StubVendor::answering("").await;
    let gateway = start_gateway(VendorKind::Anthropic, "claude-opus-4-6", &vendor);
    let answer = gateway.post("/v1beta/models/m:generateContent", body.to_string()).await.json();
    assert_eq!(answer["error"]["status"], "INVALID_ARGUMENT");
    assert!(answer["error"]["message"].as_str().unwrap().contains("`cachedContent`"), "{answer}");
}

#[tokio::test]
async fn signed_reasoning_comes_back_to_its_vendor() {
    let vendor =
        StubVendor::answering(http_response("200 OK", "application/json", &answer(VendorKind::Gemini).to_string()))
            .await;
    let gateway = start_gateway(VendorKind::Gemini, "gemini-3-pro-preview", &vendor);
    let [(path, mut conversation), ..] = conversations();
    let answered = gateway.post(path, conversation.to_string()).await.json();
    let messages = conversation["messages"].as_array_mut().unwrap();
    messages.push(json!({"role": "assistant", "content": answered["content"]}));
    messages
        .push(json!({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c3", "content": "three"}]}));
    gateway.post(path, conversation.to_string()).await;
    let sent: Value = serde_json::from_slice(&vendor.received()[1].body).unwrap();
    let parts = sent["contents"][3]["parts"].as_array().unwrap();
    let call = parts.iter().find(|part| part["functionCall"].is_object()).unwrap();
    assert_eq!(call["thoughtSignature"], "c2ln", "{sent}");
}

#[tokio::test]
async fn interrupted_responses_stream_ends_with_a_failed_response() {
    let event =
        r#"data: {"type":"response.created","response":{"id":"resp_1","status":"in_progress"},"sequence_number":4}"#;
    let begun = http_event_stream(&[&format!("{event}\n\n")]);
    let vendor = StubVendor::with_handler(move |_, mut connection| {
        let begun = begun.clone();
        async move {
            // Closes the connection before the last chunk.
            connection.write_all(begun.trim_end_matches("0\r\n\r\n").as_bytes()).await.ok()?;
            None
        }
    })
    .await;
    let gateway = start_gateway(VendorKind::Openai, "gpt-5.2", &vendor);
    let answer = gateway.post("/v1/responses", r#"{"model":"m","input":"hi","stream":true}"#).await;
    let last =
        answer.text().lines().rfind(|line| line.starts_with("data: ")).unwrap().trim_start_matches("data: ").to_owned();
    let last: Value = serde_json::from_str(&last).unwrap();
    assert_eq!((&last["type"], &last["sequence_number"]), (&json!("response.failed"), &json!(5)));
    assert_eq!((&last["response"]["id"], &last["response"]["status"]), (&json!("resp_1"), &json!("failed")));
    assert!(last["response"]["error"]["message"].is_string());
}
