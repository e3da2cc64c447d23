//! A model server on loopback that plays scripted replies as an Anthropic stream.

use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Value, json};

/// A reply of the model.
#[derive(Debug, Clone)]
pub(crate) enum ModelReply {
    /// A message in two parts.
    Text(&'static str),
    /// Reasoning, then a message.
    Thought(&'static str, &'static str),
    /// A message and a tool call.
    Tool(&'static str, Value),
    /// A tool call without a message.
    SilentTool(&'static str, Value),
    /// An error status with a body.
    Status(u16, &'static str),
    /// A stream that ends early.
    Cut,
    /// An `error` event in the stream.
    ErrorEvent,
    /// A stream that is not JSON.
    Garbage,
    /// A stream that stops without ending.
    Hang,
}

pub(crate) struct ModelServer {
    pub(crate) url: String,
    requests: Arc<Mutex<Vec<RecordedRequest>>>,
}

/// A request of the agent.
#[derive(Debug, Clone)]
pub(crate) struct RecordedRequest {
    pub(crate) head: String,
    pub(crate) body: Value,
}

impl ModelServer {
    /// Plays `replies` in order, then replies `OK` to everything.
    pub(crate) fn start(replies: Vec<ModelReply>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        let requests = Arc::new(Mutex::new(Vec::new()));
        let (seen, mut replies) = (Arc::clone(&requests), VecDeque::from(replies));
        thread::spawn(move || {
            for stream in listener.incoming() {
                let Ok(stream) = stream else { return };
                // A connection without a request uses no reply.
                if stream.peek(&mut [0]).is_ok_and(|count| count == 0) {
                    continue;
                }
                let reply = replies.pop_front().unwrap_or(ModelReply::Text("OK"));
                let seen = Arc::clone(&seen);
                // The test notices a failed connection by itself.
                thread::spawn(move || serve(stream, &reply, &seen));
            }
        });
        Self { url, requests }
    }

    pub(crate) fn requests(&self) -> Vec<RecordedRequest> {
        self.requests.lock().unwrap().clone()
    }
}

fn serve(mut stream: TcpStream, reply: &ModelReply, seen: &Mutex<Vec<RecordedRequest>>) -> std::io::Result<()> {
    let mut reader = BufReader::new(stream.try_clone()?);
    let (mut head, mut length) = (String::new(), 0);
    loop {
        let mut line = String::new();
        reader.read_line(&mut line)?;
        if line.trim().is_empty() {
            break;
        }
        if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
            length = value.trim().parse().unwrap();
        }
        head.push_str(&line);
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    seen.lock().unwrap().push(RecordedRequest { head, body: serde_json::from_slice(&body).unwrap_or_default() });
    answer(&mut stream, reply)
}

fn answer(stream: &mut TcpStream, reply: &ModelReply) -> std::io::Result<()> {
    if let ModelReply::Status(status, body) = reply {
        return write!(
            stream,
            "HTTP/1.1 {status} No\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}",
            body.len()
        );
    }
    write!(stream, "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")?;
    for frame in frames(reply) {
        write!(stream, "event: {}\ndata: {frame}\n\n", frame["type"].as_str().unwrap_or_default())?;
    }
    match reply {
        ModelReply::Garbage => write!(stream, "data: <html>\n\n"),
        // The agent closes the connection, or the process ends.
        ModelReply::Hang => stream.read(&mut [0]).map(|_| ()),
        _ => Ok(()),
    }
}

fn frames(reply: &ModelReply) -> Vec<Value> {
    let mut frames = vec![json!({ "type": "message_start", "message": { "usage": { "input_tokens": 3 } } })];
    match reply {
        ModelReply::Text(text) => frames.extend(block("text", text)),
        ModelReply::Thought(thought, text) => {
            frames.extend(block("thinking", thought));
            frames.extend(block("text", text));
        }
        ModelReply::Tool(name, input) => {
            frames.extend(block("text", "I will."));
            frames.extend(tool(name, input));
        }
        ModelReply::SilentTool(name, input) => frames.extend(tool(name, input)),
        ModelReply::Cut | ModelReply::Hang => {
            frames.extend(block("text", "half a sentence").into_iter().take(2));
            return frames;
        }
        ModelReply::ErrorEvent => {
            frames.push(json!({ "type": "error", "error": { "type": "overloaded_error", "message": "busy" } }));
            return frames;
        }
        ModelReply::Garbage | ModelReply::Status(..) => return frames,
    }
    frames.push(json!({ "type": "ping" }));
    frames.push(json!({ "type": "message_delta", "delta": { "stop_reason": "end_turn" } }));
    frames.push(json!({ "type": "message_stop" }));
    frames
}

fn block(kind: &str, text: &str) -> Vec<Value> {
    let (first, second) = text.split_at(text.len() / 2);
    let mut frames = vec![json!({ "type": "content_block_start", "content_block": { "type": kind, kind: "" } })];
    for piece in [first, second] {
        let delta = json!({ "type": format!("{kind}_delta"), kind: piece });
        frames.push(json!({ "type": "content_block_delta", "delta": delta }));
    }
    frames.push(json!({ "type": "content_block_stop" }));
    frames
}

fn tool(name: &str, input: &Value) -> Vec<Value> {
    let start = json!({ "type": "tool_use", "id": format!("toolu_{name}"), "name": name, "input": {} });
    let delta = json!({ "type": "input_json_delta", "partial_json": input.to_string() });
    vec![
        json!({ "type": "content_block_start", "content_block": start }),
        json!({ "type": "content_block_delta", "delta": delta }),
        json!({ "type": "content_block_stop" }),
    ]
}
