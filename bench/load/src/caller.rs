//! One connection that sends calls in a loop.

use std::time::{Duration, Instant};

use memchr::memmem;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::plan::Target;
use crate::serial::Serial;
use crate::vendor::{ENDLESS, MODEL};

/// The timeout of one read.
const READ_TIMEOUT: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 << 10;

/// The shape of a request.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Shape {
    stream: bool,
    /// Size of the prompt in bytes.
    prompt_bytes: usize,
    #[serde(skip)]
    endless: bool,
}

impl Shape {
    /// Returns a request for a stream that is larger than all socket buffers.
    pub(crate) fn endless() -> Self {
        Self { stream: true, prompt_bytes: 0, endless: true }
    }

    fn request(self, target: &Target) -> Vec<u8> {
        let Self { stream, prompt_bytes, endless } = self;
        let prompt = if endless { ENDLESS.to_owned() } else { "word ".repeat(prompt_bytes.div_ceil(5)) };
        let prompt = format!("{prompt}{}", Serial::PLACEHOLDER);
        let body = format!(
            r#"{{"model":"{MODEL}","max_tokens":100,"stream":{stream},"messages":[{{"role":"user","content":"{prompt}"}}]}}"#
        );
        let Target { address, token, .. } = target;
        let head = format!(
            "POST /v1/messages HTTP/1.1\r\nhost: {address}\r\nx-api-key: {token}\r\nanthropic-version: 2023-06-01\r\n\
             content-type: application/json\r\nuser-agent: load\r\naccept: */*\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        [head.into_bytes(), body.into_bytes()].concat()
    }
}

/// The times of one call.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) first: Duration,
    pub(crate) whole: Duration,
}

/// A connection to a target with its request.
pub(crate) struct Caller {
    stream: TcpStream,
    request: Vec<u8>,
    serial: Serial,
    answer: Vec<u8>,
}

impl Caller {
    pub(crate) async fn connect(target: &Target, shape: &Shape) -> Result<Self, String> {
        let stream = TcpStream::connect(&target.address).await.map_err(|error| format!("cannot connect: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let request = shape.request(target);
        let serial = Serial::find(&request).ok_or("the request has no serial number")?;
        Ok(Self { stream, request, serial, answer: Vec::with_capacity(READ_BYTES) })
    }

    /// Sends calls until `deadline`, at most `most`.
    pub(crate) async fn call_until(mut self, deadline: Instant, most: usize) -> Result<Vec<Call>, String> {
        let mut calls = Vec::new();
        while calls.len() < most && Instant::now() < deadline {
            calls.push(self.call().await?);
        }
        Ok(calls)
    }

    /// Sends the request, and reads the whole answer.
    pub(crate) async fn call(&mut self) -> Result<Call, String> {
        let started = Instant::now();
        self.send_request().await?;
        let head = self.read_head().await?;
        let first = started.elapsed();
        loop {
            if self.is_whole(head)? {
                return Ok(Call { first, whole: started.elapsed() });
            }
            self.read().await?;
        }
    }

    /// Sends the request, and reads only the beginning of the answer.
    pub(crate) async fn begin(&mut self) -> Result<(), String> {
        self.send_request().await?;
        self.read_head().await.map(drop)
    }

    async fn send_request(&mut self) -> Result<(), String> {
        self.answer.clear();
        self.serial.write(&mut self.request);
        self.stream.write_all(&self.request).await.map_err(|error| format!("cannot send: {error}"))
    }

    /// Reads the head and the first byte of the body; returns the offset of the body.
    async fn read_head(&mut self) -> Result<usize, String> {
        loop {
            self.read().await?;
            let Some(end) = memmem::find(&self.answer, b"\r\n\r\n") else { continue };
            if !self.answer.starts_with(b"HTTP/1.1 200") {
                return Err(format!("the answer is {}", String::from_utf8_lossy(&self.answer)));
            }
            if self.answer.len() > end + 4 {
                return Ok(end + 4);
            }
        }
    }

    async fn read(&mut self) -> Result<(), String> {
        self.answer.reserve(READ_BYTES);
        let read = tokio::time::timeout(READ_TIMEOUT, self.stream.read_buf(&mut self.answer)).await;
        match read.map_err(|_| "no data for a minute")? {
            Ok(0) => Err("the connection closed before the end of the answer".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("cannot read: {error}")),
        }
    }

    /// Returns whether the whole answer has arrived; fails for a truncated stream.
    fn is_whole(&self, head: usize) -> Result<bool, String> {
        let (head, body) = self.answer.split_at(head);
        if let Some(length) = content_length(head) {
            return Ok(body.len() >= length);
        }
        if !body.ends_with(b"0\r\n\r\n") {
            return Ok(false);
        }
        let complete = memmem::rfind(body, b"stop_reason").is_some();
        if complete { Ok(true) } else { Err("the answer is truncated".to_owned()) }
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    let lines = head.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
    })
}
