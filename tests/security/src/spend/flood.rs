//! The attacking side: requests from inside a sandbox that make the host spend memory or disk space.
//!
//! Errors are ignored: a host that defends itself refuses, closes connections or stops reading.

use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpStream};
use std::time::Duration;

use base::{EGRESS_PORT, MODEL_PORT};

use super::victim_host::TOKEN;

/// Longest wait for a host that stops reading.
const WRITE_PATIENCE: Duration = Duration::from_millis(300);
/// Longest wait for an answer. A host that answers nothing has read everything by then.
const READ_PATIENCE: Duration = Duration::from_secs(2);
/// Bytes of one large body.
const BODY: usize = 2 << 20;
/// Connections that hold something at the same time.
const CONNECTIONS: usize = 60;

/// Runs the flood with the name of the attack.
pub(crate) fn flood(mut arguments: impl Iterator<Item = String>) {
    match arguments.next().as_deref() {
        Some("spend_stalled_bodies") => stalled_bodies(),
        Some("spend_endless_chunks") => endless_chunks(),
        Some("spend_connections") => connections(),
        Some("spend_headers") => headers(),
        Some("spend_nested_json") => nested_json(),
        Some("spend_journal_by_calls") => many_calls(1_500, 3_000),
        Some("spend_stored_bodies") => many_calls(80, 128 << 10),
        Some("spend_journal_by_denials") => denials(),
        other => panic!("unknown flood {other:?}"),
    }
}

fn connect(port: u16) -> Option<TcpStream> {
    let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_write_timeout(Some(WRITE_PATIENCE)).ok()?;
    stream.set_read_timeout(Some(READ_PATIENCE)).ok()?;
    Some(stream)
}

fn head(framing: &str) -> String {
    format!(
        "POST /v1/messages HTTP/1.1\r\nhost: h\r\nx-api-key: {TOKEN}\r\ncontent-type: application/json\r\n{framing}\r\n\r\n"
    )
}

/// Opens connections that each send `bytes`, and returns those that are open.
fn send_everywhere(bytes: &[u8]) -> Vec<TcpStream> {
    let opened = (0..CONNECTIONS).filter_map(|_| connect(MODEL_PORT));
    opened
        .map(|mut stream| {
            let _ = stream.write_all(bytes);
            stream
        })
        .collect()
}

/// Waits until the host has answered the last connection, or has had the time to read everything.
fn wait(streams: &mut [TcpStream]) {
    if let Some(last) = streams.last_mut() {
        let _ = last.read(&mut [0; 1]);
    }
}

/// Each body lacks one byte.
fn stalled_bodies() {
    let mut bytes = head(&format!("content-length: {BODY}")).into_bytes();
    bytes.resize(bytes.len() + BODY - 1, b' ');
    wait(&mut send_everywhere(&bytes));
}

/// The length of no body is known, and none ends.
fn endless_chunks() {
    let mut bytes = head("transfer-encoding: chunked").into_bytes();
    for _ in 0..BODY >> 14 {
        bytes.extend_from_slice(b"4000\r\n");
        bytes.resize(bytes.len() + (1 << 14), b' ');
        bytes.extend_from_slice(b"\r\n");
    }
    wait(&mut send_everywhere(&bytes));
}

fn connections() {
    let streams: Vec<_> = (0..3 * CONNECTIONS).filter_map(|_| connect(MODEL_PORT)).collect();
    for mut stream in &streams {
        let _ = stream.write_all(b"POST /v1/messages HTTP/1.1\r\n");
    }
    // A stalled head is not answered.
    if let Some(mut last) = streams.last() {
        let _ = last.read(&mut [0; 1]);
    }
}

/// Heads of nearly the longest length that never end, on as many connections as the host lets in.
fn headers() {
    const HEADS: usize = 500;
    let mut bytes = b"POST /v1/messages HTTP/1.1\r\nhost: h\r\n".to_vec();
    for number in 0..90 {
        bytes.extend_from_slice(format!("x-{number}: {}\r\n", "h".repeat(670)).as_bytes());
    }
    let address = (Ipv4Addr::LOCALHOST, MODEL_PORT).into();
    let opened = (0..HEADS).map_while(|_| TcpStream::connect_timeout(&address, WRITE_PATIENCE).ok());
    let mut streams: Vec<_> = opened
        .map(|mut stream| {
            let _ = stream.set_write_timeout(Some(WRITE_PATIENCE));
            let _ = stream.write_all(&bytes);
            stream
        })
        .collect();
    if let Some(last) = streams.last() {
        let _ = last.set_read_timeout(Some(READ_PATIENCE));
    }
    wait(&mut streams);
}

/// Calls that are short as text and long as a tree of JSON values: lists in lists, as deep as parsers accept.
fn nested_json() {
    const DEPTH: usize = 100;
    let list = format!("{}0{}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    let lists = vec![list; BODY / (2 * DEPTH + 2)].join(",");
    let call = format!(r#"{{"type":"tool_use","id":"t","name":"t","input":{{"lists":[{lists}]}}}}"#);
    let messages = format!(r#"[{{"role":"user","content":"x"}},{{"role":"assistant","content":[{call}]}}]"#);
    let body = format!(r#"{{"model":"m","max_tokens":5,"messages":{messages}}}"#);
    let head = head(&format!("content-length: {}", body.len()));
    let mut streams: Vec<_> = (0..8).filter_map(|_| connect(MODEL_PORT)).collect();
    for stream in &mut streams {
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes()));
    }
    for stream in &mut streams {
        let _ = read_answer(stream);
    }
}

/// Makes `count` calls one after another, each with a different body of `bytes` bytes.
fn many_calls(count: usize, bytes: usize) {
    let Some(mut stream) = connect(MODEL_PORT) else { return };
    for number in 0..count {
        let body = call(bytes, number as u64 + 1);
        let request = [head(&format!("content-length: {}", body.len())).into_bytes(), body].concat();
        if stream.write_all(&request).is_err() || read_answer(&mut stream).is_none() {
            // A refusal may close the connection.
            match connect(MODEL_PORT) {
                Some(other) => stream = other,
                None => return,
            }
        }
    }
}

/// Reads one answer of a known length.
fn read_answer(stream: &mut TcpStream) -> Option<()> {
    let (mut answer, mut piece) = (Vec::new(), [0; 16 << 10]);
    loop {
        let count = stream.read(&mut piece).ok().filter(|count| *count > 0)?;
        answer.extend_from_slice(&piece[..count]);
        let text = String::from_utf8_lossy(&answer);
        let Some((head, body)) = text.split_once("\r\n\r\n") else { continue };
        let length =
            head.lines().find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length: ")?.parse().ok());
        if length.is_none_or(|length: usize| body.len() >= length) {
            return Some(());
        }
    }
}

/// Returns a call with a prompt of `bytes` bytes that differs for each `seed`.
fn call(bytes: usize, seed: u64) -> Vec<u8> {
    let mut state = seed;
    let letters = (0..bytes).map(|_| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(seed);
        char::from(b'a' + u8::try_from((state >> 33) % 26).unwrap_or(0))
    });
    let prompt: String = letters.collect();
    let messages = format!(r#"[{{"role":"user","content":"{prompt}"}}]"#);
    format!(r#"{{"model":"m","max_tokens":5,"messages":{messages}}}"#).into_bytes()
}

/// Asks for many hosts that the policy denies, each with a long path.
fn denials() {
    let path = "p".repeat(1000);
    for number in 0..3_000 {
        let Some(mut stream) = connect(EGRESS_PORT) else { return };
        let host = format!("h{number}.example.com");
        let request = format!("GET http://{host}/{path} HTTP/1.1\r\nhost: {host}\r\n\r\n");
        let _ = stream.write_all(request.as_bytes());
        let _ = stream.read(&mut [0; 1]);
    }
}
