//! Turns of the mock agent with a model. Other agents are compared with these sequences.

use std::fs;
use std::time::{Duration, Instant};

use crate::harness::{MockHarness, ModelReply, ModelServer, UserReply, texts};
use agents::{DialogueOutput, PermissionMode, skeleton};
use mock::ProcessEnd;
use protocol::{ContentPart, EventBody, PermissionReply, TurnOutcome};
use serde_json::json;

#[track_caller]
fn check(name: &str, outputs: &[DialogueOutput]) {
    insta::assert_snapshot!(name, skeleton(outputs).join("\n"));
}

#[track_caller]
fn wait_until(holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(10);
    while !holds() {
        assert!(Instant::now() < deadline, "condition not met in time");
        std::thread::yield_now();
    }
}

#[test]
fn hello() {
    let mut harness = MockHarness::new(vec![ModelReply::Text("Hello there.")]);
    let outputs = harness.turn("say hello", &[]);
    check("hello", &outputs);
    assert_eq!(texts(&outputs), ["Hello there."]);
    assert_eq!(harness.close(), ProcessEnd::Exit(0));
}

#[test]
fn second_turn_remembers_the_first() {
    let mut harness = MockHarness::new(vec![ModelReply::Text("one"), ModelReply::Text("two")]);
    harness.turn("first", &[]);
    check("second_turn", &harness.turn("second", &[]));
    let requests = harness.model.requests();
    let roles: Vec<_> = requests[1].body["messages"].as_array().unwrap().iter().map(|m| m["role"].clone()).collect();
    assert_eq!(roles, ["user", "assistant", "user"]);
    assert!(requests[1].head.contains("authorization: Bearer secret"));
    assert_eq!(requests[1].body["stream"], true);
}

#[test]
fn reasoning() {
    let mut harness = MockHarness::new(vec![ModelReply::Thought("hm", "aha")]);
    check("reasoning", &harness.turn("think", &[]));
}

#[test]
fn allowed_command_runs() {
    let run = json!({ "command": ["printf", "done"] });
    let mut harness = MockHarness::new(vec![ModelReply::Tool("run_command", run.clone()), ModelReply::Text("Ran.")]);
    let outputs = harness.turn("run it", &[UserReply::Permission(PermissionReply::Once)]);
    check("command_allowed", &outputs);
    assert_eq!(texts(&outputs), ["I will.", "done", "Ran."]);
    let result = &harness.model.requests()[1].body["messages"][2]["content"][0];
    assert_eq!(result["content"], "done");
    assert_eq!(result["is_error"], false);
}

#[test]
fn denied_command_does_not_run() {
    let run = json!({ "command": ["touch", "evidence"] });
    let mut harness = MockHarness::new(vec![ModelReply::Tool("run_command", run)]);
    let outputs = harness.turn("run it", &[UserReply::Permission(PermissionReply::Reject)]);
    check("command_refused", &outputs);
    assert!(!harness.folder.path().join("evidence").exists());
    assert_eq!(harness.model.requests()[1].body["messages"][2]["content"][0]["is_error"], true);
}

#[test]
fn always_covers_only_the_same_program() {
    let call = |program: &str| ModelReply::Tool("run_command", json!({ "command": [program] }));
    let mut harness =
        MockHarness::new(vec![call("true"), ModelReply::Text("1"), call("true"), ModelReply::Text("2"), call("false")]);
    harness.turn("first", &[UserReply::Permission(PermissionReply::Always)]);
    harness.turn("the same again", &[]);
    let outputs = harness.turn("another", &[UserReply::Permission(PermissionReply::Once)]);
    assert!(texts(&outputs)[1].contains("exit status: 1"), "{outputs:?}");
}

#[test]
fn bypass_mode_does_not_ask() {
    let run = json!({ "command": ["sh", "-c", "echo out; echo err >&2; exit 3"] });
    let mut harness = MockHarness::in_mode(PermissionMode::Bypass, vec![ModelReply::Tool("run_command", run)]);
    let outputs = harness.turn("run it", &[]);
    check("command_bypass", &outputs);
    assert_eq!(texts(&outputs)[1], "out\nerr\n[exit status: 3]");
}

#[test]
fn command_without_permission_runs_in_bypass_mode() {
    let run = json!({ "command": ["true"] });
    let mut harness = MockHarness::in_mode(PermissionMode::Bypass, vec![ModelReply::Tool("run_command", run)]);
    check("command_free", &harness.turn("run it", &[]));
}

#[test]
fn file_is_written_and_edited() {
    let write = json!({ "path": "a.txt", "content": "one\n" });
    let edit = json!({ "path": "a.txt", "old": "one", "new": "two" });
    let mut harness =
        MockHarness::new(vec![ModelReply::Tool("write_file", write), ModelReply::Tool("edit_file", edit)]);
    let outputs = harness.turn("write", &[]);
    check("file_edit", &outputs);
    assert_eq!(fs::read_to_string(harness.folder.path().join("a.txt")).unwrap(), "two\n");
    let diffs = outputs.iter().filter(|output| match output {
        DialogueOutput::Event(draft) => match &draft.body {
            EventBody::ItemCompleted(event) => event
                .item
                .content
                .iter()
                .any(|part| matches!(part, ContentPart::FileRef { diff: Some(diff), .. } if diff.contains("+two"))),
            _ => false,
        },
        _ => false,
    });
    assert_eq!(diffs.count(), 1);
}

#[test]
fn file_is_patched_without_a_message() {
    let edit = json!({ "path": "a.txt", "old": "one", "new": "two" });
    let mut harness = MockHarness::new(vec![ModelReply::SilentTool("edit_file", edit)]);
    fs::write(harness.folder.path().join("a.txt"), "one\n").unwrap();
    check("file_patched", &harness.turn("edit", &[]));
}

#[test]
fn file_outside_the_workspace_needs_a_permission() {
    let outside = tempfile::tempdir().unwrap();
    let path = outside.path().join("a.txt");
    let write = json!({ "path": path, "content": "x" });
    let once = [UserReply::Permission(PermissionReply::Once)];
    let mut harness = MockHarness::new(vec![ModelReply::Tool("write_file", write.clone())]);
    check("file_written_allowed", &harness.turn("write", &once));
    assert!(path.exists());
    let mut harness = MockHarness::new(vec![ModelReply::SilentTool("write_file", write.clone())]);
    check("file_patch_allowed", &harness.turn("write", &once));
    fs::remove_file(&path).unwrap();
    let mut harness = MockHarness::new(vec![ModelReply::SilentTool("write_file", write)]);
    check("file_patch_refused", &harness.turn("write", &[UserReply::Permission(PermissionReply::Reject)]));
    assert!(!path.exists());
}

#[test]
fn plan_mode_writes_nothing_until_the_plan_is_approved() {
    let write = || ModelReply::Tool("write_file", json!({ "path": "a.txt", "content": "x" }));
    let replies =
        vec![write(), ModelReply::Text("Refused."), ModelReply::Text("A plan."), write(), ModelReply::Text("Done.")];
    let mut harness = MockHarness::in_mode(PermissionMode::Plan, replies);
    harness.turn("write", &[]);
    assert!(!harness.folder.path().join("a.txt").exists());
    check("plan_approved", &harness.turn("/plan", &[UserReply::Question(Some("yes"))]));
    harness.turn("write", &[]);
    assert!(harness.folder.path().join("a.txt").exists());
}

#[test]
fn failed_connection_is_reported() {
    // Port 9 of loopback is closed.
    let mut harness = MockHarness::new(vec![ModelReply::Tool("fetch", json!({ "url": "https://127.0.0.1:9/" }))]);
    let outputs = harness.turn("fetch", &[]);
    check("fetch_failed", &outputs);
    assert!(texts(&outputs)[1].starts_with("connection to 127.0.0.1:9 failed: "), "{outputs:?}");
}

#[test]
fn successful_connection_returns_the_page() {
    let page = ModelServer::start(vec![ModelReply::Status(200, "a page")]);
    let mut harness = MockHarness::new(vec![ModelReply::Tool("fetch", json!({ "url": page.url }))]);
    // The tool connects once to test the network, and once to read.
    let outputs = harness.turn("fetch", &[]);
    assert_eq!(texts(&outputs)[1], "a page");
}

#[test]
fn question_is_answered() {
    let ask = json!({ "question": "which?", "options": ["red", "blue"] });
    let mut harness = MockHarness::new(vec![ModelReply::SilentTool("ask_user", ask)]);
    let outputs = harness.turn("ask", &[UserReply::Question(Some("blue"))]);
    check("question_answered", &outputs);
    assert_eq!(texts(&outputs)[0], "blue");
}

#[test]
fn question_is_rejected() {
    let ask = json!({ "question": "which?", "options": ["red", "blue"] });
    let mut harness = MockHarness::new(vec![ModelReply::Tool("ask_user", ask)]);
    check("question_refused", &harness.turn("ask", &[UserReply::Question(None)]));
}

#[test]
fn unknown_tool_and_invalid_input_do_not_end_the_turn() {
    let replies = vec![ModelReply::Tool("teleport", json!({})), ModelReply::Tool("fetch", json!({ "uri": 1 }))];
    let mut harness = MockHarness::new(replies);
    let outputs = harness.turn("go", &[]);
    assert_eq!(outputs.last(), Some(&DialogueOutput::TurnEnded(TurnOutcome::Completed)));
    assert_eq!(harness.model.requests().len(), 3);
}

#[test]
fn interrupt_works_while_the_model_is_silent() {
    let mut harness = MockHarness::new(vec![ModelReply::Hang, ModelReply::Text("Still here.")]);
    harness.prompt_until("go", |body| matches!(body, EventBody::ItemDelta(_)));
    harness.interrupt();
    check("interrupted", &harness.outputs);
    assert_eq!(texts(&harness.turn("again", &[])), ["Still here."]);
}

#[test]
fn interrupt_withdraws_the_permission() {
    let run = json!({ "command": ["true"] });
    let mut harness = MockHarness::new(vec![ModelReply::Tool("run_command", run)]);
    check("permission_withdrawn", &harness.turn("run", &[UserReply::Interrupt]));
}

#[test]
fn interrupt_kills_the_command_and_its_children() {
    let run = json!({ "command": ["sh", "-c", "sleep 600 & echo $! > pid; echo ready > up; wait"] });
    let mut harness = MockHarness::in_mode(PermissionMode::Bypass, vec![ModelReply::Tool("run_command", run)]);
    let up = harness.folder.path().join("up");
    harness.prompt_until("run", |body| matches!(body, EventBody::ItemStarted(event) if !event.item.content.is_empty()));
    wait_until(|| up.exists());
    let outputs = harness.interrupt();
    assert_eq!(outputs.last(), Some(&DialogueOutput::TurnEnded(TurnOutcome::Interrupted)));
    let pid = fs::read_to_string(harness.folder.path().join("pid")).unwrap();
    let stat = format!("/proc/{}/stat", pid.trim());
    // A killed process is gone, or a zombie until its parent reaps it.
    wait_until(|| fs::read_to_string(&stat).map_or(true, |stat| stat.contains(") Z ")));
}

#[test]
fn model_errors_fail_only_the_turn() {
    let refused = r#"{"type":"error","error":{"type":"authentication_error","message":"bad token"}}"#;
    let failures = [
        ("model_refused", ModelReply::Status(401, refused), "bad token"),
        ("model_broken", ModelReply::Status(500, "boom"), "boom"),
        ("model_cut", ModelReply::Cut, "ended early"),
        ("model_error_event", ModelReply::ErrorEvent, "busy"),
        ("model_garbage", ModelReply::Garbage, "invalid JSON"),
    ];
    for (name, reply, words) in failures {
        let mut harness = MockHarness::new(vec![reply]);
        let outputs = harness.turn("go", &[]);
        check(name, &outputs);
        let reported = outputs.iter().any(|output| match output {
            DialogueOutput::Event(draft) => match &draft.body {
                EventBody::Error(error) => error.message.contains(words),
                _ => false,
            },
            _ => false,
        });
        assert!(reported, "{name}: {outputs:?}");
        assert_eq!(texts(&harness.turn("again", &[])), ["OK"]);
    }
}

#[test]
fn resumed_session_keeps_its_id() {
    let mut harness = MockHarness::start(PermissionMode::Default, vec![], Some("mock-7"));
    harness.turn("hi", &[]);
    assert!(harness.outputs.contains(&DialogueOutput::NativeSession("mock-7".to_owned())));
    let mut harness = MockHarness::new(vec![]);
    harness.turn("hi", &[]);
    assert!(
        harness
            .outputs
            .iter()
            .any(|output| matches!(output, DialogueOutput::NativeSession(id) if id.starts_with("mock-")))
    );
}
