//! Tests of `viv credentials`: listing, secrecy, and `--check`.
#![allow(clippy::unwrap_used)] // Helpers of tests are not seen as tests.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use tempfile::TempDir;

const SECRET: &str = "sk-very-secret-0123456789";

/// Returns `viv` with its own home directory and environment.
fn viv(home: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_viv"));
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home);
    command.env("ANTHROPIC_API_KEY", SECRET).arg("--data-dir").arg(home.join("data")).args(arguments);
    command.output().unwrap()
}

/// Returns a home directory with a Claude login, and an upstream at `address`.
fn home(address: Option<SocketAddr>) -> TempDir {
    let home = TempDir::new().unwrap();
    std::fs::create_dir_all(home.path().join(".claude")).unwrap();
    let login = format!(r#"{{"claudeAiOauth":{{"accessToken":"{SECRET}-login"}}}}"#);
    std::fs::write(home.path().join(".claude/.credentials.json"), login).unwrap();
    std::fs::create_dir(home.path().join("data")).unwrap();
    if let Some(address) = address {
        let text =
            format!("[upstreams.here]\nkind = \"anthropic\"\nbase_url = \"http://{address}\"\nkey_found = true\n");
        std::fs::write(home.path().join("data/viv.toml"), text).unwrap();
    }
    home
}

/// Starts a vendor that answers one call with `status` and reports whether the key was sent.
fn vendor(status: u16) -> (SocketAddr, std::thread::JoinHandle<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answered = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let mut with_key = false;
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() < 3 {
                break;
            }
            with_key |= line.to_ascii_lowercase().starts_with("x-api-key:") && line.contains(SECRET);
        }
        let body = r#"{"input_tokens":8}"#;
        let head = format!("HTTP/1.1 {status} X\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
        (&stream).write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes()).unwrap();
        with_key
    });
    (address, answered)
}

#[track_caller]
fn listed(output: &Output) -> Vec<Value> {
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(!text.contains(SECRET) && !String::from_utf8_lossy(&output.stderr).contains(SECRET), "{text}");
    serde_json::from_str(&text).unwrap()
}

#[test]
fn credentials_are_listed_without_the_secret() {
    let home = home(None);
    let output = viv(home.path(), &["--json", "credentials"]);
    let rows = listed(&output);
    let row = |index: usize| {
        let text = |key: &str| rows[index][key].as_str().unwrap_or("-").to_owned();
        [text("provider"), text("sort"), text("source"), text("used_by"), text("health")]
    };
    assert_eq!(rows.len(), 2, "{rows:#?}");
    assert_eq!(row(0), ["anthropic", "key", "environment ANTHROPIC_API_KEY", "gateway", "-"]);
    assert_eq!(row(1), ["anthropic", "login", "~/.claude/.credentials.json", "nobody", "-"]);
    let table = viv(home.path(), &["credentials"]);
    let table = String::from_utf8_lossy(&table.stdout).into_owned();
    assert!(table.contains("environment ANTHROPIC_API_KEY") && !table.contains(SECRET), "{table}");
}

#[test]
fn check_reports_whether_a_key_is_valid() {
    for (status, health, code) in [(200, "good", 0), (401, "invalid", 4), (403, "invalid", 4), (529, "unreachable", 7)]
    {
        let (address, answered) = vendor(status);
        let home = home(Some(address));
        let output = viv(home.path(), &["--json", "credentials", "--check"]);
        assert_eq!(listed(&output)[0]["health"], health, "{status}");
        assert_eq!(output.status.code(), Some(code), "{status}");
        assert!(answered.join().unwrap(), "the vendor was asked without the key");
    }
}

#[test]
fn a_vendor_that_does_not_answer_is_unreachable() {
    // A free port without a listener.
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let home = home(Some(address));
    let output = viv(home.path(), &["--json", "credentials", "--check"]);
    assert_eq!(listed(&output)[0]["health"], "unreachable");
    assert_eq!(output.status.code(), Some(7));
}

#[test]
fn no_credential_is_in_a_sandbox() {
    let home = home(None);
    let output = viv(home.path(), &["exec", "--", "env"]);
    let inside = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && inside.contains("PATH=") && !inside.contains(SECRET), "{inside}");
    let file = home.path().join(".claude/.credentials.json");
    let output = viv(home.path(), &["exec", "--", "cat", file.to_str().unwrap()]);
    assert!(!output.status.success() && output.stdout.is_empty());
}
