//! Tests of `viv setup` and `viv config` on a real data directory, with a model server on the loopback.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use crate::fixture::program;
use crate::terminal::Terminal;
use testkit::ProgramOutput;

const SECRET: &str = "sk-never-printed-0123456789";

/// Runs `viv` with a home directory of its own and a key in the environment.
fn viv(home: &std::path::Path, arguments: &[&str]) -> ProgramOutput {
    let mut command = Command::new(program());
    command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home);
    command.env("MY_KEY", SECRET).current_dir(home).args(arguments);
    ProgramOutput::from(command.output().unwrap())
}

const CHAT_ANSWER: &str = r#"{"id":"c1","object":"chat.completion","created":1,"model":"gpt-4o-mini","choices":[{"index":0,"message":{"role":"assistant","content":"hi"},"finish_reason":"stop"}],"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}"#;
const MESSAGE: &str = r#"{"id":"m1","type":"message","role":"assistant","model":"claude-haiku-4-5","content":[{"type":"text","text":"hi"}],"stop_reason":"end_turn","usage":{"input_tokens":1,"output_tokens":1}}"#;

/// Answers one model call with `body`; returns whether the key was sent.
fn model_server(body: &'static str) -> (std::net::SocketAddr, std::thread::JoinHandle<bool>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let answered = std::thread::spawn(move || {
        let (stream, _) = listener.accept().unwrap();
        let mut reader = BufReader::new(stream.try_clone().unwrap());
        let (mut length, mut with_key) = (0, false);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap() < 3 {
                break;
            }
            let line = line.to_ascii_lowercase();
            length = line.strip_prefix("content-length:").map_or(length, |text| text.trim().parse().unwrap());
            let is_key = ["authorization:", "x-api-key:"].iter().any(|name| line.starts_with(name));
            with_key |= is_key && line.contains(SECRET);
        }
        reader.read_exact(&mut vec![0; length]).unwrap();
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
        (&stream).write_all(format!("{head}\r\nconnection: close\r\n\r\n{body}").as_bytes()).unwrap();
        with_key
    });
    (address, answered)
}

#[test]
fn setup_writes_the_upstream_and_makes_a_metered_call() {
    let home = tempfile::tempdir().unwrap();
    let (address, answered) = model_server(CHAT_ANSWER);
    let url = format!("http://{address}/v1");
    let setup = ["setup", "--upstream", "local", "--base-url", &url, "--key-env", "MY_KEY", "--model", "gpt-4o-mini"];
    let refused = viv(home.path(), &setup);
    assert_eq!(refused.code, 10, "{}", refused.stderr);
    assert!(refused.stderr.ends_with("help: viv setup --yes\n"), "{}", refused.stderr);
    let ran = viv(home.path(), &[&setup[..], &["--agent", "codex", "--yes"]].concat());
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    assert!(answered.join().unwrap(), "the call came without the key");
    let path = home.path().join(".local/share/viv/viv.toml");
    let file = std::fs::read_to_string(&path).unwrap();
    assert!(!file.contains(SECRET) && !ran.stderr.contains(SECRET) && !ran.stdout.contains(SECRET));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o600);
    let shown = viv(home.path(), &["config", "show"]).stdout;
    for line in
        ["model.upstream = \"local\"", "agents.codex.model = \"gpt-4o-mini\"", "upstreams.local.key_env = \"MY_KEY\""]
    {
        assert!(shown.contains(line), "{shown}");
    }
    let again = viv(home.path(), &[&setup[..], &["--agent", "codex", "--yes", "--no-test"]].concat());
    assert_eq!(again.code, 0, "{}", again.stderr);
    assert_eq!(std::fs::read_to_string(&path).unwrap(), file, "a second setup changed the file");
    let usage = viv(home.path(), &["usage", "--by", "account"]).stdout;
    assert!(usage.contains("setup"), "the call is not metered: {usage}");
}

#[test]
fn config_creates_the_directory_corrects_names_and_repairs_a_broken_file() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(viv(home.path(), &["config", "set", "sandbox.backend", "jail"]).code, 0);
    assert_eq!(viv(home.path(), &["config", "get", "sandbox.backend"]).stdout, "jail\n");
    assert_eq!(viv(home.path(), &["config", "get", "user"]).code, 3);
    let typo = viv(home.path(), &["config", "set", "sandbox.bakend", "jail"]);
    assert_eq!(typo.code, 2);
    assert!(typo.stderr.contains("did you mean `sandbox.backend`?"), "{}", typo.stderr);
    let secret = viv(home.path(), &["config", "set", "credentials.forge.key", SECRET]);
    assert!(
        secret.code == 2 && secret.stderr.contains("help: viv config set credentials.forge.key -"),
        "{}",
        secret.stderr
    );
    let path = home.path().join(".local/share/viv/viv.toml");
    std::fs::write(&path, "# kept\n[sandbox]\nbakend = \"jail\"\n").unwrap();
    let doctor = viv(home.path(), &["doctor"]);
    assert!(doctor.stdout.contains("viv.toml, line 3") || doctor.stdout.contains("line 3"), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("help: viv config unset sandbox.bakend"), "{}", doctor.stdout);
    assert!(doctor.stdout.contains("landlock"), "the other checks are missing: {}", doctor.stdout);
    assert_eq!(doctor.code, 2);
    assert_eq!(viv(home.path(), &["config", "unset", "sandbox.bakend"]).code, 0);
    assert_eq!(viv(home.path(), &["models"]).code, 0);
}

#[test]
fn completions_and_manual_pages_are_written() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let ran = viv(home.path(), &["completions", shell]);
        assert!(ran.code == 0 && ran.stdout.contains("sessions"), "{}", ran.stderr);
    }
    assert_eq!(viv(home.path(), &["man", "man"]).code, 0);
    assert!(home.path().join("man/viv-run.1").exists());
}

#[test]
fn the_home_directory_is_not_a_workspace_without_consent() {
    let home = tempfile::tempdir().unwrap();
    let refused = viv(home.path(), &["run", "mock", "/echo hi"]);
    assert_eq!(refused.code, 10, "{}", refused.stderr);
    assert!(refused.stderr.contains("contains your home directory"), "{}", refused.stderr);
    assert_eq!(viv(home.path(), &["run", "--yes", "mock", "/echo hi"]).code, 0);
}

#[test]
fn setup_changes_nothing_if_the_test_call_fails() {
    let home = tempfile::tempdir().unwrap();
    let setup = ["setup", "--upstream", "local", "--base-url", "http://127.0.0.1:9/v1", "--model", "my-model", "--yes"];
    let ran = viv(home.path(), &setup);
    assert_eq!(ran.code, 7, "{}", ran.stderr);
    assert!(ran.stderr.contains("viv.toml was not changed"), "{}", ran.stderr);
    assert!(!home.path().join(".local/share/viv/viv.toml").exists());
    let ran = viv(home.path(), &[&setup[..], &["--no-test"]].concat());
    assert!(ran.code == 0 && ran.stderr.contains("(not tested)"), "{}", ran.stderr);
    assert!(home.path().join(".local/share/viv/viv.toml").exists());
}

#[test]
fn init_writes_a_policy_once_and_the_policy_is_good() {
    let home = tempfile::tempdir().unwrap();
    let ran = viv(home.path(), &["init"]);
    assert_eq!(ran.code, 0, "{}", ran.stderr);
    let checked = viv(home.path(), &["policy", "check", "sandbox.policy.yaml"]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    let again = viv(home.path(), &["init"]);
    assert_eq!(again.code, 2, "{}", again.stderr);
    assert!(again.stderr.ends_with("help: viv policy check ./sandbox.policy.yaml\n"), "{}", again.stderr);
}

#[test]
fn run_offers_a_found_key_on_a_terminal_and_uses_it_after_a_yes() {
    let home = tempfile::tempdir().unwrap();
    let (address, answered) = model_server(MESSAGE);
    let path = home.path().join(".local/share/viv/viv.toml");
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    let before = format!("[upstreams.anthropic]\nkind = \"anthropic\"\nbase_url = \"http://{address}\"\n");
    std::fs::write(&path, &before).unwrap();
    // The run ends behind the question, because the workspace does not exist.
    let start = || {
        let mut command = Command::new(program());
        command.env_clear().env("PATH", std::env::var_os("PATH").unwrap()).env("HOME", home.path());
        command.env("ANTHROPIC_API_KEY", SECRET).current_dir(home.path());
        command.args(["run", "claude", "hi", "--workspace", "/no/where"]);
        Terminal::start(command)
    };
    let mut terminal = start();
    terminal.until("use it from now on? ");
    terminal.type_line("n");
    let (status, shown) = terminal.finish();
    assert_eq!(status.code(), Some(2), "{shown}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), before);

    let mut terminal = start();
    terminal.until("use it from now on? ");
    terminal.type_line("yes");
    let (status, shown) = terminal.finish();
    assert_eq!(status.code(), Some(2), "{shown}");
    assert!(shown.contains("viv.toml now uses upstream anthropic") && !shown.contains(SECRET), "{shown}");
    assert!(answered.join().unwrap(), "the call came without the key");
    let after = std::fs::read_to_string(&path).unwrap();
    assert!(after.contains("key_found = true") && !after.contains(SECRET), "{after}");

    let (_, shown) = start().finish();
    assert!(!shown.contains("use it from now on?"), "{shown}");
}
