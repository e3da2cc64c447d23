//! The scripted model: the built-in script and every script in `docs/scripted-model.md`.

use std::sync::Arc;

use gateway::{GatewayLimits, ModelScript, PriceTable, ScriptedUpstream};
use serde_json::{Value, json};

use crate::support::test_gateway::TestGateway;

const MANUAL: &str = include_str!("../../../../docs/scripted-model.md");

/// Sends `messages` and returns the content of the answer.
async fn send_messages(gateway: &TestGateway, messages: &Value) -> Vec<Value> {
    let body = json!({"model": "scripted", "max_tokens": 100, "messages": messages});
    let answer = gateway.post("/v1/messages", body.to_string()).await.json();
    answer["content"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

fn demo_gateway() -> TestGateway {
    TestGateway::with_upstream(
        Arc::new(ScriptedUpstream::demo().unwrap()),
        PriceTable::default(),
        GatewayLimits::default(),
    )
}

/// Runs one turn as an agent does: runs the requested tools until there are none; returns the calls and the last text.
async fn run_turn(gateway: &TestGateway, prompt: &str, run: impl Fn(&str, &Value) -> String) -> (Vec<Value>, String) {
    let mut messages = vec![json!({"role": "user", "content": prompt})];
    let mut calls = Vec::new();
    loop {
        let content = send_messages(gateway, &json!(messages)).await;
        let tools: Vec<Value> = content.iter().filter(|block| block["type"] == "tool_use").cloned().collect();
        if tools.is_empty() {
            return (calls, content[0]["text"].as_str().unwrap().to_owned());
        }
        let results: Vec<Value> = tools
            .iter()
            .map(|call| {
                let result = run(call["name"].as_str().unwrap(), &call["input"]);
                json!({"type": "tool_result", "tool_use_id": call["id"], "content": result})
            })
            .collect();
        calls.extend(tools);
        messages.push(json!({"role": "assistant", "content": content}));
        messages.push(json!({"role": "user", "content": results}));
    }
}

#[tokio::test]
async fn demo_writes_a_file_runs_it_and_is_denied_the_network() {
    let prompt = "Write a hello script, run it, and try to phone home.";
    let run = |name: &str, _: &Value| if name == "fetch" { "connection denied".into() } else { "ok".to_owned() };
    let (calls, last) = run_turn(&demo_gateway(), prompt, run).await;
    let names: Vec<&str> = calls.iter().map(|call| call["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["write_file", "run_command", "fetch"]);
    assert_eq!(calls[0]["input"]["path"], "hello.sh");
    assert_eq!(calls[1]["input"]["command"], json!(["sh", "hello.sh"]));
    assert_eq!(calls[2]["input"]["url"], "http://example.com/");
    assert_eq!(last, "hello.sh is in the workspace. Phoning home did not work out: connection denied");
}

#[tokio::test]
async fn built_in_script_calls_the_requested_tool() {
    let gateway = demo_gateway();
    let run = |name: &str, input: &Value| format!("{name} {input}");
    for (prompt, expected) in [
        ("run ls -la", r#"run_command {"command":["sh","-c","ls -la"]}"#),
        ("fetch http://example.com/x", r#"fetch {"url":"http://example.com/x"}"#),
        ("write a.txt: one: two", r#"write_file {"content":"one: two\n","path":"a.txt"}"#),
        ("ask Shall we?", r#"ask_user {"options":["yes","no"],"question":"Shall we?"}"#),
        ("good morning", "You said: good morning"),
    ] {
        assert_eq!(run_turn(&gateway, prompt, run).await.1, expected);
    }
}

/// Returns the language and content of the fenced blocks of the manual.
fn blocks() -> impl Iterator<Item = (&'static str, &'static str)> {
    MANUAL.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap())
}

#[tokio::test]
async fn every_script_of_the_manual_answers_as_documented() {
    let mut gateway = None;
    let mut answered = 0;
    for (language, block) in blocks() {
        if language == "yaml" {
            let script = ModelScript::parse(block).unwrap_or_else(|error| panic!("{error} in\n{block}"));
            gateway = Some(TestGateway::with_upstream(
                Arc::new(ScriptedUpstream::new(script)),
                PriceTable::default(),
                GatewayLimits::default(),
            ));
            continue;
        }
        for (prompt, expected) in block.split("> ").skip(1).map(|pair| pair.split_once("\n< ").unwrap()) {
            let content = send_messages(gateway.as_ref().unwrap(), &json!([{"role": "user", "content": prompt}])).await;
            assert_eq!(content[0]["text"], expected.trim_end(), "to `{prompt}`");
            answered += 1;
        }
    }
    assert_eq!((blocks().filter(|(language, _)| *language == "yaml").count(), answered), (4, 5));
}

#[tokio::test]
async fn equal_requests_get_equal_bytes() {
    let (first, second) = (demo_gateway(), demo_gateway());
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "phone home"}]}).to_string();
    let one = first.post("/v1/messages", body.clone()).await;
    assert_eq!(one.body, second.post("/v1/messages", body).await.body);
}
