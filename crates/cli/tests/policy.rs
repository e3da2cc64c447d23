//! Tests of `viv policy`.
#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use std::fs;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use tempfile::TempDir;

const GOOD: &str = "version: 1\nfs:\n  workspace: overlay\n  read: [/usr]\nnet:\n  enabled: true\n  allowlist:\n    - \"*.example.org:443\"\ntools:\n  allow: [\"*\"]\n  ask: [\"Bash(rm *)\"]\n";

/// Returns a directory with a valid and an invalid policy.
fn place() -> TempDir {
    let place = TempDir::new().unwrap();
    fs::write(place.path().join("good.yaml"), GOOD).unwrap();
    let requests = "net:\n  enabled: true\n  allowlist: [\"GET|HEAD files.example.com:80/public/**\"]\n";
    fs::write(place.path().join("requests.yaml"), requests).unwrap();
    fs::write(place.path().join("disk.yaml"), "proc: {memory: 1GiB, disk: 2GiB}\n").unwrap();
    fs::write(place.path().join("bad.yaml"), "net:\n  enabled: no\n").unwrap();
    place
}

fn viv(place: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::cargo_bin("viv").unwrap();
    // Without a home directory, there are no toolchains, which differ between machines.
    command.env_remove("HOME").current_dir(place).args(["--data-dir", "data", "policy"]).args(arguments);
    command.output().unwrap()
}

/// Returns exit code, standard output and standard error as one text.
#[track_caller]
fn check(arguments: &[&str]) -> String {
    let output = viv(place().path(), arguments);
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    format!(
        "exit {}\n--- out\n{}--- people\n{}",
        output.status.code().unwrap(),
        text(&output.stdout),
        text(&output.stderr)
    )
}

macro_rules! commands {
    ($($name:ident: $($argument:literal)*;)*) => {
        $(
            #[test]
            fn $name() {
                insta::assert_snapshot!(check(&[$($argument),*]));
            }
        )*
    };
}

commands! {
    check_a_good_file: "check" "good.yaml";
    check_notes_what_will_not_be_had: "check" "disk.yaml";
    check_tells_of_every_file: "check" "bad.yaml" "good.yaml";
    check_as_json: "--json" "check" "bad.yaml" "good.yaml";
    check_a_missing_file: "check" "missing.yaml";
    explain_a_file: "explain" "good.yaml";
    explain_without_a_project_file: "explain";
    test_an_allowed_host: "test" "good.yaml" "net" "packages.example.org:443";
    test_a_denied_host: "test" "good.yaml" "net" "packages.example.com";
    test_a_denied_host_as_json: "--json" "test" "good.yaml" "net" "packages.example.com:8443";
    test_a_model_vendor: "test" "open" "net" "api.anthropic.com:443";
    test_a_metadata_address: "test" "open" "net" "169.254.169.254:80";
    test_a_strange_host: "test" "good.yaml" "net" "user@packages.example.org:443";
    test_a_strange_port: "test" "good.yaml" "net" "packages.example.org:99999";
    test_a_request: "test" "requests.yaml" "http" "GET" "http://files.example.com/public/a?b=c";
    test_a_request_with_another_method: "test" "requests.yaml" "http" "POST" "http://files.example.com/public/a";
    test_a_request_that_climbs: "test" "requests.yaml" "http" "GET" "http://files.example.com/public/%2e%2e/a";
    test_a_tunnel_to_a_host_with_rules_about_requests: "test" "requests.yaml" "net" "files.example.com:80";
    test_a_request_that_is_none: "test" "requests.yaml" "http" "GET" "ftp://files.example.com/";
    test_reading: "test" "good.yaml" "read" "src/main.rs";
    test_reading_a_secret: "test" "good.yaml" "read" "config/.env";
    test_writing_a_hook: "test" "good.yaml" "write" ".git/hooks/pre-commit";
    test_a_command: "test" "good.yaml" "exec" "ls" "-la";
    test_a_command_that_is_asked_about: "test" "good.yaml" "exec" "rm" "-rf" "target";
    test_a_model: "test" "strict" "model" "claude-sonnet-4-5";
    test_a_tool: "test" "strict" "tool" "WebFetch" "https://example.com";
    test_a_policy_that_is_wrong: "test" "bad.yaml" "net" "example.com:443";
    test_a_policy_that_is_not_there: "test" "balancd" "net" "example.com:443";
    diff_two_presets: "diff" "strict" "balanced";
    diff_fails_when_asked_to: "diff" "balanced" "open" "--fail-on-wider";
    diff_of_nothing_as_json: "--json" "diff" "open" "open";
    list_presets: "presets";
    list_presets_as_json: "--json" "presets";
}

#[test]
fn a_printed_preset_is_a_valid_policy() {
    let place = place();
    for preset in ["strict", "balanced", "open"] {
        let printed = viv(place.path(), &["presets", preset]);
        fs::write(place.path().join("printed.yaml"), &printed.stdout).unwrap();
        let same = viv(place.path(), &["--json", "diff", preset, "printed.yaml"]);
        assert_eq!(String::from_utf8(same.stdout).unwrap().trim(), "[]", "{preset}");
    }
}

#[test]
fn the_schema_is_json() {
    let schema = viv(place().path(), &["schema"]);
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
}

#[test]
fn a_project_file_is_a_base_only_while_it_is_trusted() {
    let place = place();
    let project = place.path().join("sandbox.policy.yaml");
    let code = |arguments: &[&str]| viv(place.path(), arguments).status.code().unwrap();
    fs::write(&project, GOOD).unwrap();

    let refused = viv(place.path(), &["explain"]);
    assert_eq!(refused.status.code(), Some(5));
    let words = String::from_utf8(refused.stderr).unwrap();
    assert!(words.contains("error[policy_widening_denied]") && words.contains("sandbox.policy.yaml:6"), "{words}");

    assert_eq!(code(&["trust", "sandbox.policy.yaml"]), 0);
    let trusted = viv(place.path(), &["explain"]);
    assert!(String::from_utf8(trusted.stderr).unwrap().contains("trusted sandbox.policy.yaml"));
    assert!(String::from_utf8(trusted.stdout).unwrap().contains("*.example.org:443"));

    fs::write(&project, format!("{GOOD}# changed\n")).unwrap();
    assert_eq!(code(&["explain"]), 5, "one changed byte ends the trust");
    assert_eq!(code(&["trust", "sandbox.policy.yaml"]), 0);
    assert_eq!(code(&["explain"]), 0);
    assert_eq!(code(&["trust", "sandbox.policy.yaml", "--forget"]), 0);
    assert_eq!(code(&["explain"]), 5);
}

#[test]
fn a_project_file_that_only_narrows_needs_no_trust() {
    let place = place();
    fs::write(place.path().join("sandbox.policy.yaml"), "proc: {memory: 64MiB}\n").unwrap();
    let narrowed = viv(place.path(), &["explain"]);
    assert_eq!(narrowed.status.code(), Some(0));
    let sentences = String::from_utf8(narrowed.stdout).unwrap();
    assert!(
        sentences.contains("Memory limit for all processes together: 64MiB.  [narrowing: sandbox.policy.yaml:1]"),
        "{sentences}"
    );
}

#[test]
fn a_project_file_that_is_not_a_regular_file_is_rejected_at_once() {
    let place = place();
    std::os::unix::fs::symlink("/dev/zero", place.path().join("sandbox.policy.yaml")).unwrap();
    let refused = viv(place.path(), &["explain"]);
    assert_eq!(refused.status.code(), Some(3));
}

#[test]
fn an_invalid_file_cannot_be_trusted() {
    let place = place();
    assert_eq!(viv(place.path(), &["trust", "bad.yaml"]).status.code(), Some(5));
    assert_eq!(viv(place.path(), &["trust"]).stdout, b"");
}
