//! Tests for every failure class of a task.

use std::net::TcpListener;

use serde_json::Value;

use crate::fixture::{TaskFixture, TaskOutput};
use testkit::{ChatStub, StubBehaviour};

/// Commands that call the gateway with bash's built-in TCP.
const CALL: &str = r#"
version: 1
name: a_call
env_file: .env
commands:
  - run:
      - bash
      - -c
      - |
        body='{"model":"m","max_tokens":8,"messages":[{"role":"user","content":"hello"}]}'
        exec 3<>/dev/tcp/127.0.0.1/18080
        printf 'POST /v1/messages HTTP/1.1\r\nhost: gateway\r\nauthorization: Bearer %s\r\ncontent-type: application/json\r\ncontent-length: %s\r\nconnection: close\r\n\r\n%s' "$ANTHROPIC_AUTH_TOKEN" "${#body}" "$body" >&3
        read -r _ status _ <&3
        [ "$status" = 200 ]
logs: logs
"#;

const ECHO: &str = "{version: 1, name: an_echo, commands: [{run: [echo, hello]}], logs: logs}";
const BIND: &str = "version: 1\nfs: {workspace: bind}\nmodels: {allow: [\"*\"], budget_usd: 1, max_requests: 10}\n";

#[track_caller]
fn check(ran: &TaskOutput, class: &str, code: i32) {
    assert_eq!(ran.report["outcome"], "failed", "{ran:#?}");
    assert_eq!(ran.report["failure"]["class"], class, "{ran:#?}");
    assert_eq!(ran.code, Some(code), "{ran:#?}");
    let told: Value = serde_json::from_str(ran.people.lines().last().unwrap()).unwrap();
    assert_eq!(told["code"], class);
}

fn task(fixture: &TaskFixture, text: &str, arguments: &[&str]) -> TaskOutput {
    fixture.write("task.yaml", text);
    fixture.task(&fixture.path("task.yaml"), arguments)
}

#[test]
fn an_unenforceable_policy_is_a_sandbox_create_error() {
    // Without a sandbox there is no overlay, and no weaker mode replaces it.
    let ran =
        task(&TaskFixture::new(), ECHO, &["--set", "sandbox.backend=unconfined", "--set", "sandbox.policy=balanced"]);
    check(&ran, "sandbox_create_error", 6);
}

#[test]
fn a_task_file_cannot_switch_the_sandbox_off() {
    let fixture = TaskFixture::new();
    let unconfined = ECHO.replace("logs: logs", "sandbox: {backend: unconfined}, logs: logs");
    let ran = task(&fixture, &unconfined, &[]);
    assert_eq!(ran.code, Some(5), "{ran:#?}");
    assert!(
        ran.people.contains("policy_denied") && ran.people.contains("--set sandbox.backend=unconfined"),
        "{ran:#?}"
    );
}

#[test]
fn a_policy_that_a_task_file_names_only_narrows_until_it_is_trusted() {
    let fixture = TaskFixture::new();
    fixture.write("wide.yaml", "version: 1\nfs: {workspace: bind}\n");
    let named = |name: &str| ECHO.replace("logs: logs", &format!("sandbox: {{policy: {name}}}, logs: logs"));
    let ran = task(&fixture, &named("wide.yaml"), &[]);
    assert!(ran.people.contains("policy_widening_denied") && ran.people.contains("viv policy trust"), "{ran:#?}");
    let ran = task(&fixture, &named("strict"), &[]);
    assert_eq!(ran.code, Some(0), "a narrower policy is used: {ran:#?}");
}

#[test]
fn a_used_gateway_address_is_a_proxy_bind_error() {
    let (fixture, taken) = (TaskFixture::new(), TcpListener::bind("127.0.0.1:0").unwrap());
    fixture.write("bind.yaml", BIND);
    let gateway = format!("gateway={}", taken.local_addr().unwrap());
    let sets = ["--set", "sandbox={backend: unconfined, policy: bind.yaml}", "--set", &gateway];
    check(&task(&fixture, ECHO, &sets), "proxy_bind_error", 6);
}

#[test]
fn a_command_that_fails_after_a_failed_model_call_is_an_upstream_error() {
    let fixture = TaskFixture::new();
    let stub = ChatStub::start(StubBehaviour::Refuses(500), "");
    fixture.env_file(&stub);
    check(&task(&fixture, CALL, &[]), "upstream_error", 7);
    assert_eq!(stub.calls().len(), 1);
}

#[test]
fn a_successful_model_call_is_not_an_upstream_error() {
    let fixture = TaskFixture::new();
    fixture.env_file(&ChatStub::start(StubBehaviour::Answers, "hello"));
    let ran = task(&fixture, CALL, &[]);
    assert_eq!((ran.code, &ran.report["outcome"]), (Some(0), &Value::from("passed")), "{ran:#?}");
}

#[test]
fn a_command_that_fails_by_itself_is_a_runtime_error() {
    for (set, part) in [
        ("commands=[{run: [sh, -c, 'echo why >&2; exit 3']}]", "exited with code 3, expected 0"),
        ("commands=[{run: [no-such-program]}]", "cannot run"),
        ("commands=[{run: [echo, hello], expect: {contains: goodbye}}]", "does not contain `goodbye`"),
        ("commands=[{run: [sleep, '600'], timeout: 200ms}]", "exceeded its time limit"),
    ] {
        let ran = task(&TaskFixture::new(), ECHO, &["--set", set]);
        check(&ran, "runtime_error", 1);
        assert!(ran.report["failure"]["message"].as_str().unwrap().contains(part), "{ran:#?}");
    }
}

#[test]
fn a_missing_artifact_is_an_artifact_read_error() {
    let fixture = TaskFixture::new();
    let ran = task(&fixture, ECHO, &["--set", "artifacts=[{path: /tmp/nothing.txt}]"]);
    check(&ran, "artifact_read_error", 3);
    // The sandbox is removed and the journal is closed anyway.
    let last = fixture.trajectory(&ran).pop().unwrap();
    assert_eq!((&last["type"], &last["data"]["reason"]), (&Value::from("session.ended"), &Value::from("error")));
}

#[test]
fn an_artifact_link_is_followed_in_the_sandbox_only() {
    let fixture = TaskFixture::new();
    let commands = "commands=[{run: [ln, -s, /etc/hostname-of-the-host, /tmp/link]}]";
    let ran = task(&fixture, ECHO, &["--set", commands, "--set", "artifacts=[{path: /tmp/link}]"]);
    check(&ran, "artifact_read_error", 3);
}

#[test]
fn an_invalid_task_is_rejected_with_its_position() {
    let ran = task(&TaskFixture::new(), "{version: 1, name: x, comands: []}", &[]);
    assert_eq!(ran.code, Some(2));
    assert!(ran.people.contains("config_invalid") && ran.people.contains("invalid task"), "{}", ran.people);
}

#[test]
fn an_entrypoint_runs_until_the_commands_end() {
    let entrypoint = "sandbox={entrypoint: [sh, -c, 'echo up > /tmp/up; exec sleep 600']}";
    let waits = "commands=[{run: [sh, -c, 'until [ -s /tmp/up ]; do sleep 0.01; done; cat /tmp/up'], timeout: 20s}]";
    let ran = task(&TaskFixture::new(), ECHO, &["--set", entrypoint, "--set", waits]);
    assert_eq!(ran.code, Some(0), "{ran:#?}");
    assert_eq!(ran.report["commands"][0]["stdout"], "up\n");
}

#[test]
fn all_prompts_share_the_time_limit_of_the_task() {
    // Each prompt fits into the limit, both together do not.
    let text = "{version: 1, name: slow, agent: mock, timeout: 2s, prompts: [{text: /slow 15}, {text: /slow 15}]}";
    let ran = task(&TaskFixture::new(), text, &[]);
    check(&ran, "timeout", 124);
    assert!(ran.report["failure"]["message"].as_str().unwrap().contains("time limit of 2s"), "{ran:#?}");
}

#[test]
fn an_unsupported_permission_mode_is_rejected() {
    let text = "{version: 1, name: planned, agent: mock, permission_mode: plan, prompts: [{text: /echo hello}]}";
    let fixture = TaskFixture::new();
    assert_eq!(task(&fixture, text, &[]).code, Some(0));
    let ran = task(&fixture, text, &["--set", "permission_mode=dream"]);
    check(&ran, "mode_not_supported", 2);
}
