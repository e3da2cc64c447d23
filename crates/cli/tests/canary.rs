//! The key of an upstream is sent to the upstream only, even if its answers contain the key or fail; and a call with an
//! unknown outcome is settled by hand.
#![allow(clippy::unwrap_used, clippy::panic)] // Helpers of tests are not seen as tests.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use testkit::VivFixture;

const KEY: &str = "sk-canary-9f8e7d6c5b4a39281706f5e4d3c2b1a0";

/// A vendor that repeats the key in its answers, each time in another form.
struct Parrot {
    address: String,
    shown: Arc<Mutex<Vec<String>>>,
}

impl Parrot {
    fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let shown = Arc::new(Mutex::new(Vec::new()));
        let seen = shown.clone();
        // The thread ends with the process.
        std::thread::spawn(move || {
            for (number, stream) in listener.incoming().enumerate() {
                let Ok(mut stream) = stream else { return };
                let Some(key) = read_key(&stream) else { continue };
                seen.lock().unwrap().push(key.clone());
                for piece in repeat(number, &key) {
                    if stream.write_all(&piece).and_then(|()| stream.flush()).is_err() {
                        break;
                    }
                }
            }
        });
        Self { address, shown }
    }
}

fn read_key(stream: &TcpStream) -> Option<String> {
    let mut reader = BufReader::new(stream);
    let (mut key, mut length) = (None, 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let line = line.trim_end();
        if line.is_empty() {
            break;
        }
        let (name, value) = line.split_once(": ").unwrap_or((line, ""));
        match &*name.to_ascii_lowercase() {
            "x-api-key" => key = Some(value.to_owned()),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    reader.read_exact(&mut vec![0; length]).ok()?;
    key
}

/// Returns the chunks of answer `number`.
fn repeat(number: usize, key: &str) -> Vec<Vec<u8>> {
    let closing = "connection: close\r\n";
    let message = |text: &str| {
        format!(
            r#"{{"id":"m","type":"message","role":"assistant","model":"m","content":[{{"type":"text","text":"{text}"}}],"stop_reason":"end_turn","usage":{{"input_tokens":3,"output_tokens":2}}}}"#
        )
    };
    let whole = |status: &str, more: &str, body: &str| {
        let length = body.len();
        format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\n{closing}{more}content-length: {length}\r\n\r\n{body}"
        )
    };
    let error = format!(r#"{{"type":"error","error":{{"type":"authentication_error","message":"no {key}"}}}}"#);
    let (first, second) = key.split_at(9);
    match number {
        0 => vec![whole("401 Unauthorized", &format!("request-id: {key}\r\n"), &error).into_bytes()],
        1 => vec![whole("200 OK", &format!("x-ratelimit-{key}: 1\r\n"), &message(key)).into_bytes()],
        2 => {
            let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n{closing}\r\n");
            vec![format!("{head}data: {{\"x\":\"{first}").into_bytes(), format!("{second}\"}}\n\n").into_bytes()]
        }
        3 => vec![format!("HTTP/1.1 {key} {key}\r\n{key}\r\n\r\n").into_bytes()],
        4 => vec![format!("{key} is no answer").into_bytes()],
        5 => vec![format!("HTTP/1.1 200 OK\r\ncontent-length: {key}\r\n\r\n").into_bytes()],
        6 => vec![
            format!("HTTP/1.1 307 Go\r\nlocation: http://{key}/\r\ncontent-length: 0\r\n{closing}\r\n").into_bytes(),
        ],
        7 => vec![whole("200 OK", "", &message("hello")).into_bytes()],
        _ => {
            let start = r#"{"type":"message_start","message":{"id":"m","type":"message","role":"assistant","model":"m","content":[],"usage":{"input_tokens":3,"output_tokens":1}}}"#;
            let end = r#"{"type":"message_delta","delta":{"stop_reason":"end_turn"},"usage":{"output_tokens":2}}"#;
            let head =
                format!("HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nrequest-id: {key}\r\n{closing}\r\n");
            let events =
                [("message_start", start), ("message_delta", end), ("message_stop", r#"{"type":"message_stop"}"#)];
            let events = events.map(|(name, data)| format!("event: {name}\ndata: {data}\n\n")).concat();
            vec![head.into_bytes(), events.into_bytes()]
        }
    }
}

struct CanaryFixture {
    fixture: VivFixture,
}

impl CanaryFixture {
    fn new(address: &str) -> Self {
        let fixture = VivFixture::with_inner_data_dir(env!("CARGO_BIN_EXE_viv"));
        // Outside of the data directory, whose every byte is searched.
        fs::write(fixture.directory().join("key"), KEY).unwrap();
        let config = format!(
            "user = \"ann\"\n[model]\nupstream = \"parrot\"\n[upstreams.parrot]\nkind = \"anthropic\"\nbase_url = \"http://{address}\"\n\
             key_file = \"../key\"\nretries = 0\n[prices.scripted]\ninput = 1.0\noutput = 2.0\n"
        );
        fixture.configure(&config);
        Self { fixture }
    }

    fn viv(&self, arguments: &[&str]) -> Command {
        let mut command = self.fixture.command(arguments);
        command.env("VIV_LOG", "trace");
        command
    }

    #[track_caller]
    fn json(&self, arguments: &[&str]) -> Value {
        let output = self.viv(&[&["--json"], arguments].concat()).env_remove("VIV_LOG").output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        serde_json::from_slice(&output.stdout).unwrap()
    }
}

fn files(root: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(root).unwrap().map(|entry| entry.unwrap().path());
    entries.flat_map(|path| if path.is_dir() { files(&path) } else { vec![path] }).collect()
}

#[track_caller]
fn check_without_key(what: &str, bytes: &[u8]) {
    assert!(!bytes.windows(KEY.len()).any(|text| text == KEY.as_bytes()), "the key is in {what}");
}

/// A running `viv gateway serve` and its stderr.
struct Served {
    child: Child,
    address: String,
}

impl Served {
    fn start(fixture: &CanaryFixture) -> Self {
        let log = fs::File::create(fixture.fixture.directory().join("log")).unwrap();
        let mut command = fixture.viv(&["--json", "gateway", "serve", "--listen", "127.0.0.1:0"]);
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let address = testkit::listening_address(&mut child);
        Self { child, address }
    }

    fn call(&self, token: &str, stream: bool) -> Vec<u8> {
        let body = format!(
            r#"{{"model":"scripted","max_tokens":9,"stream":{stream},"messages":[{{"role":"user","content":"hi"}}]}}"#
        );
        let mut connection = TcpStream::connect(&self.address).unwrap();
        let head = format!("host: h\r\nx-api-key: {token}\r\nconnection: close\r\ncontent-length: {}", body.len());
        write!(connection, "POST /v1/messages HTTP/1.1\r\n{head}\r\n\r\n{body}").unwrap();
        let mut answer = Vec::new();
        // A truncated answer is expected.
        let _ = connection.read_to_end(&mut answer);
        answer
    }

    fn stop(mut self) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args(["-TERM", &pid]).status().unwrap().success());
        assert!(self.child.wait().unwrap().success());
    }
}

#[test]
fn the_key_is_in_no_answer_log_journal_or_ledger_and_unknown_calls_are_settled_by_hand() {
    let parrot = Parrot::start();
    let fixture = CanaryFixture::new(&parrot.address);
    let created = fixture.json(&["keys", "create", "--account", "team", "--budget", "9", "--ttl", "1h"]);
    let token = created["key"].as_str().or_else(|| created["token"].as_str()).unwrap().to_owned();
    let served = Served::start(&fixture);
    for number in 0..8 {
        let answer = served.call(&token, number == 2);
        assert!(answer.starts_with(b"HTTP/1.1 "), "call {number}");
        check_without_key(&format!("the answer to call {number}"), &answer);
    }
    served.stop();
    // And once from a sandbox.
    let ran = fixture.viv(&["run", "mock", "hello", "--perms=deny", "--workspace=workspace"]).output().unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    check_without_key("what `viv run` printed", &ran.stdout);
    check_without_key("the log of `viv run`", &ran.stderr);

    let shown = parrot.shown.lock().unwrap().clone();
    assert!(shown.len() >= 9 && shown.iter().all(|key| key == KEY), "{shown:?}");
    let log = fs::read(fixture.fixture.directory().join("log")).unwrap();
    assert!(String::from_utf8_lossy(&log).contains("refused"), "the log says something: {} bytes", log.len());
    check_without_key("the log", &log);
    let kept = files(&fixture.fixture.directory().join("data"));
    assert!(kept.len() > 8, "{kept:?}");
    for path in kept {
        check_without_key(&path.display().to_string(), &fs::read(&path).unwrap());
    }
    close_by_hand(&fixture);
}

/// An invalid answer may have cost something: the call is listed until a person settles it.
fn close_by_hand(fixture: &CanaryFixture) {
    let unknown = fixture.json(&["usage", "--unknown"]);
    let calls: Vec<&str> = unknown.as_array().unwrap().iter().map(|call| call["call"].as_str().unwrap()).collect();
    assert!(calls.len() >= 3, "{unknown}");
    let settle = |call: &str, cost: &str| {
        let output = fixture.viv(&["usage", "settle", call, cost, "--reason=invoice 12"]).output().unwrap();
        (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
    };
    for (index, call) in calls.iter().enumerate() {
        assert_eq!(settle(call, if index == 0 { "--usd=0.25" } else { "--free" }).0, 0);
    }
    assert_eq!(fixture.json(&["usage", "--unknown"]).as_array().unwrap().len(), 0);
    let settled = fixture.json(&["usage", "settled"]);
    assert_eq!(settled.as_array().unwrap().len(), calls.len());
    assert_eq!((settled[0]["by"].as_str(), settled[0]["reason"].as_str()), (Some("ann"), Some("invoice 12")));
    assert_eq!(settled[0]["spent_picos"], 250_000_000_000_u64);
    let (code, words) = settle(calls[0], "--usd=9");
    assert!(code != 0 && words.contains("it cannot be resolved"), "{code} {words}");
    let usage = fixture.json(&["usage", "--by", "account"]);
    let team = usage["rows"].as_array().unwrap().iter().find(|row| row["name"] == "team").unwrap();
    assert_eq!((&team["held_picos"], &team["unknown"]), (&0.into(), &0.into()));
}
