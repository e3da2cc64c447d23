//! The MCP server with real clients: MCP's own SDKs for Python, of both protocol eras, over stdio and HTTP.
//!
//! `cargo xtask install` installs the clients into the user's cache.
#![expect(clippy::unwrap_used, reason = "a test that panics has failed, which is its purpose")]

use std::path::PathBuf;
use std::process::{Command, Stdio};

use testkit::{VivFixture, listening_address, run_to_end, wait_for_exit};

const SDK_1: &str = include_str!("v1/requirements.txt");
const SDK_2: &str = include_str!("v2/requirements.txt");

/// Runs `script` with the SDK of `requirements`, and checks that the calls are on record.
#[track_caller]
fn check(requirements: &str, script: &str, transport: &str) {
    let fixture = VivFixture::new(env!("CARGO_BIN_EXE_viv"));
    std::fs::write(fixture.workspace().join("kept.txt"), "as it was\n").unwrap();
    let mut client = Command::new(python(requirements));
    client.arg(PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/mcp").join(script)).arg(transport);
    let workspace = fixture.workspace();
    let workspace = workspace.to_str().unwrap();
    let served = (transport == "http").then(|| {
        let mut serve = fixture.command(&["--json", "serve", "--listen", "127.0.0.1:0"]);
        let mut child = serve.stdout(Stdio::piped()).spawn().unwrap();
        let address = listening_address(&mut child);
        let token = std::fs::read_to_string(fixture.data_dir().join("api.token")).unwrap();
        client.args([&format!("http://{address}/mcp"), token.trim(), workspace]);
        child
    });
    if served.is_none() {
        let stdio = fixture.command(&["mcp", "serve", "--workspace", workspace]);
        client.arg(stdio.get_program()).args(stdio.get_args());
    }
    let output = run_to_end(client);
    if let Some(mut child) = served {
        let id = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        assert!(wait_for_exit(&mut child).success());
    }
    assert!(output.stdout.contains("all checks passed"), "{output:?}");
    let sessions = fixture.run(&["--json", "sessions", "ls"]);
    let listed: serde_json::Value = serde_json::from_str(&sessions.stdout).unwrap();
    let titled = listed.as_array().unwrap().iter().filter(|session| {
        session["title"].as_str().is_some_and(|title| title.starts_with("MCP: ")) && session["ended"] == true
    });
    assert!(titled.count() >= 3, "{}", sessions.stdout);
    assert_eq!(fixture.workspace_files(), [("kept.txt".to_owned(), "as it was\n".to_owned())]);
}

/// Returns the Python interpreter with the SDK; `xtask` uses the same folder name.
fn python(requirements: &str) -> PathBuf {
    let given = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || PathBuf::from(std::env::var_os("HOME").unwrap()).join(".cache");
    let folder = requirements.lines().map(|line| line.replace("==", "-")).collect::<Vec<_>>().join("-");
    let python = given.unwrap_or_else(home).join("viv-test").join(folder).join("bin/python");
    assert!(python.exists(), "{} is missing\n  help: run `cargo xtask install`", python.display());
    python
}

#[test]
fn python_sdk_of_the_connection_era_passes_over_stdio() {
    check(SDK_1, "client1.py", "stdio");
}

#[test]
fn python_sdk_of_the_connection_era_passes_over_http() {
    check(SDK_1, "client1.py", "http");
}

#[test]
fn python_sdk_of_the_era_without_connections_passes_over_stdio() {
    check(SDK_2, "client2.py", "stdio");
}

#[test]
fn python_sdk_of_the_era_without_connections_passes_over_http() {
    check(SDK_2, "client2.py", "http");
}

#[test]
fn http_needs_a_token_with_the_right_to_drive() {
    let fixture = VivFixture::new(env!("CARGO_BIN_EXE_viv"));
    let mut serve = fixture.command(&["--json", "serve", "--listen", "127.0.0.1:0"]);
    let mut child = serve.stdout(Stdio::piped()).spawn().unwrap();
    let url = format!("http://{}/mcp", listening_address(&mut child));
    let agent: ureq::Agent = ureq::Agent::config_builder().http_status_as_error(false).build().into();
    let answer = agent.post(&url).send("{}").unwrap();
    assert_eq!(answer.status(), 401);
    assert_eq!(answer.headers()["www-authenticate"], "Bearer");
    let foreign = agent.post(&url).header("Origin", "https://evil.example.com").send("{}").unwrap();
    assert_eq!(foreign.status(), 403);
    let id = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
    assert!(wait_for_exit(&mut child).success());
}
