//! Tests of prices, keys, `viv gateway serve` and `viv usage`.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

use std::fs;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use assert_cmd::cargo::CommandCargoExt;
use serde_json::Value;
use tempfile::TempDir;

/// A data directory with this `viv.toml`.
fn place(config: &str) -> TempDir {
    let place = TempDir::new().unwrap();
    fs::create_dir(place.path().join("data")).unwrap();
    fs::write(place.path().join("data/viv.toml"), config).unwrap();
    place
}

fn command(place: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::cargo_bin("viv").unwrap();
    command.current_dir(place).args(["--data-dir", "data"]).args(arguments);
    command
}

fn viv(place: &Path, arguments: &[&str]) -> Output {
    command(place, arguments).output().unwrap()
}

#[track_caller]
fn stdout(place: &Path, arguments: &[&str]) -> String {
    let output = viv(place, arguments);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn json(place: &Path, arguments: &[&str]) -> Value {
    serde_json::from_str(&stdout(place, arguments)).unwrap()
}

/// A running `viv gateway serve`; it is stopped when dropped.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(place: &Path) -> Self {
        Self::on(place, "127.0.0.1:0")
    }

    fn on(place: &Path, address: &str) -> Self {
        let mut child = command(place, &["--json", "gateway", "serve", "--listen", address])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let address = testkit::listening_address(&mut child);
        Self { child, address }
    }

    /// Returns status and body of a Messages call.
    fn call(&self, key: &str, model: &str) -> (u16, Value) {
        let mut stream = self.ask(key, model);
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").unwrap();
        let body = &body[body.find('{').unwrap()..=body.rfind('}').unwrap()];
        (head.split(' ').nth(1).unwrap().parse().unwrap(), serde_json::from_str(body).unwrap())
    }

    /// Sends a Messages call.
    fn ask(&self, key: &str, model: &str) -> TcpStream {
        let body = format!(r#"{{"model":"{model}","max_tokens":9,"messages":[{{"role":"user","content":"hi"}}]}}"#);
        let mut stream = TcpStream::connect(&self.address).unwrap();
        let head = format!("host: h\r\nx-api-key: {key}\r\nconnection: close\r\ncontent-length: {}", body.len());
        write!(stream, "POST /v1/messages HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
        stream
    }

    /// Stops the gateway, waits for its end and returns its stderr.
    fn stop(mut self) -> String {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        let mut said = String::new();
        self.child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
        assert!(self.child.wait().unwrap().success(), "{said}");
        said
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        // The test may have stopped it before.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test]
fn models_show_prices_with_their_source() {
    let place = place("[prices.\"my-model\"]\ninput = 0.0625\noutput = 1.5\n");
    let models = json(place.path(), &["--json", "models"]);
    assert!(models["source"].as_str().unwrap().starts_with("litellm ") && models["taken"].is_string());
    let find =
        |name: &str| models["models"].as_array().unwrap().iter().find(|row| row["model"] == name).unwrap().clone();
    assert_eq!((&find("my-model")["input"], &find("my-model")["from"]), (&62_500.into(), &"viv.toml".into()));
    assert_eq!(find("claude-sonnet-4-5")["from"], "built-in");
    let table = stdout(place.path(), &["models"]);
    assert!(table.contains("my-model\t0.0625\t1.50\t0.0625\t"), "{table}");
}

#[test]
fn configuration_errors_name_the_key() {
    let secret = "sk-canary-0123456789";
    let cases = [
        (format!("[upstreams.a]\nkind = \"anthropic\"\nkee = \"{secret}\"\n"), "line 3", "unknown field `kee`"),
        ("[upstreams.a]\nkind = \"claude\"\n".to_owned(), "line 2", "unknown variant `claude`"),
        ("[model]\nupstream = \"b\"\n".to_owned(), "`model.upstream`", "unknown upstream `b`"),
        (
            format!("[model]\nupstream = \"a\"\n[upstreams.a]\nkind = \"litellm\"\nkey = \"{secret}\"\n"),
            "`upstreams.a.base_url`",
            "needs a base URL",
        ),
        (
            format!(
                "[model]\nupstream = \"a\"\n[upstreams.a]\nkind = \"openai\"\nkey = \"{secret}\"\nkey_env = \"K\"\n"
            ),
            "`upstreams.a.key`",
            "only one of key",
        ),
        ("[prices.m]\ninput = -1.0\noutput = 1.0\n".to_owned(), "`prices.\"m\".input`", "zero or more"),
    ];
    for (config, at, why) in cases {
        let output = viv(place(&config).path(), &["gateway", "serve", "--listen", "127.0.0.1:0"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("config_invalid") && said.contains("viv.toml"), "{said}");
        assert!(said.contains(at) && said.contains(why), "{said}");
        assert!(!said.contains(secret), "{said}");
    }
}

#[test]
fn a_key_is_valid_until_revoked_and_its_calls_are_billed() {
    let place = place("");
    let made =
        json(place.path(), &["--json", "keys", "create", "--account", "acme", "--models", "scripted*", "--ttl", "1h"]);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let served = Served::start(place.path());
    assert_eq!(served.call(key, "scripted").0, 200);
    let (status, body) = served.call(key, "gpt-5");
    assert_eq!(status, 403);
    assert!(body["error"]["message"].as_str().unwrap().contains(&format!("{id}:3")), "{body}");
    assert_eq!(served.call("viv_key_wrong", "scripted").0, 403);
    assert!(stdout(place.path(), &["keys", "ls"]).contains("\tscripted*\t"));
    stdout(place.path(), &["keys", "revoke", id]);
    assert_eq!(served.call(key, "scripted").0, 403);
    served.stop();
    let bill = json(place.path(), &["--json", "usage", "--by", "account", "--since", "1h"]);
    assert_eq!((&bill["rows"][0]["name"], &bill["rows"][0]["calls"]), (&"acme".into(), &1.into()));
    let csv = stdout(place.path(), &["usage", "--by", "model", "--format", "csv"]);
    assert!(csv.starts_with("model,calls,input,") && csv.contains("\r\nscripted,1,"), "{csv}");
    // Only its digest is stored.
    let kept = fs::read_dir(place.path().join("data")).unwrap().map(|entry| entry.unwrap().path());
    for file in kept.filter(|path| path.is_file()) {
        let bytes = fs::read(&file).unwrap();
        assert!(!bytes.windows(key.len()).any(|window| window == key.as_bytes()), "{}", file.display());
    }
}

#[test]
fn a_key_is_valid_at_every_gateway_of_a_data_directory() {
    let place = place("");
    let made = json(place.path(), &["--json", "keys", "create", "--account", "acme", "--models", "*"]);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let gateways = [Served::start(place.path()), Served::start(place.path())];
    for _ in 0..2 {
        for gateway in &gateways {
            let (status, body) = gateway.call(key, "scripted");
            assert_eq!(status, 200, "{body}");
        }
    }
    let (status, body) = gateways[1].call("viv_key_wrong", "scripted");
    assert_eq!((status, &body["error"]["message"]), (403, &"the key is missing, unknown, revoked or expired".into()));
    for gateway in gateways {
        assert_eq!(gateway.stop(), "");
    }
    let bill = json(place.path(), &["--json", "usage", "--by", "session", "--since", "1h"]);
    let mut calls: Vec<_> =
        bill["rows"].as_array().unwrap().iter().map(|row| (row["name"].clone(), row["calls"].clone())).collect();
    calls.sort_by_key(|(name, _)| name.to_string());
    assert_eq!(calls, [(id.into(), 2.into()), (format!("{id}.2").into(), 2.into())]);
    // The next gateway continues the journals of the first.
    let served = Served::start(place.path());
    assert_eq!(served.call(key, "scripted").0, 200);
    served.stop();
    assert!(!place.path().join(format!("data/trajectory/{id}.3.jsonl")).exists());
}

#[test]
fn a_call_of_a_killed_second_gateway_is_recovered() {
    let vendor = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = "[model]\nupstream = \"a\"\n[upstreams.a]\nkind = \"anthropic\"\nkey = \"sk-canary-0123456789\"\n";
    let place = place(&format!("{upstream}base_url = \"http://{}\"\n", vendor.local_addr().unwrap()));
    let made = json(place.path(), &["--json", "keys", "create", "--account", "acme"]);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let (first, second) = (Served::start(place.path()), Served::start(place.path()));
    let _client = second.ask(key, "claude-sonnet-4-5");
    let (mut asked, _) = vendor.accept().unwrap();
    asked.read_exact(&mut [0; 4]).unwrap();
    drop(second);
    let held = json(place.path(), &["--json", "usage", "--unknown"])[0]["held_picos"].clone();
    // The next gateway would report a call without a journal entry. This call was sent, so its hold is charged.
    assert_eq!(Served::start(place.path()).stop(), "");
    assert_eq!(json(place.path(), &["--json", "usage", "--unknown"]), serde_json::json!([]));
    let estimated = json(place.path(), &["--json", "usage", "--estimated"]);
    assert_eq!(
        (estimated.as_array().unwrap().len(), &estimated[0]["session"], &estimated[0]["spent_picos"]),
        (1, &format!("{id}.2").into(), &held),
        "{estimated}"
    );
    // A person can correct the estimate, once.
    let call = estimated[0]["call"].as_str().unwrap();
    let settle = ["usage", "settle", call, "--usd", "0.0001", "--reason", "invoice 12"];
    assert_eq!(stdout(place.path(), &settle), "");
    let total = |name: &str| json(place.path(), &["--json", "usage"])["total"][name].clone();
    let sums = ["spent_picos", "held_picos", "estimated"].map(total);
    assert_eq!(serde_json::json!(sums), serde_json::json!([100_000_000, 0, 0]));
    assert!(!viv(place.path(), &settle).status.success());
    assert_eq!(first.stop(), "");
}

#[test]
fn a_call_of_a_gateway_that_was_killed_while_it_connected_is_free() {
    let vendor = TcpListener::bind("127.0.0.1:0").unwrap();
    let upstream = "[model]\nupstream = \"a\"\n[upstreams.a]\nkind = \"anthropic\"\nkey = \"sk-canary-0123456789\"\n";
    let place = place(&format!("{upstream}base_url = \"https://{}\"\n", vendor.local_addr().unwrap()));
    let made = json(place.path(), &["--json", "keys", "create", "--account", "acme"]);
    let served = Served::start(place.path());
    let _client = served.ask(made["key"].as_str().unwrap(), "claude-sonnet-4-5");
    // The vendor never answers the TLS handshake, so no byte of the call leaves.
    let (mut hello, _) = vendor.accept().unwrap();
    hello.read_exact(&mut [0; 4]).unwrap();
    drop(served);
    assert_eq!(Served::start(place.path()).stop(), "");
    let total = |name: &str| json(place.path(), &["--json", "usage"])["total"][name].clone();
    let sums = ["spent_picos", "held_picos", "unknown", "estimated"].map(total);
    assert_eq!(serde_json::json!(sums), serde_json::json!([0, 0, 0, 0]));
    for list in ["--unknown", "--estimated"] {
        assert_eq!(json(place.path(), &["--json", "usage", list]), serde_json::json!([]));
    }
}

#[test]
fn an_unusable_key_is_logged_as_an_error() {
    let place = place("");
    let made = json(place.path(), &["--json", "keys", "create", "--account", "acme"]);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    fs::create_dir_all(place.path().join(format!("data/trajectory/{id}.jsonl"))).unwrap();
    let served = Served::start(place.path());
    let (status, body) = served.call(key, "scripted");
    assert_eq!(status, 503, "{body}");
    assert!(body["error"]["message"].as_str().unwrap().starts_with("the key cannot be used now: "), "{body}");
    let said = served.stop();
    assert!(said.contains("ERROR") && said.contains("cannot use a key") && said.contains(id), "{said}");
    assert!(!said.contains(key), "{said}");
}

#[test]
fn a_key_whose_journal_is_full_makes_no_more_calls() {
    let place = place("[limits]\nkey_journal = \"8KiB\"\n");
    let made = json(place.path(), &["--json", "keys", "create", "--account", "acme"]);
    let (id, key) = (made["id"].as_str().unwrap(), made["key"].as_str().unwrap());
    let served = Served::start(place.path());
    let refused = (0..50).map(|_| served.call(key, "scripted")).find(|(status, _)| *status != 200);
    let (status, body) = refused.expect("the journal has no limit");
    let message = body["error"]["message"].as_str().unwrap();
    assert!(status == 403 && message.contains("limits.key_journal"), "{status}: {body}");
    assert_eq!(served.call(key, "scripted").0, 403);
    served.stop();
    let journal = fs::metadata(place.path().join(format!("data/trajectory/{id}.jsonl"))).unwrap().len();
    assert!(journal < 12 << 10, "{journal} bytes");
}

#[test]
fn names_with_control_characters_are_rejected() {
    let place = place("");
    for arguments in [["--account", "two\nlines"], ["--account", " "]] {
        let output = viv(place.path(), &[&["keys", "create"][..], &arguments].concat());
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.contains("invalid name"), "{said}");
    }
    let output = viv(place.path(), &["keys", "create", "--account", "acme", "--user", "a\tb"]);
    assert_eq!(output.status.code(), Some(2));
}

#[test]
fn a_gateway_on_a_public_address_warns_about_plain_http() {
    let place = place("");
    let served = Served::on(place.path(), "0.0.0.0:0");
    let said = served.stop();
    assert!(said.contains("warning") && said.contains("plain HTTP"), "{said}");
}

#[test]
fn a_key_over_budget_is_rejected_with_402() {
    let config = "[model]\nupstream = \"a\"\n[upstreams.a]\nkind = \"anthropic\"\nbase_url = \"http://127.0.0.1:9\"\nkey = \"sk-canary-0123456789\"\n";
    let place = place(config);
    let arguments = ["--json", "keys", "create", "--account", "acme", "--budget", "0.000001"];
    let made = json(place.path(), &arguments);
    let served = Served::start(place.path());
    let (status, body) = served.call(made["key"].as_str().unwrap(), "claude-sonnet-4-5");
    assert_eq!((status, &body["error"]["type"]), (402, &"billing_error".into()), "{body}");
    assert!(body["error"]["message"].as_str().unwrap().contains("`budget` allows $0.000001"), "{body}");
    served.stop();
}

#[test]
fn a_configured_budget_counts_all_keys() {
    let config = "[model]\nupstream = \"a\"\n[upstreams.a]\nkind = \"litellm\"\nbase_url = \"http://127.0.0.1:9\"\n[budgets]\naccount_day_usd = \"0.00001\"\n";
    let place = place(config);
    let made = json(place.path(), &["--json", "keys", "create", "--account", "acme"]);
    let served = Served::start(place.path());
    let (status, body) = served.call(made["key"].as_str().unwrap(), "claude-sonnet-4-5");
    assert_eq!(status, 402, "{body}");
    assert!(body["error"]["message"].as_str().unwrap().contains("`budgets.account_day_usd` allows $0.00001"), "{body}");
    served.stop();
    assert_eq!(json(place.path(), &["--json", "usage", "--unknown"]), serde_json::json!([]));
}

#[test]
fn an_env_file_without_a_base_url_is_rejected() {
    let place = place("");
    fs::write(place.path().join(".env"), "API_KEY=sk-canary-0123456789\n").unwrap();
    let output = viv(place.path(), &["run", "mock", "hi", "--env-file", ".env"]);
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(2), "{said}");
    assert!(said.contains("`.env` does not set BASE_URL") && !said.contains("canary"), "{said}");
}
