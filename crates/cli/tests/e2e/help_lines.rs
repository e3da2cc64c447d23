//! Every error ends with a `help:` line that a person can paste into a shell.

use std::process::{Command, Stdio};

use crate::fixture::{program, viv_fixture};
use crate::server::Server;
use testkit::VivFixture;

/// Runs `line` in a shell, with a `viv` that only parses its arguments: its data directory cannot exist, so that nothing
/// happens after the arguments are accepted.
#[track_caller]
fn check_pasteable(place: &VivFixture, line: &str) {
    let script = format!("viv() {{ \"$VIV\" \"$@\"; }}\n{line}\n");
    let mut shell = Command::new("bash");
    shell.args(["-c", &script]).current_dir(place.directory()).stdin(Stdio::null());
    shell
        .env("VIV", program())
        .env("VIV_DATA_DIR", "/dev/null/none")
        .env("EDITOR", "true")
        .env("HOME", place.directory());
    let ran = shell.output().unwrap();
    let stderr = String::from_utf8_lossy(&ran.stderr);
    assert_ne!(ran.status.code(), Some(127), "`{line}` is not a command: {stderr}");
    for rejected in ["syntax error", "Usage: viv", "unexpected argument", "unrecognized subcommand"] {
        assert!(!stderr.contains(rejected), "`{line}` is not accepted: {stderr}");
    }
}

/// Returns the command of the last line.
#[track_caller]
fn help_of(stderr: &str) -> String {
    let last = stderr.lines().last().unwrap_or_default();
    last.strip_prefix("help: ").unwrap_or_else(|| panic!("no help in {stderr}")).to_owned()
}

/// Checks that the help is pasteable, and that it is not the check of the machine unless the machine is the problem.
#[track_caller]
fn check(place: &VivFixture, arguments: &[&str]) -> String {
    let ran = place.run(arguments);
    assert_ne!(ran.code, 0, "{arguments:?} succeeded");
    let help = help_of(&ran.stderr);
    println!("{arguments:?}: {help}");
    assert_ne!(help, "viv doctor", "{arguments:?}: {}", ran.stderr);
    check_pasteable(place, &help);
    help
}

#[test]
fn help_lines_are_commands_that_viv_accepts() {
    let place = viv_fixture();
    std::fs::write(place.directory().join("broken"), "not a bundle").unwrap();
    std::fs::write(place.directory().join("half.env"), "BASE_URL=http://127.0.0.1:9\n").unwrap();
    std::fs::write(place.directory().join("bad.yaml"), "version: 1\nnett: {}\n").unwrap();
    let cases: &[&[&str]] = &[
        &["run", "cluade", "hi"],
        &["run", "amp", "hi"],
        &["run", "mock", "hi", "--workspace", "/no/where"],
        &["run", "mock", "hi", "--env-file", "missing.env"],
        &["run", "mock", "hi", "--env-file", "half.env"],
        &["run", "mock", "hi", "--upstream", "nowhere"],
        &["run", "mock", "hi", "--policy", "bad.yaml"],
        &["run", "mock", "hi", "--mcp", "missing.json"],
        &["run", "mock", "hi", "--narrow", "proc.memory=512"],
        &["run", "mock", "hi", "--on-finish", "ask"],
        &["run", "mock", "/run true"],
        &["exec", "ls"],
        &["exec", "--deps", "/no/where", "--", "ls"],
        &["exec", "--env", "novalue", "--", "ls"],
        &["exec", "--", "no-such-program"],
        &["exec", "--narrow", "net.enabled=true", "--", "ls"],
        &["sessions", "show", "missing"],
        &["sessions", "import", "broken"],
        &["sessions", "import", "missing"],
        &["sessions", "send", "missing", "hi"],
        &["perms", "allow", "missing"],
        &["api", "GET", "/v1/sessions"],
        &["api", "POST", "/v1/sessions/x", "--data", "{"],
        &["task", "missing.yaml"],
        &["task", "bad.yaml"],
        &["replay", "missing"],
        &["policy", "explain", "missing.yaml"],
        &["agents", "show", "nobody"],
        &["keys", "create", "--account", ""],
        &["serve", "--listen", "192.0.2.1:1"],
        &["no-such-command"],
    ];
    for arguments in cases {
        check(&place, arguments);
    }
    let corrected = check(&place, &["exec", "ls", "-l"]);
    assert!(corrected.ends_with(" exec -- ls -l"), "{corrected}");
    let typed = place.run(&["run", "cluade", "hi"]).stderr;
    assert!(typed.contains("unknown agent `cluade`, did you mean `claude`?"), "{typed}");
    let small = place.run(&["exec", "--narrow", "proc.memory=512", "--", "true"]).stderr;
    assert!(small.contains("at least 8MiB") && small.contains("did you mean `512MiB`?"), "{small}");
}

#[test]
fn help_lines_of_a_running_server_are_commands_that_viv_accepts() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let cases: &[&[&str]] = &[
        &["serve", "--listen", "127.0.0.1:0"],
        &["api", "POST", "/v1/sessions/x", "--data", "{\"agent\": 7}"],
        &["api", "POST", "/v1/sessions/x", "--data", "{\"agent\": \"cluade\"}"],
        &["api", "GET", "/v1/nothing"],
        &["run", "mock", "hi", "--workspace", "workspace", "--mode", "dream"],
    ];
    for arguments in cases {
        check(&place, arguments);
    }
    server.stop();
}

#[test]
fn help_lines_after_a_damaged_journal_are_commands_that_viv_accepts() {
    let place = viv_fixture();
    assert_eq!(place.run(&["run", "--workspace", "workspace", "mock", "/echo hi"]).code, 0);
    let journals: Vec<_> = std::fs::read_dir(place.data_dir().join("trajectory")).unwrap().collect();
    let path = journals[0].as_ref().unwrap().path();
    let text = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, text.replacen("turn.started", "turn.altered", 1)).unwrap();
    check(&place, &["sessions", "events", "@last"]);
}
