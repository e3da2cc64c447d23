//! Invalid requests are rejected with a message and a code, and have no effect.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::fixture::viv_fixture;
use crate::http::{Answer, Client};
use crate::journal;
use crate::processes;
use crate::server::Server;
use testkit::ProgramOutput;

#[track_caller]
fn check(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.status, status, "{answer:?}");
    assert_eq!(answer.content_type, "application/problem+json", "{answer:?}");
    let problem = answer.json();
    assert_eq!((problem["code"].as_str(), problem["status"].as_u64()), (Some(code), Some(status.into())), "{problem}");
    assert!(problem["detail"].as_str().is_some_and(|detail| !detail.is_empty()), "{problem}");
}

/// Sends a request with arbitrary bytes in its path.
fn raw(server: &Server, method: &str, path: &[u8]) -> (u16, String) {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    let head = [method.as_bytes(), b" ", path, b" HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"].concat();
    let body = json!({"agent": "mock"}).to_string();
    let rest = format!("content-type: application/json\r\ncontent-length: {}\r\n\r\n{body}", body.len());
    stream.write_all(&[head, rest.into_bytes()].concat()).unwrap();
    let mut answer = String::new();
    let _ = stream.read_to_string(&mut answer);
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok()).unwrap_or(0);
    (status, answer)
}

fn sessions(client: &Client) -> Value {
    client.get("/v1/sessions").json()["sessions"].clone()
}

#[test]
fn rejected_requests_start_nothing() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let client = server.client();
    assert_eq!(client.try_create("kept").unwrap().status, 200);
    let (before, kept) = (processes::family(server.pid()), journal::read(&place.data_dir(), "kept"));

    for body in ["", "{", "null", "[]", "\"mock\"", "{\"agent\":\"mock\"} more", "{\"agent\":7}", "{}", "\u{0}"] {
        check(&client.post("/v1/sessions/new", body), 400, "invalid_request");
    }
    check(&client.post("/v1/sessions/new", r#"{"agent":"nobody"}"#), 400, "unsupported_agent");
    check(&client.post("/v1/sessions/new", r#"{"agent":"mock","directory":"relative"}"#), 400, "invalid_request");
    check(
        &client.post("/v1/sessions/new", r#"{"agent":"mock","directory":"/no/where"}"#),
        403,
        "directory_not_allowed",
    );
    check(&client.post("/v1/sessions/kept", r#"{"agent":"mock"}"#), 409, "session_already_exists");
    for path in ["", "/events", "/events/sse", "/pending"] {
        check(&client.get(&format!("/v1/sessions/missing{path}")), 404, "session_not_found");
    }
    check(&client.post("/v1/sessions/missing/messages", r#"{"message":"hi"}"#), 404, "session_not_found");
    check(&client.post("/v1/sessions/missing/terminate", ""), 404, "session_not_found");
    for body in ["{", "{}", r#"{"message":7}"#, r#"{"message":"hi","unknown":1}"#] {
        check(&client.post("/v1/sessions/kept/messages", body), 400, "invalid_request");
    }
    check(&client.post("/v1/sessions/kept/permissions/none/reply", r#"{"reply":"once"}"#), 404, "permission_not_found");
    check(&client.post("/v1/sessions/kept/questions/none/reply", r#"{"answers":[]}"#), 404, "question_not_found");
    check(&client.get("/v1/nothing"), 404, "route_not_found");
    let huge = json!({"message": "x".repeat(17 << 20)}).to_string();
    check(&client.post("/v1/sessions/kept/messages", &huge), 413, "body_too_large");
    let large = json!({"reply": "x".repeat(2 << 20)}).to_string();
    check(&client.post("/v1/sessions/kept/permissions/none/reply", &large), 413, "body_too_large");

    let same: Vec<_> = processes::alive(&before);
    assert_eq!(processes::family(server.pid()).len(), same.len(), "something was started");
    assert_eq!(sessions(&client).as_array().unwrap().len(), 1);
    assert_eq!(journal::read(&place.data_dir(), "kept"), kept, "something was recorded");
    let last = client.converse("kept", "/echo still here").unwrap().last().unwrap();
    assert_eq!(last.json()["data"]["outcome"], "completed");
    server.stop();
}

#[test]
fn session_ids_cannot_escape_the_data_directory() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let long = "x".repeat(300);
    let names: &[&[u8]] = &[
        b"a/b",
        b"..",
        b".",
        b"%2e%2e",
        b"%2e%2e%2fescape",
        b"..%2fescape",
        b"a%2fb",
        b"a%5cb",
        b"a%00b",
        b"a\x00b",
        b"%00",
        b"a%0ab",
        b"%20",
        b"a%20b",
        b".hidden",
        b"%ff%fe",
        b"a\\b",
        b"caf%c3%a9",
        long.as_bytes(),
    ];
    for name in names {
        for suffix in ["", "/messages", "/terminate"] {
            let path = [b"/v1/sessions/", *name, suffix.as_bytes()].concat();
            let (status, answer) = raw(&server, "POST", &path);
            let shown = String::from_utf8_lossy(&path).into_owned();
            assert!((400..500).contains(&status), "{shown}: {answer}");
        }
    }
    let beside = std::fs::read_dir(place.data_dir().parent().unwrap()).unwrap();
    let mut beside: Vec<_> = beside.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    beside.sort();
    assert_eq!(beside, ["data"]);
    assert_eq!(std::fs::read_dir(place.data_dir().join("trajectory")).unwrap().count(), 0, "a session was made");
    server.stop();
}

/// Checks the form of an error: first line with the code, last line with `help:`.
#[track_caller]
fn check_told(ran: &ProgramOutput, exit: i32, code: &str) {
    assert_eq!(ran.code, exit, "{ran:?}");
    assert_eq!(ran.stdout, "", "an error is not data");
    assert!(ran.stderr.starts_with(&format!("error[{code}]: ")), "{}", ran.stderr);
    let last = ran.stderr.lines().last().unwrap();
    assert!(last.starts_with("help: ") && last.len() > 6, "{}", ran.stderr);
}

#[test]
fn every_error_ends_with_a_help_line() {
    let place = viv_fixture();
    let cases: &[(&[&str], i32, &str)] = &[
        (&["run", "nobody", "hi"], 2, "unsupported_agent"),
        (&["run", "mock", "hi", "--workspace", "/no/where"], 2, "invalid_request"),
        (&["run", "mock", "hi", "--policy", "no-such"], 2, "invalid_request"),
        (&["sessions", "show", "missing"], 3, "session_not_found"),
        (&["sessions", "show", "../../etc/passwd"], 3, "session_not_found"),
        (&["sessions", "show", ""], 3, "session_not_found"),
        (&["sessions", "events", "missing"], 3, "session_not_found"),
        (&["sessions", "diff", "missing"], 3, "session_not_found"),
        (&["sessions", "stop", "missing"], 3, "session_not_found"),
        (&["exec", "--", "not-a-program"], 127, "runtime_error"),
        (&["exec", "--workspace", "/no/where", "--", "true"], 125, "invalid_request"),
        (&["serve", "--listen", "192.0.2.1:1"], 6, "proxy_bind_error"),
        (&["serve", "--listen", "0.0.0.0:0", "--no-auth"], 2, "invalid_request"),
        (&["policy", "explain", "missing.yaml"], 3, "artifact_read_error"),
    ];
    for (arguments, exit, code) in cases {
        let ran = place.run(arguments);
        println!("{arguments:?}");
        check_told(&ran, *exit, code);
        let json = place.run(&[&["--json"], *arguments].concat());
        assert_eq!(json.code, *exit, "{arguments:?} as JSON: {json:?}");
        let problem: Value = serde_json::from_str(&json.stderr).unwrap_or_else(|_| panic!("{arguments:?}: {json:?}"));
        assert_eq!(problem["code"], *code);
        assert!(problem["hint"].as_str().is_some_and(|hint| !hint.is_empty()), "{problem}");
    }
}

#[test]
fn usage_errors_end_with_a_help_line() {
    let place = viv_fixture();
    let cases: &[&[&str]] = &[
        &["no-such-command"],
        &["run"],
        &["exec"],
        &["exec", "--timeout", "soon", "--", "true"],
        &["demo", "--no-such"],
    ];
    for arguments in cases {
        // For `viv exec`, small exit codes belong to the command.
        let exit = if arguments[0] == "exec" { 125 } else { 2 };
        check_told(&place.run(arguments), exit, "invalid_request");
        let json = place.run(&[&["--json"], *arguments].concat());
        let problem: Value = serde_json::from_str(&json.stderr).unwrap_or_else(|_| panic!("{arguments:?}: {json:?}"));
        assert_eq!((json.code, problem["code"].as_str()), (exit, Some("invalid_request")));
    }
}

#[test]
fn an_unknown_configuration_key_is_rejected() {
    let place = viv_fixture();
    place.run(&["sessions", "ls"]);
    for text in ["sandbox = false\n", "[model]\nscrpit = \"x\"\n", "not toml", "[model]\nscript = 7\n"] {
        std::fs::write(place.data_dir().join("viv.toml"), text).unwrap();
        for arguments in [&["demo"][..], &["run", "mock", "hi"], &["serve"], &["sessions", "ls"]] {
            let ran = place.run(arguments);
            check_told(&ran, 2, "config_invalid");
            assert!(ran.stderr.contains("viv.toml"), "{}", ran.stderr);
        }
        let exec = place.run(&["exec", "--", "true"]);
        assert_eq!(exec.code, 125, "{exec:?}");
    }
    assert_eq!(std::fs::read_dir(place.data_dir().join("trajectory")).unwrap().count(), 0, "a session was made");
}

#[test]
fn a_data_directory_has_one_server() {
    let place = viv_fixture();
    let server = Server::start(&place);
    let second = place.run(&["serve", "--listen", "127.0.0.1:0"]);
    check_told(&second, 6, "data_dir_in_use");
    assert!(second.stderr.contains(&format!("(process {})", server.pid())), "{}", second.stderr);
    assert_eq!(server.client().get("/v1/health").status, 200, "the first one still answers");
    server.stop();
    let token = place.data_dir().join("api.token");
    assert!(!token.exists(), "a server without authentication needs no token");
}
