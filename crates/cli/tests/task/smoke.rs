//! TC_CLAUDE_PROXY_E2E_SMOKE: the real Claude Code in the jail, through the gateway, with a chat completions server;
//! and a task of prompts with the mock agent.

use serde_json::Value;

use crate::fixture::{TaskFixture, TaskOutput, in_repository};
use testkit::{ChatStub, StubBehaviour};

const ANSWER: &str = "A2S_OK_20260211";

fn kinds(trajectory: &[Value]) -> Vec<&str> {
    trajectory.iter().map(|event| event["type"].as_str().unwrap()).collect()
}

/// Runs the demo task against `stub` and checks the report, the journal and the remaining processes.
#[track_caller]
fn check(stub: &ChatStub) -> (TaskFixture, TaskOutput) {
    let fixture = TaskFixture::with_claude();
    fixture.env_file(stub);
    let ran = fixture.task(&in_repository("tasks/claude_proxy_demo.yaml"), &["--env-file", ".env"]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert_eq!(ran.report["outcome"], "passed");
    assert_eq!(ran.report["test_id"], "TC_CLAUDE_PROXY_E2E_SMOKE");
    assert_eq!(ran.report["artifacts"][0]["path"], "/tmp/claude_result.txt");
    assert_eq!(ran.report["artifacts"][0]["text"].as_str().unwrap().trim(), ANSWER);

    let trajectory = fixture.trajectory(&ran);
    let kinds = kinds(&trajectory);
    let at = |kind: &str| kinds.iter().position(|found| *found == kind).unwrap_or_else(|| panic!("{kind}: {kinds:?}"));
    assert!(at("session_registered") < at("anthropic_request"));
    assert!(at("anthropic_request") < at("anthropic_response"));
    assert_eq!(kinds.iter().filter(|kind| **kind == "task_command_finished").count(), 2);
    assert_eq!(kinds.last(), Some(&"session.ended"));
    let registered = &trajectory[at("session_registered")]["data"];
    assert_eq!(registered["task_name"], "claude_proxy_demo");
    assert!(registered["sandbox_id"].as_str().unwrap().starts_with("sbx_"));

    // The gateway translated the calls and was the only one with the key.
    let calls = stub.calls();
    assert!(!calls.is_empty() && calls.iter().all(|call| call.path == "/v1/chat/completions"), "{calls:#?}");
    assert!(calls.iter().all(|call| call.authorization.as_deref() == Some("Bearer sk-real-key-of-ours")));
    assert!(calls.iter().all(|call| call.body["model"] == "my-own-model"));
    assert!(
        !std::fs::read_to_string(
            fixture.path("logs/trajectory").join(format!("{}.jsonl", ran.report["session"].as_str().unwrap()))
        )
        .unwrap()
        .contains("sk-real-key-of-ours")
    );

    // The price of the model is not known: the bill says so, and nothing else had to be configured.
    let bill = trajectory.iter().find(|event| event["type"] == "llm.call").unwrap();
    assert_eq!(bill["data"]["unpriced"], "my-own-model", "{bill}");
    assert!(!fixture.path("data/viv.toml").exists());

    // No process of the sandbox is left: none has the session's marker in its environment.
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap();
    assert!(!mounts.contains(registered["sandbox_id"].as_str().unwrap()));
    (fixture, ran)
}

#[test]
fn tc_claude_proxy_e2e_smoke_streaming() {
    let stub = ChatStub::start(StubBehaviour::Answers, ANSWER);
    let (fixture, ran) = check(&stub);
    let trajectory = fixture.trajectory(&ran);
    assert!(trajectory.iter().any(|event| event["type"] == "anthropic_response" && event["data"]["stream"] == true));
    assert!(stub.calls().iter().any(|call| call.body["stream"] == true));
}

#[test]
fn tc_claude_proxy_e2e_smoke_without_streaming() {
    let stub = ChatStub::start(StubBehaviour::CutsStreams, ANSWER);
    let (fixture, ran) = check(&stub);
    let answered = fixture.trajectory(&ran).into_iter().rfind(|event| event["type"] == "anthropic_response").unwrap();
    assert_eq!(answered["data"]["stream"], false);
    assert_eq!(answered["data"]["status"], 200);
}

#[test]
fn a_task_of_prompts_collects_the_artifacts() {
    let fixture = TaskFixture::new();
    fixture.write("task.yaml", include_str!("prompts.yaml"));
    std::fs::create_dir(fixture.path("project")).unwrap();
    fixture.write("model.yaml", include_str!("model.yaml"));
    std::fs::create_dir(fixture.path("data")).unwrap();
    fixture.write("data/viv.toml", "[model]\nscript = \"../model.yaml\"\n");
    let ran = fixture.task(&fixture.path("task.yaml"), &[]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert_eq!(ran.report["answers"][0]["text"], "It is written.");
    assert_eq!(ran.report["artifacts"][0]["text"], "by the agent\n");
    assert!(!fixture.path("project/note.txt").exists(), "the workspace itself was changed");
    assert!(kinds(&fixture.trajectory(&ran)).contains(&"workspace.changed"));
}
