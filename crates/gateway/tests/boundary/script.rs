//! Scripts as people write them: the built-in one, and every one in the manual.

use std::sync::Arc;

use gateway::{GatewayLimits, ModelScript, PriceTable, ScriptedUpstream};
use serde_json::{Value, json};

use crate::support::Desk;

const MANUAL: &str = include_str!("../../../../docs/scripted-model.md");

/// Sends `messages` and returns the content of the answer.
async fn ask(desk: &Desk, messages: &Value) -> Vec<Value> {
    let body = json!({"model": "scripted", "max_tokens": 100, "messages": messages});
    let answer = desk.post("/v1/messages", body.to_string()).await.json();
    answer["content"].as_array().unwrap_or_else(|| panic!("{answer}")).clone()
}

fn demo() -> Desk {
    Desk::before(Arc::new(ScriptedUpstream::demo().unwrap()), PriceTable::default(), GatewayLimits::default())
}

/// Plays one turn the way an agent does: runs the tools it is asked to, until there are none.
async fn play_turn(desk: &Desk, prompt: &str, run: impl Fn(&str, &Value) -> String) -> (Vec<Value>, String) {
    let mut messages = vec![json!({"role": "user", "content": prompt})];
    let mut calls = Vec::new();
    loop {
        let content = ask(desk, &json!(messages)).await;
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
async fn the_demo_writes_runs_and_is_denied() {
    let prompt = "Write a hello script, run it, and try to phone home.";
    let run = |name: &str, _: &Value| if name == "fetch" { "connection denied".into() } else { "ok".to_owned() };
    let (calls, last) = play_turn(&demo(), prompt, run).await;
    let names: Vec<&str> = calls.iter().map(|call| call["name"].as_str().unwrap()).collect();
    assert_eq!(names, ["write_file", "run_command", "fetch"]);
    assert_eq!(calls[0]["input"]["path"], "hello.sh");
    assert_eq!(calls[1]["input"]["command"], json!(["sh", "hello.sh"]));
    assert_eq!(calls[2]["input"]["url"], "http://example.com/");
    assert_eq!(last, "hello.sh is in the workspace. Phoning home did not work out: connection denied");
}

#[tokio::test]
async fn the_built_in_script_runs_one_tool_at_a_time_when_asked() {
    let desk = demo();
    let run = |name: &str, input: &Value| format!("{name} {input}");
    for (prompt, expected) in [
        ("run ls -la", r#"run_command {"command":["sh","-c","ls -la"]}"#),
        ("fetch http://example.com/x", r#"fetch {"url":"http://example.com/x"}"#),
        ("write a.txt: one: two", r#"write_file {"content":"one: two\n","path":"a.txt"}"#),
        ("ask Shall we?", r#"ask_user {"options":["yes","no"],"question":"Shall we?"}"#),
        ("good morning", "You said: good morning"),
    ] {
        assert_eq!(play_turn(&desk, prompt, run).await.1, expected);
    }
}

/// The fenced blocks of the manual: language and content.
fn blocks() -> impl Iterator<Item = (&'static str, &'static str)> {
    MANUAL.split("```").skip(1).step_by(2).map(|block| block.split_once('\n').unwrap())
}

#[tokio::test]
async fn every_script_of_the_manual_plays_as_the_manual_says() {
    let mut desk = None;
    let mut answered = 0;
    for (language, block) in blocks() {
        if language == "yaml" {
            let script = ModelScript::parse(block).unwrap_or_else(|error| panic!("{error} in\n{block}"));
            desk = Some(Desk::before(
                Arc::new(ScriptedUpstream::new(script)),
                PriceTable::default(),
                GatewayLimits::default(),
            ));
            continue;
        }
        for (prompt, expected) in block.split("> ").skip(1).map(|pair| pair.split_once("\n< ").unwrap()) {
            let content = ask(desk.as_ref().unwrap(), &json!([{"role": "user", "content": prompt}])).await;
            assert_eq!(content[0]["text"], expected.trim_end(), "to `{prompt}`");
            answered += 1;
        }
    }
    assert_eq!((blocks().filter(|(language, _)| *language == "yaml").count(), answered), (4, 5));
}

#[tokio::test]
async fn the_same_request_gets_the_same_bytes() {
    let (first, second) = (demo(), demo());
    let body =
        json!({"model": "m", "stream": true, "messages": [{"role": "user", "content": "phone home"}]}).to_string();
    let one = first.post("/v1/messages", body.clone()).await;
    assert_eq!(one.body, second.post("/v1/messages", body).await.body);
}
