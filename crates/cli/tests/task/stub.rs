//! A stub server with the chat completions API that records its requests.
#![allow(dead_code, reason = "two test binaries share it, and each uses a part")]

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

/// Header of a stream that ends with the connection.
const OPENING: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";

/// Behaviour of the stub.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Manner {
    /// Answers with a stream or a document, as requested.
    Well,
    /// Cuts streams after the first word, so that clients retry without streaming.
    CutsStreams,
    /// Sends the second half of a stream when the gate is opened.
    HoldsBack(&'static Gate),
    /// Answers every call with this status.
    Refuses(u16),
}

/// Gate that a test opens.
#[derive(Debug, Default)]
pub(crate) struct Gate {
    open: Mutex<bool>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.opened.notify_all();
    }

    fn pass(&self) {
        drop(self.opened.wait_while(self.open.lock().unwrap(), |open| !*open).unwrap());
    }
}

/// One recorded call.
#[derive(Debug, Clone)]
pub(crate) struct Call {
    pub(crate) path: String,
    pub(crate) authorization: Option<String>,
    pub(crate) body: Value,
}

/// A server that runs until the test process ends.
pub(crate) struct Stub {
    pub(crate) address: SocketAddr,
    calls: Arc<Mutex<Vec<Call>>>,
}

impl Stub {
    pub(crate) fn start(manner: Manner, answer: &'static str) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, calls) = (listener.local_addr().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let heard = calls.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let heard = heard.clone();
                std::thread::spawn(move || serve(stream, manner, answer, &heard));
            }
        });
        Self { address, calls }
    }

    /// Returns all recorded calls.
    pub(crate) fn calls(&self) -> Vec<Call> {
        self.calls.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, manner: Manner, answer: &str, heard: &Mutex<Vec<Call>>) {
    let Ok(mut writer) = stream.try_clone() else { return };
    // An idle connection must not block a thread forever.
    let _ = stream.set_read_timeout(Some(Duration::from_secs(60)));
    let mut reader = BufReader::new(stream);
    while let Some(call) = read(&mut reader) {
        let streams = call.body["stream"].as_bool().unwrap_or(false);
        heard.lock().unwrap().push(call);
        let text = match manner {
            Manner::Refuses(status) => {
                let body = json!({"error": {"message": "out of order", "type": "server_error"}}).to_string();
                response(status, "application/json", &body)
            }
            Manner::CutsStreams if streams => {
                let _ = writer.write_all(format!("{OPENING}{}", chunk(&answer[..1], None)).as_bytes());
                return;
            }
            _ if streams => {
                let (first, rest) = answer.split_at(answer.len() / 2);
                if let Manner::HoldsBack(gate) = manner {
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

fn read(reader: &mut impl BufRead) -> Option<Call> {
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
    Some(Call { path, authorization, body: serde_json::from_slice(&body).unwrap_or_default() })
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
