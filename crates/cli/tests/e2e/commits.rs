//! Commits of a session: made inside with the host's identity, reviewed, and applied with `--commits` or over HTTP.

use std::process::Command;

use serde_json::json;
use testkit::VivFixture;

use crate::fixture::viv_fixture;
use crate::server::Server;

/// Runs a script in the workspace on the host.
fn host(place: &VivFixture, script: &str) -> String {
    let mut shell = Command::new("sh");
    shell.args(["-ec", script]).current_dir(place.workspace()).env_remove("GIT_DIR");
    let output = shell.env("GIT_CONFIG_NOSYSTEM", "1").env("HOME", place.workspace()).output().unwrap();
    assert!(output.status.success(), "{script}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Returns a fixture whose workspace is a repository, with a script for the agent.
fn repository(script: &str) -> VivFixture {
    let place = viv_fixture();
    std::fs::write(place.workspace().join("work.sh"), format!("set -e; {script}")).unwrap();
    host(
        &place,
        "git init -q -b main .; git config user.name 'Ada L'; git config user.email ada@example.com; git add -A; \
         git commit -qm first",
    );
    place
}

fn run_agent(place: &VivFixture) {
    let arguments =
        ["run", "--workspace", "workspace", "--perms", "allow", "--on-finish=keep", "mock", "/run sh work.sh"];
    let ran = place.run(&arguments);
    assert_eq!(ran.code, 0, "{}\n{}", ran.stdout, ran.stderr);
}

#[test]
fn commit_of_an_agent_lands_with_the_hosts_identity() {
    let place = repository("echo more >> kept.txt; git commit -qam 'Add a line'; git status");
    run_agent(&place);
    let shown = place.run(&["sessions", "diff", "@last"]);
    assert!(shown.stdout.contains("# Author: Ada L <ada@example.com>\n"), "{}\n{}", shown.stdout, shown.stderr);
    assert!(shown.stdout.contains("#     Add a line\n") && shown.stdout.contains("+more\n"), "{}", shown.stdout);
    assert!(!shown.stdout.contains("/.git/"), "{}", shown.stdout);
    let listed = place.run(&["--json", "sessions", "diff", "@last", "--commits"]);
    let listed: serde_json::Value = serde_json::from_str(&listed.stdout).unwrap();
    assert_eq!(listed["commits"][0]["subject"], "Add a line", "{listed}");
    assert_eq!(host(&place, "git log -1 --format=%s"), "first\n");

    let applied = place.run(&["sessions", "apply", "@last", "--commits", "--yes"]);
    assert_eq!(applied.code, 0, "{}", applied.stderr);
    assert!(applied.stdout.starts_with("branch main is at "), "{}", applied.stdout);
    let found = host(&place, "git log -1 --format='%s by %an <%ae>'; git status --porcelain; git fsck --strict");
    assert_eq!(found, "Add a line by Ada L <ada@example.com>\n");

    assert_ne!(host(&place, "git for-each-ref refs/viv"), "");
    assert_eq!(place.run(&["sessions", "rm", "--yes", "@last"]).code, 0);
    assert_eq!(host(&place, "git for-each-ref refs/viv"), "", "the references stay after the session");
}

#[test]
fn commits_stay_at_their_reference_when_the_host_moved() {
    let place = repository("echo more >> kept.txt; git commit -qam inside");
    run_agent(&place);
    host(&place, "git commit -q --allow-empty -m outside");
    let refused = place.run(&["sessions", "apply", "@last", "--commits", "--yes"]);
    assert!(refused.code == 2 && refused.stderr.contains("moved since the session began"), "{}", refused.stderr);
    let (_, command) = refused.stderr.split_once("help: ").unwrap();
    host(&place, command.trim());
    assert_eq!(host(&place, "git log --format=%s --no-merges | sort"), "first\ninside\noutside\n");
}

#[test]
fn workflow_in_a_commit_must_be_confirmed() {
    let place = repository(
        "mkdir -p .github/workflows; echo 'on: push' > .github/workflows/ci.yml; git add -A; git commit -qm tidy; \
         git update-index --skip-worktree .github/workflows/ci.yml; rm -r .github",
    );
    run_agent(&place);
    let shown = place.run(&["sessions", "diff", "@last"]).stdout;
    assert!(shown.contains("+++ b/.github/workflows/ci.yml\n+@@") || shown.contains("+on: push\n"), "{shown}");
    let refused = place.run(&["sessions", "apply", "@last", "--commits", "--yes"]);
    assert!(refused.code == 2 && refused.stderr.contains("was not confirmed"), "{}", refused.stderr);
    assert!(refused.stderr.contains("--confirm .github/workflows/ci.yml --commits"), "{}", refused.stderr);
    assert_eq!(host(&place, "git log -1 --format=%s"), "first\n");
    let confirmed = ["sessions", "apply", "@last", "--confirm", ".github/workflows/ci.yml", "--commits", "--yes"];
    assert_eq!(place.run(&confirmed).code, 0);
    assert_eq!(host(&place, "git log -1 --format=%s; git status --porcelain"), "tidy\n");
}

#[test]
fn commits_are_reviewed_and_applied_over_http() {
    let place = repository("echo more >> kept.txt; git commit -qam inside");
    let server = Server::start(&place);
    let client = server.client();
    let body = json!({"agent": "mock", "directory": place.workspace(), "permissionMode": "bypass"});
    assert_eq!(client.post("/v1/sessions/one", &body.to_string()).status, 200);
    client.converse("one", "/run sh work.sh").unwrap().for_each(drop);
    assert_eq!(client.post("/v1/sessions/one/terminate", "").status, 204);
    let seen = client.get("/v1/sessions/one/changes").json();
    assert_eq!(
        (&seen["commits"][0]["subject"], &seen["commits"][0]["branch"]),
        (&json!("inside"), &json!("main")),
        "{seen}"
    );
    assert_eq!(seen["commitTips"][0]["importedAs"], "refs/viv/one/heads/main", "{seen}");
    let body = r#"{"commits":true}"#;
    assert_eq!(client.post("/v1/sessions/one/apply", body).status, 428);
    let applied = client.post_matching("/v1/sessions/one/apply", seen["digest"].as_str().unwrap(), body);
    assert_eq!((applied.status, &applied.json()["commits"]["branch"]), (200, &json!("main")), "{applied:?}");
    assert_eq!(host(&place, "git log -1 --format=%s; git status --porcelain"), "inside\n");
    server.stop();
}
