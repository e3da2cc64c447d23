//! A model vendor that answers every request at once.

use std::io;
use std::rc::Rc;

use crate::serial::Serial;
use memchr::memmem;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// The name of its model.
pub(crate) const MODEL: &str = "bench";
/// A prompt for an answer that is larger than all socket buffers.
pub(crate) const ENDLESS: &str = "an endless answer, please";
/// Number of events of a stream.
const EVENTS: usize = 200;
/// Number of events in one write. Real vendors also send several tokens in one packet.
const EVENTS_A_WRITE: usize = 8;
const ENDLESS_BYTES: usize = 24 << 20;

struct Answers {
    document: Vec<u8>,
    /// The writes of a stream; the first one contains the head.
    stream: Vec<Vec<u8>>,
    /// A repeated write of an endless answer.
    more: Vec<u8>,
}

/// Prints its address, and serves until standard input ends.
pub(crate) async fn serve() -> Result<(), String> {
    let listener = open().await.map_err(|error| error.to_string())?;
    let answers = Rc::new(Answers::new());
    let mut gone = end_of_input();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                let (stream, _) = accepted.map_err(|error| error.to_string())?;
                let answers = answers.clone();
                tokio::task::spawn_local(async move {
                    // Ignore callers that disconnect.
                    let _ = serve_connection(stream, &answers).await;
                });
            }
            _ = &mut gone => return Ok(()),
        }
    }
}

/// Listens with a backlog for thousands of connections, and prints the address. With the usual backlog of 128, some of
/// 500 concurrent calls would wait for a second.
pub(crate) async fn open() -> io::Result<TcpListener> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    rustix::net::listen(&listener, 4096)?;
    println!("{}", listener.local_addr()?);
    Ok(listener)
}

/// Returns a receiver that completes when standard input ends.
pub(crate) fn end_of_input() -> tokio::sync::oneshot::Receiver<()> {
    let (left, gone) = tokio::sync::oneshot::channel();
    std::thread::spawn(move || {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        let _: Result<(), ()> = left.send(());
    });
    gone
}

async fn serve_connection(mut stream: TcpStream, answers: &Answers) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut request = Vec::with_capacity(128 << 10);
    let (mut document, mut opening) = (numbered(&answers.document)?, numbered(&answers.stream[0])?);
    loop {
        let Some(body) = read_request(&mut stream, &mut request).await? else { return Ok(()) };
        let body = &request[body..];
        let streams = [&b"\"stream\":true"[..], b"\"stream\": true"].iter().any(|mark| contains(body, mark));
        if !streams {
            let (document, serial) = &mut document;
            serial.write(document);
            stream.write_all(document).await?;
        } else if contains(body, ENDLESS.as_bytes()) {
            answers.write_endless(&mut stream).await?;
        } else {
            let (opening, serial) = &mut opening;
            serial.write(opening);
            answers.write_stream(&mut stream, opening).await?;
        }
    }
}

/// Reads one request; returns the offset of its body, or `None` at the end of the connection.
async fn read_request(stream: &mut TcpStream, request: &mut Vec<u8>) -> io::Result<Option<usize>> {
    request.clear();
    let mut whole = None;
    loop {
        if stream.read_buf(request).await? == 0 {
            return Ok(None);
        }
        if whole.is_none() {
            whole = memmem::find(request, b"\r\n\r\n").map(|end| (end + 4, end + 4 + length(&request[..end])));
        }
        if let Some((body, end)) = whole
            && request.len() >= end
        {
            return Ok(Some(body));
        }
    }
}

fn length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let line = head.lines().find_map(|line| line.strip_prefix("content-length:"));
    line.and_then(|value| value.trim().parse().ok()).unwrap_or(0)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    memmem::find(text, part).is_some()
}

impl Answers {
    fn new() -> Self {
        let message = message(&json!([{"type": "text", "text": "word ".repeat(60)}]), &json!("end_turn"));
        let message = message.to_string();
        let length = message.len();
        let document =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {length}\r\n\r\n{message}");
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let events: Vec<Vec<u8>> = events().iter().map(chunk).collect();
        let mut writes: Vec<Vec<u8>> = events.chunks(EVENTS_A_WRITE).map(<[Vec<u8>]>::concat).collect();
        if let Some(first) = writes.first_mut() {
            first.splice(0..0, head.bytes());
        }
        if let Some(last) = writes.last_mut() {
            last.extend_from_slice(b"0\r\n\r\n");
        }
        let more = chunk(&delta(&"word ".repeat(800)));
        Self { document: document.into_bytes(), stream: writes, more }
    }

    async fn write_stream(&self, stream: &mut TcpStream, opening: &[u8]) -> io::Result<()> {
        stream.write_all(opening).await?;
        for write in &self.stream[1..] {
            // Lets other answers interleave, as with a vendor that has many callers.
            tokio::task::yield_now().await;
            stream.write_all(write).await?;
        }
        Ok(())
    }

    async fn write_endless(&self, stream: &mut TcpStream) -> io::Result<()> {
        stream.write_all(&self.stream[0]).await?;
        for _ in 0..ENDLESS_BYTES / self.more.len() {
            stream.write_all(&self.more).await?;
        }
        for write in &self.stream[1..] {
            stream.write_all(write).await?;
        }
        Ok(())
    }
}

/// Returns a copy of `text` with the position of its serial number.
fn numbered(text: &[u8]) -> io::Result<(Vec<u8>, Serial)> {
    let serial = Serial::find(text).ok_or_else(|| io::Error::other("an answer has no serial number"))?;
    Ok((text.to_vec(), serial))
}

/// The words of a stream: of different lengths, some with characters that JSON escapes.
const WORDS: [&str; 16] = [
    "Once",
    " upon",
    " a",
    " time",
    " there",
    " was",
    " a",
    " function",
    " `read_all`",
    ",",
    " which",
    " said",
    ":\n\n",
    "\"No more",
    " bytes\"",
    ".\n",
];

/// The last word of a stream, which stands nowhere else. `cargo xtask bench agents` looks for it.
const LAST_WORD: &str = " finis";

/// Returns the events of a stream in order.
fn events() -> Vec<Value> {
    let mut events = vec![
        json!({"type": "message_start", "message": message(&json!([]), &Value::Null)}),
        json!({"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}),
    ];
    events.extend(WORDS.iter().cycle().take(EVENTS - 6).map(|word| delta(word)));
    events.push(delta(LAST_WORD));
    events.push(json!({"type": "content_block_stop", "index": 0}));
    let end = json!({"stop_reason": "end_turn", "stop_sequence": null});
    events.push(json!({"type": "message_delta", "delta": end, "usage": {"output_tokens": EVENTS}}));
    events.push(json!({"type": "message_stop"}));
    events
}

fn delta(text: &str) -> Value {
    json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}})
}

fn message(content: &Value, stop_reason: &Value) -> Value {
    json!({"id": Serial::PLACEHOLDER, "type": "message", "role": "assistant", "model": MODEL, "content": content,
        "stop_reason": stop_reason, "stop_sequence": null, "usage": {"input_tokens": 20, "output_tokens": 60}})
}

/// Returns an event as one HTTP chunk, with its type first, as vendors write it.
fn chunk(event: &Value) -> Vec<u8> {
    let (mut rest, kind) = (event.clone(), event["type"].as_str().unwrap_or_default());
    rest.as_object_mut().map(|fields| fields.remove("type"));
    let (rest, comma) =
        (rest.to_string(), if event.as_object().is_some_and(|fields| fields.len() > 1) { "," } else { "" });
    let event = format!("event: {kind}\ndata: {{\"type\":\"{kind}\"{comma}{}\n\n", &rest[1..]);
    format!("{:x}\r\n{event}\r\n", event.len()).into_bytes()
}
