//! Which policy a session is under, whoever runs it: what was chosen for it, and what its own directory says.

use std::path::PathBuf;

use serde_json::json;

use crate::place::Place;
use crate::server::Server;

const FILE: &str = "version: 1\nfs: {deny_read: [\"kept.txt\"]}\nproc: {pids: 100}\n";

/// A project whose own file hides a file of it.
fn project(place: &Place) -> PathBuf {
    let project = place.workspace();
    std::fs::write(project.join("sandbox.policy.yaml"), FILE).unwrap();
    project
}

/// The sentences that hold in the last session, with their layers.
#[track_caller]
fn sentences(place: &Place) -> String {
    let told = place.run(&["policy", "explain", "--session", "@last"]);
    assert_eq!(told.code, 0, "{}", told.people);
    told.out
}

#[test]
fn a_tool_that_the_policy_denies_is_refused_before_anybody_is_asked() {
    let place = Place::new();
    let ran =
        place.run(&["run", "mock", "/run touch made.txt", "--perms", "allow", "--narrow", "tools.deny=Bash(touch *)"]);
    let events = place.run(&["--json", "sessions", "events", "@last"]).out;
    assert!(events.contains(r#""denied_by":"--narrow"#), "{events}\n{}", ran.people);
    assert!(events.contains(r#""reason":"policy""#), "{events}");
    assert!(!place.run(&["sessions", "diff", "@last"]).out.contains("made.txt"));
    let ran =
        place.run(&["run", "mock", "/run touch made.txt", "--perms", "allow", "--narrow", "tools.deny=Bash(rm *)"]);
    assert_eq!(ran.code, 0, "{}", ran.people);
    assert!(place.run(&["sessions", "diff", "@last"]).out.contains("made.txt"));
}

#[test]
fn a_policy_that_was_chosen_holds_also_where_a_server_runs() {
    let place = Place::new();
    let server = Server::start_as(&place, &["serve", "--no-auth", "--policy", "open"]);
    let run = ["run", "--workspace", "workspace", "mock", "/echo hello"];
    let chosen = place.run(&[&run[..], &["--policy", "strict", "--narrow", "proc.memory=64MiB"]].concat());
    assert_eq!(chosen.code, 0, "{}", chosen.people);
    let told = sentences(&place);
    assert!(told.contains("[base: strict:") && !told.contains("[base: open:"), "{told}");
    assert!(told.contains("at most 64MiB of memory together.  [narrowing: --narrow:1]"), "{told}");

    let narrowed = place.run(&[&run[..], &["--narrow", "proc.memory=64MiB"]].concat());
    assert_eq!(narrowed.code, 0, "{}", narrowed.people);
    assert!(sentences(&place).contains("at most 64MiB of memory"), "{}", sentences(&place));

    // Whoever chose nothing has what the server has.
    assert_eq!(place.run(&run).code, 0);
    assert!(sentences(&place).contains("[base: open:"), "{}", sentences(&place));
    server.stop();
}

#[test]
fn the_file_of_the_workspace_counts_wherever_viv_is_called() {
    let place = Place::new();
    project(&place);
    for policy in [&[][..], &["--policy", "balanced"], &["--policy", "open"]] {
        let look = ["exec", "--workspace", "workspace"];
        let ran = place.run(&[&look[..], policy, &["--", "ls", "-A"]].concat());
        assert_eq!((ran.code, ran.out.contains("kept.txt")), (0, false), "{policy:?}: {}{}", ran.out, ran.people);
        let run = ["run", "--workspace", "workspace", "--perms", "allow"];
        let ran = place.run(&[&run[..], policy, &["mock", "/run ls -A"]].concat());
        assert_eq!(ran.code, 0, "{policy:?}: {}", ran.people);
        let told = sentences(&place);
        assert!(told.contains("kept.txt.  [") && told.contains("[narrowing: sandbox.policy.yaml:3]"), "{told}");
    }

    // Whoever trusts the file and then chooses another has chosen that.
    let file = place.workspace().join("sandbox.policy.yaml");
    assert_eq!(place.run(&["policy", "trust", file.to_str().unwrap()]).code, 0);
    let ran = place.run(&["exec", "--workspace", "workspace", "--policy", "balanced", "--", "ls", "-A"]);
    assert!(ran.out.contains("kept.txt"), "{}{}", ran.out, ran.people);
}

#[test]
fn a_project_cannot_widen_what_was_chosen() {
    let place = Place::new();
    let file = place.workspace().join("sandbox.policy.yaml");
    std::fs::write(&file, "version: 1\nproc: {memory: 4GiB}\n").unwrap();
    let narrow = ["exec", "--workspace", "workspace", "--policy", "strict", "--", "true"];
    let ran = place.run(&narrow);
    assert_eq!(ran.code, 125, "{}", ran.people);
    assert!(ran.people.contains("policy_widening_denied") && ran.people.contains("proc.memory"), "{}", ran.people);
}

#[test]
fn over_http_the_directory_of_the_session_counts_too() {
    let place = Place::new();
    let directory = project(&place);
    let server = Server::start(&place);
    let client = server.client();
    let body = json!({"agent": "mock", "directory": directory}).to_string();
    assert_eq!(client.post("/v1/sessions/s1", &body).status, 200);
    assert!(sentences(&place).contains("[narrowing: sandbox.policy.yaml:3]"), "{}", sentences(&place));

    // It is found again after a restart, and only under the same rules.
    server.kill(&place.data());
    let server = Server::start(&place);
    let client = server.client();
    let resumed = client.post("/v1/sessions/s1/resume", "");
    assert_eq!(resumed.status, 204, "{resumed:?}");
    server.kill(&place.data());
    std::fs::remove_file(directory.join("sandbox.policy.yaml")).unwrap();
    let server = Server::start(&place);
    let client = server.client();
    let refused = client.post("/v1/sessions/s1/resume", "");
    assert_eq!(refused.json()["code"], "policy_widening_denied", "{refused:?}");

    // What is no policy makes no session.
    std::fs::write(directory.join("sandbox.policy.yaml"), "net: {enabled: no}\n").unwrap();
    let refused = client.post("/v1/sessions/s2", &body);
    assert_eq!(refused.json()["code"], "policy_invalid", "{refused:?}");
    server.stop();
}
