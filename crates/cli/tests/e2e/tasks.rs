//! Tests of tasks over the API.

use serde_json::{Value, json};

use crate::fixture::viv_fixture;
use crate::http::Client;
use crate::server::Server;

/// Waits for the end of a task and returns it.
fn ended(client: &Client, id: &str) -> Value {
    let mut task = Value::Null;
    testkit::wait_until("the end of the task", || {
        task = client.get(&format!("/v1/tasks/{id}")).json();
        task["status"] != "running"
    });
    task
}

fn hand_in(client: &Client, task: &Value) -> String {
    let taken = client.post("/v1/tasks", &task.to_string());
    assert_eq!(taken.status, 202, "{taken:?}");
    assert_eq!(taken.json()["status"], "running");
    taken.json()["taskId"].as_str().unwrap().to_owned()
}

#[test]
fn a_task_runs_and_its_report_is_stored() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    let commands = json!({
        "version": 1, "name": "hello",
        "commands": [{"run": ["sh", "-c", "echo hello > /tmp/hello.txt"]}],
        "artifacts": [{"path": "/tmp/hello.txt", "expect": {"equals": "hello"}}],
    });
    let prompts = json!({
        "version": 1, "name": "talk", "agent": "mock",
        "prompts": [{"text": "/echo well done", "expect": {"contains": "well done"}}],
    });
    let failing = json!({"version": 1, "name": "sad", "commands": [{"run": ["sh", "-c", "exit 3"]}]});
    let done: Vec<Value> =
        [&commands, &prompts, &failing].map(|task| ended(&client, &hand_in(&client, task))).into_iter().collect();
    for (task, (name, status)) in done.iter().zip([("hello", "passed"), ("talk", "passed"), ("sad", "failed")]) {
        assert_eq!((&task["name"], &task["status"]), (&json!(name), &json!(status)), "{task}");
        let session = client.get(&format!("/v1/sessions/{}", task["taskId"].as_str().unwrap())).json();
        assert_eq!(session["ended"], true, "{session}");
    }
    assert_eq!(done[0]["report"]["artifacts"][0]["text"], "hello\n");
    assert_eq!(done[2]["report"]["failure"]["class"], "runtime_error");

    // The next server has it too.
    server.kill(&place.data_dir());
    let server = Server::start(&place);
    let client = server.client();
    assert_eq!(client.get(&format!("/v1/tasks/{}", done[0]["taskId"].as_str().unwrap())).json(), done[0]);
    let list = client.get("/v1/tasks?limit=2").json();
    assert_eq!(list["tasks"].as_array().unwrap().len(), 2);
    let rest = client.get(&format!("/v1/tasks?cursor={}", list["nextCursor"].as_str().unwrap())).json();
    assert_eq!(rest["tasks"][0]["taskId"], done[2]["taskId"]);
    server.stop();
}

#[test]
fn a_task_of_a_killed_server_is_interrupted() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let task = json!({"version": 1, "name": "long", "commands": [{"run": ["sleep", "1000"]}]});
    let id = hand_in(&server.client(), &task);
    testkit::wait_until("the session of the task", || server.client().get(&format!("/v1/sessions/{id}")).status == 200);
    server.kill(&place.data_dir());
    let server = Server::start(&place);
    assert_eq!(server.client().get(&format!("/v1/tasks/{id}")).json()["status"], "interrupted");
    server.stop();
}

#[test]
fn keys_reserved_for_the_host_are_rejected() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    let small = json!({"version": 1, "name": "t", "commands": [{"run": ["true"]}]});
    for (key, value) in [
        ("env_file", json!("/etc/passwd")),
        ("logs", json!("/tmp")),
        ("sandbox", json!({"backend": "unconfined"})),
        ("sandbox", json!({"policy": "open"})),
    ] {
        let mut task = small.clone();
        task[key] = value;
        let refused = client.post("/v1/tasks", &task.to_string());
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("policy_denied")), "{refused:?}");
    }
    let mut odd = small.clone();
    odd["comands"] = json!([]);
    assert_eq!(client.post("/v1/tasks", &odd.to_string()).status, 422);
    for workspace in [place.data_dir(), place.data_dir().join("trajectory"), "/".into(), "/etc".into()] {
        let mut task = small.clone();
        task["workspace"] = json!(workspace);
        let refused = client.post("/v1/tasks", &task.to_string());
        assert_eq!((refused.status, &refused.json()["code"]), (403, &json!("directory_not_allowed")), "{refused:?}");
    }
    let mut relative = small;
    relative["workspace"] = json!("somewhere");
    assert_eq!(client.post("/v1/tasks", &relative.to_string()).status, 400);
    assert_eq!(client.get("/v1/tasks").json(), json!({"tasks": []}));
    let missing = client.get("/v1/tasks/nothing");
    assert_eq!((missing.status, &missing.json()["code"]), (404, &json!("task_not_found")));
    server.stop();
}
