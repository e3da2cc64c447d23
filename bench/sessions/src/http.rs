//! A minimal HTTP client: one call after the other on a keep-alive connection.

use std::time::{Duration, Instant};

use memchr::memmem;
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// The timeout of one call.
pub(crate) const CALL_TIMEOUT: Duration = Duration::from_secs(120);
const READ_BYTES: usize = 64 << 10;
/// A connection that was idle for longer is reopened: the server closes it after 30 seconds.
const KEPT: Duration = Duration::from_secs(15);

/// A keep-alive connection.
pub(crate) struct Connection {
    stream: TcpStream,
    address: String,
    answer: Vec<u8>,
    /// Time of the last request.
    used: Instant,
}

/// An answer of the server.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Returns the body as JSON; fails for another status than `wanted`.
    pub(crate) fn json(&self, wanted: u16) -> Result<Value, String> {
        self.expect(wanted)?;
        serde_json::from_slice(&self.body).map_err(|error| format!("the answer is not JSON: {error}"))
    }

    /// Fails for another status than `wanted`.
    pub(crate) fn expect(&self, wanted: u16) -> Result<(), String> {
        if self.status == wanted {
            return Ok(());
        }
        Err(format!("{} and not {wanted}: {}", self.status, String::from_utf8_lossy(&self.body)))
    }
}

impl Connection {
    pub(crate) async fn open(address: &str) -> Result<Self, String> {
        let stream = connect(address).await?;
        let (answer, used) = (Vec::with_capacity(READ_BYTES), Instant::now());
        Ok(Self { stream, address: address.to_owned(), answer, used })
    }

    pub(crate) async fn get(&mut self, path: &str) -> Result<Answer, String> {
        self.ask("GET", path, "").await?;
        self.read_answer().await
    }

    pub(crate) async fn post(&mut self, path: &str, body: &str) -> Result<Answer, String> {
        self.ask("POST", path, body).await?;
        self.read_answer().await
    }

    /// Sends a request; [`Self::read_answer`] reads the answer.
    pub(crate) async fn ask(&mut self, method: &str, path: &str, body: &str) -> Result<(), String> {
        let request = request(method, path, &self.address, "1.1", body);
        self.answer.clear();
        if self.used.elapsed() > KEPT {
            self.stream = connect(&self.address).await?;
        }
        self.used = Instant::now();
        self.stream.write_all(request.as_bytes()).await.map_err(|error| format!("cannot ask: {error}"))
    }

    /// Reads the answer to the last request.
    pub(crate) async fn read_answer(&mut self) -> Result<Answer, String> {
        loop {
            let read = tokio::time::timeout(CALL_TIMEOUT, self.stream.read_buf(&mut self.answer)).await;
            if read.map_err(|_| "no answer in time")?.map_err(|error| format!("cannot read: {error}"))? == 0 {
                return Err("the connection ended in mid-answer".to_owned());
            }
            let Some(head) = memmem::find(&self.answer, b"\r\n\r\n") else { continue };
            let (status, length) = read_head(&self.answer[..head])?;
            if self.answer.len() >= head + 4 + length {
                return Ok(Answer { status, body: self.answer[head + 4..].to_vec() });
            }
        }
    }
}

pub(crate) async fn connect(address: &str) -> Result<TcpStream, String> {
    let stream = TcpStream::connect(address).await.map_err(|error| format!("cannot connect: {error}"))?;
    stream.set_nodelay(true).map_err(|error| error.to_string())?;
    Ok(stream)
}

/// Returns the bytes of a request. With HTTP/1.0 the answer ends with its connection.
pub(crate) fn request(method: &str, path: &str, address: &str, version: &str, body: &str) -> String {
    let length = body.len();
    format!(
        "{method} {path} HTTP/{version}\r\nhost: {address}\r\ncontent-type: application/json\r\n\
         content-length: {length}\r\n\r\n{body}"
    )
}

fn read_head(head: &[u8]) -> Result<(u16, usize), String> {
    let text = String::from_utf8_lossy(head);
    let status = text.split(' ').nth(1).and_then(|word| word.parse().ok()).ok_or("the answer has no status")?;
    let mut headers = text.lines().filter_map(|line| line.split_once(':'));
    let length = headers.find(|(name, _)| name.eq_ignore_ascii_case("content-length"));
    Ok((status, length.and_then(|(_, value)| value.trim().parse().ok()).unwrap_or(0)))
}
