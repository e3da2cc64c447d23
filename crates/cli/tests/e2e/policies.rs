//! The policy of a session: the chosen one and the file of its directory, here and in a server.

use std::path::PathBuf;

use serde_json::json;

use crate::fixture::viv_fixture;
use crate::server::Server;
use testkit::VivFixture;

const FILE: &str = "version: 1\nfs: {deny_read: [\"kept.txt\"]}\nproc: {pids: 100}\n";

/// Returns a project whose policy file hides one of its files.
fn project(place: &VivFixture) -> PathBuf {
    let project = place.workspace();
    std::fs::write(project.join("sandbox.policy.yaml"), FILE).unwrap();
    project
}

/// Returns the policy sentences of the last session, with their layers.
#[track_caller]
fn sentences(place: &VivFixture) -> String {
    let told = place.run(&["policy", "explain", "--session", "@last"]);
    assert_eq!(told.code, 0, "{}", told.stderr);
    told.stdout
}

#[test]
fn a_denied_tool_is_rejected_without_a_permission_request() {
    let place = viv_fixture();
    let ran =
        place.run(&["run", "mock", "/run touch made.txt", "--perms", "allow", "--narrow", "tools.deny=Bash(touch *)"]);
    let events = place.run(&["--json", "sessions", "events", "@last"]).stdout;
    assert!(events.contains(r#""denied_by":"--narrow"#), "{events}\n{}", ran.stderr);
    assert!(events.contains(r#""reason":"policy""#), "{events}");
    assert!(!place.run(&["sessions", "diff", "@last"]).stdout.contains("made.txt"));
    let ran =
        place.run(&["run", "mock", "/run touch made.txt", "--perms", "allow", "--narrow", "tools.deny=Bash(rm *)"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(place.run(&["sessions", "diff", "@last"]).stdout.contains("made.txt"));
}

#[test]
fn a_chosen_policy_is_used_even_if_a_server_runs() {
    let place = viv_fixture();
    let server = Server::start_as(&place, &["serve", "--no-auth", "--policy", "open"]);
    let run = ["run", "--workspace", "workspace", "mock", "/echo hello"];
    let chosen = place.run(&[&run[..], &["--policy", "strict", "--narrow", "proc.memory=64MiB"]].concat());
    assert_eq!(chosen.code, 0, "{}", chosen.stderr);
    let told = sentences(&place);
    assert!(told.contains("[base: strict:") && !told.contains("[base: open:"), "{told}");
    assert!(told.contains("Memory limit for all processes together: 64MiB.  [narrowing: --narrow:1]"), "{told}");

    let narrowed = place.run(&[&run[..], &["--narrow", "proc.memory=64MiB"]].concat());
    assert_eq!(narrowed.code, 0, "{}", narrowed.stderr);
    assert!(sentences(&place).contains("Memory limit for all processes together: 64MiB"), "{}", sentences(&place));

    // Without a chosen policy, that of the server is used.
    assert_eq!(place.run(&run).code, 0);
    assert!(sentences(&place).contains("[base: open:"), "{}", sentences(&place));
    server.stop();
}

#[test]
fn the_policy_file_of_the_workspace_is_used_from_any_directory() {
    let place = viv_fixture();
    project(&place);
    for policy in [&[][..], &["--policy", "balanced"], &["--policy", "open"]] {
        let look = ["exec", "--workspace", "workspace"];
        let ran = place.run(&[&look[..], policy, &["--", "ls", "-A"]].concat());
        assert_eq!((ran.code, ran.stdout.contains("kept.txt")), (0, false), "{policy:?}: {}{}", ran.stdout, ran.stderr);
        let run = ["run", "--workspace", "workspace", "--perms", "allow"];
        let ran = place.run(&[&run[..], policy, &["mock", "/run ls -A"]].concat());
        assert_eq!(ran.code, 0, "{policy:?}: {}", ran.stderr);
        let told = sentences(&place);
        assert!(told.contains("kept.txt.  [") && told.contains("[narrowing: sandbox.policy.yaml:3]"), "{told}");
    }

    // A chosen policy replaces a trusted project file.
    let file = place.workspace().join("sandbox.policy.yaml");
    assert_eq!(place.run(&["policy", "trust", file.to_str().unwrap()]).code, 0);
    let ran = place.run(&["exec", "--workspace", "workspace", "--policy", "balanced", "--", "ls", "-A"]);
    assert!(ran.stdout.contains("kept.txt"), "{}{}", ran.stdout, ran.stderr);
}

#[test]
fn a_project_file_cannot_widen_the_chosen_policy() {
    let place = viv_fixture();
    let file = place.workspace().join("sandbox.policy.yaml");
    std::fs::write(&file, "version: 1\nproc: {memory: 4GiB}\n").unwrap();
    let narrow = ["exec", "--workspace", "workspace", "--policy", "strict", "--", "true"];
    let ran = place.run(&narrow);
    assert_eq!(ran.code, 125, "{}", ran.stderr);
    assert!(ran.stderr.contains("policy_widening_denied") && ran.stderr.contains("proc.memory"), "{}", ran.stderr);
}

#[test]
fn the_policy_file_of_the_directory_is_used_over_http() {
    let place = viv_fixture();
    let directory = project(&place);
    let server = Server::start(&place);
    let client = server.client();
    let body = json!({"agent": "mock", "directory": directory}).to_string();
    assert_eq!(client.post("/v1/sessions/s1", &body).status, 200);
    assert!(sentences(&place).contains("[narrowing: sandbox.policy.yaml:3]"), "{}", sentences(&place));

    // After a restart the session resumes only under the same policy.
    server.kill(&place.data_dir());
    let server = Server::start(&place);
    let client = server.client();
    let resumed = client.post("/v1/sessions/s1/resume", "");
    assert_eq!(resumed.status, 204, "{resumed:?}");
    server.kill(&place.data_dir());
    std::fs::remove_file(directory.join("sandbox.policy.yaml")).unwrap();
    let server = Server::start(&place);
    let client = server.client();
    let refused = client.post("/v1/sessions/s1/resume", "");
    assert_eq!(refused.json()["code"], "policy_widening_denied", "{refused:?}");

    // An invalid policy file prevents the session.
    std::fs::write(directory.join("sandbox.policy.yaml"), "net: {enabled: no}\n").unwrap();
    let refused = client.post("/v1/sessions/s2", &body);
    assert_eq!(refused.json()["code"], "policy_invalid", "{refused:?}");
    server.stop();
}

/// Runs git in `directory` with a fixed identity.
#[track_caller]
fn git(directory: &std::path::Path, arguments: &[&str]) {
    let mut git = std::process::Command::new("git");
    git.args(["-c", "user.name=t", "-c", "user.email=t@example.com"]).args(arguments).current_dir(directory);
    git.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1");
    assert!(git.status().unwrap().success(), "{arguments:?}");
}

#[test]
fn hidden_files_are_counted_in_a_run_and_named_by_explain() {
    let place = viv_fixture();
    let project = place.workspace();
    std::fs::write(project.join(".env"), "TOKEN=old\n").unwrap();
    git(&project, &["init", "-q"]);
    git(&project, &["add", "-f", ".env"]);
    git(&project, &["commit", "-qm", "by mistake"]);
    git(&project, &["rm", "-q", "--cached", ".env"]);
    git(&project, &["commit", "-qm", "remove it"]);
    git(&project, &["remote", "add", "origin", "https://me:hunter2@example.com/a.git"]);
    std::fs::write(project.join("server.key"), "-----BEGIN PRIVATE KEY-----\n").unwrap();

    let ran = place.run(&[
        "run",
        "--workspace",
        "workspace",
        "mock",
        "/run cat .env server.key .git/config",
        "--perms",
        "allow",
    ]);
    assert!(ran.stderr.contains("2 files are hidden by the policy: viv policy explain"), "{}", ran.stderr);
    let events = place.run(&["--json", "sessions", "events", "@last"]).stdout;
    assert!(events.contains(r#""hidden":2"#) && events.contains("https://example.com/a.git"), "{events}");
    assert!(!events.contains("TOKEN=old") && !events.contains("hunter2"), "{events}");

    let told = place.command(&["policy", "explain"]).current_dir(&project).output().unwrap();
    let told = String::from_utf8(told.stdout).unwrap();
    for line in [
        "2 files are hidden by the policy here.",
        "Hidden: .env. Warning: git history contains it",
        "Hidden: server.key.",
        "Warning: .git/config contains credentials",
    ] {
        assert!(told.contains(line), "{line}:\n{told}");
    }
}

#[test]
fn a_policy_file_that_is_a_link_is_refused_without_showing_its_target() {
    let place = viv_fixture();
    let project = place.workspace();
    let secret = place.directory().join("elsewhere");
    std::fs::write(&secret, "root:$6$secret:1::::::\n").unwrap();
    std::os::unix::fs::symlink(&secret, project.join("sandbox.policy.yaml")).unwrap();
    let ran = place.run(&["run", "--workspace", "workspace", "mock", "/echo hello"]);
    assert_ne!(ran.code, 0);
    assert!(ran.stderr.contains("sandbox.policy.yaml` is a symbolic link"), "{}", ran.stderr);
    assert!(!ran.stderr.contains("$6$secret") && !ran.stderr.contains("elsewhere"), "{}", ran.stderr);
}
