//! Tests of `viv replay`.

use serde_json::{Value, json};

use crate::fixture::viv_fixture;
use crate::journal;
use crate::server::Server;
use testkit::{ProgramOutput, VivFixture, run_to_end};

/// Records a session in `place` and returns its id.
fn record(place: &VivFixture, prompt: &str, script: Option<&Value>) -> String {
    if let Some(script) = script {
        std::fs::create_dir_all(place.data_dir()).unwrap();
        std::fs::set_permissions(place.data_dir(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
        std::fs::write(place.data_dir().join("model.yaml"), script.to_string()).unwrap();
        std::fs::write(place.data_dir().join("viv.toml"), "[model]\nscript = \"model.yaml\"\n").unwrap();
    }
    let workspace = place.workspace();
    let ran =
        place.run(&["--json", "run", "mock", prompt, "--perms=allow", "--workspace", workspace.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let first: Value = serde_json::from_str(ran.stdout.lines().next().unwrap()).unwrap();
    first["session_id"].as_str().unwrap().to_owned()
}

/// A script that writes a file and runs a command whose output always differs.
fn script() -> Value {
    let tool = |name: &str, input: Value| json!({"tool": {"name": name, "input": input}});
    let command = "date -u +%FT%T.%NZ; readlink /proc/self/ns/pid; cat /proc/sys/kernel/random/uuid; cat kept.txt";
    let rule = |step: u64, answer: Value| json!({"when": {"step": step}, "answer": answer});
    json!({"version": 1, "rules": [
        rule(1, json!([{"text": "First a file."}, tool("write_file", json!({"path": "new.txt", "content": "new\n"}))])),
        rule(2, json!([{"text": "Now a command."}, tool("run_command", json!({"command": ["sh", "-c", command]}))])),
        rule(3, json!([{"text": "It said: ${tool_result}"}])),
    ]})
}

#[track_caller]
fn check_code(ran: &ProgramOutput, code: i32) {
    assert_eq!(ran.code, code, "{}\n{}", ran.stdout, ran.stderr);
}

#[test]
fn a_replay_is_identical_without_model_network_or_cost() {
    let place = viv_fixture();
    let session = record(&place, "Do it.", Some(&script()));
    // No other upstream is configured that could answer.
    let unreachable =
        "[model]\nupstream = \"gone\"\n[upstreams.gone]\nkind = \"anthropic\"\nbase_url = \"http://127.0.0.1:9\"\n";
    std::fs::write(place.data_dir().join("viv.toml"), unreachable).unwrap();
    let before = place.workspace_files();

    let ran = place.run(&["replay", &session, "--diff"]);
    check_code(&ran, 0);
    assert_eq!(ran.stdout, "", "no differences");
    assert_eq!(place.workspace_files(), before);

    let replayed = newest(&place, &session);
    let events = journal::read(&place.data_dir(), &replayed);
    let calls: Vec<Value> = events
        .iter()
        .map(|event| serde_json::to_value(&event.draft.body).unwrap())
        .filter(|event| event["type"] == "llm.call")
        .map(|event| event["data"].clone())
        .collect();
    assert_eq!(calls.len(), 3);
    assert!(calls.iter().all(|call| call["upstream"] == "replay" && call["cost_picos"] == 0), "{calls:?}");
    let usage = place.run(&["--json", "usage"]);
    let usage: Value = serde_json::from_str(&usage.stdout).unwrap();
    let row = usage["rows"].as_array().unwrap().iter().find(|row| row["name"] == replayed.as_str()).unwrap();
    assert_eq!((&row["calls"], &row["spent_picos"], &row["held_picos"]), (&json!(3), &json!(0), &json!(0)));
}

/// Returns the session that was created after `session`.
fn newest(place: &VivFixture, session: &str) -> String {
    let listed: Value = serde_json::from_str(&place.run(&["--json", "sessions", "ls", "--limit=1"]).stdout).unwrap();
    let newest = listed[0]["sessionId"].as_str().unwrap().to_owned();
    assert_ne!(newest, session);
    newest
}

#[test]
fn a_changed_workspace_is_rejected_and_another_can_be_given() {
    let place = viv_fixture();
    let session = record(&place, "Do it.", Some(&script()));
    std::fs::write(place.workspace().join("kept.txt"), "not as it was\n").unwrap();
    let refused = place.run(&["replay", &session]);
    check_code(&refused, 2);
    assert!(refused.stderr.contains("error[replay_impossible]"), "{}", refused.stderr);
    assert!(refused.stderr.contains("kept.txt has changed"), "{}", refused.stderr);

    let copy = place.data_dir().join("../copy");
    std::fs::create_dir(&copy).unwrap();
    std::fs::write(copy.join("kept.txt"), "as it was\n").unwrap();
    check_code(&place.run(&["replay", &session, "--diff", "--workspace", copy.to_str().unwrap()]), 0);
}

#[test]
fn an_unrecorded_request_is_shown_with_the_nearest_recorded_one() {
    let place = viv_fixture();
    // The agent sends the file's content, which has changed.
    let script = json!({"version": 1, "rules": [
        {"when": {"step": 1}, "answer": [{"tool": {"name": "run_command", "input": {"command": ["cat", "word"]}}}]},
        {"when": {"step": 2}, "answer": [{"text": "Thanks."}]},
    ]});
    std::fs::write(place.workspace().join("word"), "first\n").unwrap();
    let session = record(&place, "Read it.", Some(&script));
    std::fs::write(place.workspace().join("word"), "second\n").unwrap();
    std::fs::remove_dir_all(place.data_dir().join("origins")).unwrap();
    let ran = place.run(&["replay", &session]);
    check_code(&ran, 9);
    for words in [
        "error[replay_miss]",
        "the original state of the workspace was not recorded",
        "--- recorded",
        "first",
        "second",
    ] {
        assert!(ran.stderr.contains(words), "`{words}` is not in\n{}", ran.stderr);
    }
    // The agent receives the error once in its API's format and does not retry.
    let events = journal::read(&place.data_dir(), &newest(&place, &session));
    let misses = events.iter().filter(|event| event.draft.body.kind() == "upstream_error").count();
    assert_eq!(misses, 1);
}

#[test]
fn a_replay_that_differs_exits_with_nine() {
    let place = viv_fixture();
    let session = record(&place, "Do it.", Some(&script()));
    // The same calls have another effect: a file that was added is now modified.
    std::fs::write(place.workspace().join("new.txt"), "old\n").unwrap();
    std::fs::remove_dir_all(place.data_dir().join("origins")).unwrap();
    let ran = place.run(&["replay", &session, "--diff"]);
    check_code(&ran, 9);
    assert!(ran.stderr.contains("error[replay_differs]"), "{}", ran.stderr);
    assert!(ran.stdout.contains("- workspace.changed") && ran.stdout.contains("+ workspace.changed"), "{}", ran.stdout);
}

#[test]
fn a_replay_under_another_policy_is_rejected() {
    let place = viv_fixture();
    let session = record(&place, "hello", None);
    let refused = place.run(&["replay", &session, "--policy=strict"]);
    check_code(&refused, 2);
    assert!(refused.stderr.contains("another policy"), "{}", refused.stderr);
}

#[test]
fn a_session_without_a_workspace_replays_in_any_directory() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    assert_eq!(client.post("/v1/sessions/s1", r#"{"agent":"mock"}"#).status, 200);
    assert_eq!(client.post("/v1/sessions/s1/messages/stream", r#"{"message":"/echo hi"}"#).status, 200);
    assert_eq!(client.post("/v1/sessions/s1/terminate", "").status, 204);
    server.stop();
    // This directory has a project policy and contains the data directory.
    let mut replay = place.command(&["replay", "s1", "--diff"]);
    replay.current_dir(place.data_dir().parent().unwrap());
    check_code(&run_to_end(replay), 0);
}
