//! A stub server with the chat completions API that records its requests.

#![expect(clippy::unwrap_used, reason = "only tests call this")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// Header of a stream that ends with the connection.
const OPENING: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// Behaviour of the stub.
#[derive(Debug, Clone, Copy)]
pub enum StubBehaviour {
    /// Answers with a stream or a document, as requested.
    Answers,
    /// Cuts streams after the first word, so that clients retry without streaming.
    CutsStreams,
    /// Sends the second half of a stream when the gate is opened.
    HoldsBack(&'static StubGate),
    /// Answers every call with this status.
    Refuses(u16),
}

/// StubGate that a test opens.
#[derive(Debug, Default)]
pub struct StubGate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl StubGate {
    /// Lets all waiting streams go on.
    pub fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// One recorded call.
#[derive(Debug, Clone)]
pub struct StubCall {
    /// The path of the request.
    pub path: String,
    /// The header `authorization`.
    pub authorization: Option<String>,
    /// The parsed body.
    pub body: Value,
}

/// A server that runs until the test process ends.
#[derive(Debug)]
pub struct ChatStub {
    /// The address on which it listens.
    pub address: SocketAddr,
    calls: Arc<Mutex<Vec<StubCall>>>,
}

impl ChatStub {
    /// Starts a stub whose answers have the text `answer`.
    pub fn start(behaviour: StubBehaviour, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, calls) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let recorded = calls.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let recorded = recorded.clone();
                std::thread::spawn(move || serve(stream, behaviour, answer, &recorded));
            }
        });
        Self { address, calls }
    }

    /// Returns all recorded calls.
    pub fn calls(&self) -> Vec<StubCall> {
        self.calls.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, behaviour: StubBehaviour, answer: &str, recorded: &Mutex<Vec<StubCall>>) {
    let Ok(mut writer) = stream.try_clone() else { return };
    // An idle connection must not block a thread forever.
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    let mut reader = BufReader::new(stream);
    while let Some(call) = read(&mut reader) {
        let streams = call.body["stream"].as_bool().unwrap_or(false);
        recorded.lock().unwrap().push(call);
        let text = match behaviour {
            StubBehaviour::Refuses(status) => {
                let body = json!({"error": {"message": "out of order", "type": "server_error"}}).to_string();
                response(status, "application/json", &body)
            }
            StubBehaviour::CutsStreams if streams => {
                let _ = writer.write_all(format!("{OPENING}{}", chunk(&answer[..1], None)).as_bytes());
                return;
            }
            _ if streams => {
                let (first, rest) = answer.split_at(answer.len() / 2);
                if let StubBehaviour::HoldsBack(gate) = behaviour {
                    let _ = writer.write_all(format!("{OPENING}{}", chunk(first, None)).as_bytes());
                    gate.pass();
                    let rest = [chunk(rest, None), chunk("", Some("stop"))].concat();
                    let _ = writer.write_all(format!("{rest}data: [DONE]\n\n").as_bytes());
                    return;
                }
                let usage = json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "stub",
                    "choices": [], "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}});
                let body = [chunk(first, None), chunk(rest, None), chunk("", Some("stop"))].concat();
                response(200, "text/event-stream", &format!("{body}data: {usage}\n\ndata: [DONE]\n\n"))
            }
            _ => response(200, "application/json", &whole(answer).to_string()),
        };
        if writer.write_all(text.as_bytes()).is_err() {
            return;
        }
    }
}

fn read(reader: &mut impl BufRead) -> Option<StubCall> {
    let mut head = String::new();
    reader.read_line(&mut head).ok().filter(|read| *read > 0)?;
    let path = head.split(' ').nth(1)?.to_owned();
    let (mut length, mut authorization) = (0, None);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line).ok()?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        match name.to_ascii_lowercase().as_str() {
            "content-length" => length = value.trim().parse().ok()?,
            "authorization" => authorization = Some(value.trim().to_owned()),
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(StubCall { path, authorization, body: serde_json::from_slice(&body).unwrap_or_default() })
}

fn response(status: u16, kind: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\ncontent-type: {kind}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn chunk(text: &str, finish: Option<&str>) -> String {
    let choice = json!({"index": 0, "delta": {"role": "assistant", "content": text}, "finish_reason": finish});
    let chunk =
        json!({"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "stub", "choices": [choice]});
    format!("data: {chunk}\n\n")
}

fn whole(text: &str) -> Value {
    let message = json!({"role": "assistant", "content": text});
    json!({"id": "c", "object": "chat.completion", "created": 1, "model": "stub",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 7, "completion_tokens": 5, "total_tokens": 12}})
}
