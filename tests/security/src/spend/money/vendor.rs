//! A model vendor that counts what its answers cost, by its own tariff.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use testkit::stub_vendor::{Connection, ReceivedRequest, StubVendor, http_response};
use tokio::io::AsyncWriteExt;
use tokio::sync::watch;

/// Pico-dollars for a token of the model `cheap`.
pub(super) const CHEAP: u64 = 1_000_000;
/// The most tokens of an answer.
pub(super) const LONGEST: u64 = 40_000;
/// Tokens of an answer without a limit.
const UNLIMITED: u64 = 4_000;
/// Letters of one part of a stream. The tariff counts each letter as a token.
const PART: usize = 200;

/// A running vendor.
pub(super) struct Vendor {
    pub(super) stub: StubVendor,
    books: Arc<Mutex<Books>>,
    /// The parts of streams that the attacker has read.
    pub(super) read: watch::Sender<u64>,
}

#[derive(Default)]
struct Books {
    picos: u64,
    smuggled: bool,
}

impl Vendor {
    pub(super) async fn start() -> Self {
        let books = Arc::<Mutex<Books>>::default();
        let read = watch::Sender::new(0);
        let state = (books.clone(), read.clone(), Arc::new(AtomicU64::new(0)));
        let stub = StubVendor::with_handler(move |request, connection| {
            let (books, read, calls) = state.clone();
            async move {
                let number = calls.fetch_add(1, Ordering::Relaxed) + 1;
                serve(&request, connection, &books, read.subscribe(), number).await
            }
        })
        .await;
        Self { stub, books, read }
    }

    /// Returns the cost of all answers.
    pub(super) fn bill(&self) -> u64 {
        self.books.lock().expect("books").picos
    }

    /// Returns whether a header arrived that chooses another server.
    pub(super) fn smuggled(&self) -> bool {
        self.books.lock().expect("books").smuggled
    }
}

async fn serve(
    request: &ReceivedRequest,
    mut connection: Box<dyn Connection>,
    books: &Mutex<Books>,
    read: watch::Receiver<u64>,
    number: u64,
) -> Option<Box<dyn Connection>> {
    let head = request.head.to_ascii_lowercase();
    let body: Value = serde_json::from_slice(&request.body).ok()?;
    books.lock().expect("books").smuggled |= head.contains("x-portkey-") || head.contains("\r\nforwarded:");
    if body["slowly"] == true {
        return stream_slowly(&body, connection, books, read, number).await;
    }
    let (model, tokens, picos) = cost(&body);
    books.lock().expect("books").picos += picos;
    let usage = json!({"prompt_tokens": 1, "completion_tokens": tokens});
    let answer = if body["stream"] == true {
        let chunk =
            json!({"model": model, "choices": [{"delta": {"content": "x"}, "finish_reason": "stop"}], "usage": usage});
        let events = format!("data: {chunk}\n\ndata: [DONE]\n\n");
        http_response("200 OK", "text/event-stream", &events)
    } else {
        let choices = json!([{"message": {"content": "x"}, "finish_reason": "stop"}]);
        let document = json!({"object": "chat.completion", "model": model, "choices": choices, "usage": usage});
        http_response("200 OK", "application/json", &document.to_string())
    };
    connection.write_all(answer.as_bytes()).await.ok()?;
    Some(connection)
}

/// Returns the model that answers, its tokens and their cost.
fn cost(body: &Value) -> (String, u64, u64) {
    let other = body["models"].get(0).or_else(|| body["fallbacks"].get(0)).and_then(Value::as_str);
    let model = other.or(body["model"].as_str()).unwrap_or_default().to_owned();
    let limit = body["max_tokens"].as_i64().and_then(|limit| u64::try_from(limit).ok());
    let answers = body["n"].as_u64().unwrap_or(1);
    let tokens = limit.unwrap_or(UNLIMITED) * answers;
    let rate = if model == "dear" { CHEAP * 100 } else { CHEAP };
    let rate = if body["service_tier"] == "priority" { rate * 5 } else { rate };
    let fee = if body["tools"].is_array() { CHEAP * 500 } else { 0 };
    (model, tokens, tokens * rate + fee)
}

/// Writes a stream in parts: each one when the attacker has read the part before.
async fn stream_slowly(
    body: &Value,
    mut connection: Box<dyn Connection>,
    books: &Mutex<Books>,
    mut read: watch::Receiver<u64>,
    number: u64,
) -> Option<Box<dyn Connection>> {
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    connection.write_all(head.as_bytes()).await.ok()?;
    let rate = if body["model"] == "thin" { CHEAP / 10 } else { CHEAP };
    let tokens = body["max_tokens"].as_u64().unwrap_or(LONGEST);
    let chunk = |data: &str| format!("{:x}\r\ndata: {data}\n\n\r\n", data.len() + 8);
    for part in 0..tokens / PART as u64 {
        read.wait_for(|read| *read >= (number - 1) * 1_000 + part).await.ok()?;
        let delta = json!({"model": body["model"], "choices": [{"delta": {"content": "x".repeat(PART)}}]});
        connection.write_all(chunk(&delta.to_string()).as_bytes()).await.ok()?;
        books.lock().expect("books").picos += PART as u64 * rate;
    }
    let usage = json!({"prompt_tokens": 1, "completion_tokens": tokens});
    let end = json!({"model": body["model"], "choices": [{"delta": {}, "finish_reason": "stop"}], "usage": usage});
    let end = format!("{}{}0\r\n\r\n", chunk(&end.to_string()), chunk("[DONE]"));
    connection.write_all(end.as_bytes()).await.ok()?;
    Some(connection)
}
