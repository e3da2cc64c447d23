//! One connection that calls and calls.

use std::time::{Duration, Instant};

use memchr::memmem;
use serde::Deserialize;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::plan::Target;
use crate::serial::Serial;
use crate::vendor::{ENDLESS, MODEL};

/// Nothing that is measured takes longer.
const PATIENCE: Duration = Duration::from_secs(60);
const READ_BYTES: usize = 64 << 10;

/// What is asked for.
#[derive(Debug, Clone, Copy, Deserialize)]
pub(crate) struct Shape {
    stream: bool,
    /// Bytes of the prompt.
    prompt_bytes: usize,
    #[serde(skip)]
    endless: bool,
}

impl Shape {
    /// A stream that is larger than what connections hold.
    pub(crate) fn endless() -> Self {
        Self { stream: true, prompt_bytes: 0, endless: true }
    }

    fn request(self, target: &Target) -> Vec<u8> {
        let Self { stream, prompt_bytes, endless } = self;
        let prompt = if endless { ENDLESS.to_owned() } else { "word ".repeat(prompt_bytes.div_ceil(5)) };
        let prompt = format!("{prompt}{}", Serial::PLACE);
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

/// How long one call took.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Call {
    pub(crate) first: Duration,
    pub(crate) whole: Duration,
}

/// A connection to a target, and what it asks.
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
        let serial = Serial::find(&request).ok_or("the request has no place for its number")?;
        Ok(Self { stream, request, serial, answer: Vec::with_capacity(READ_BYTES) })
    }

    /// Calls until `deadline`, at most `most` times.
    pub(crate) async fn call_until(mut self, deadline: Instant, most: usize) -> Result<Vec<Call>, String> {
        let mut calls = Vec::new();
        while calls.len() < most && Instant::now() < deadline {
            calls.push(self.call().await?);
        }
        Ok(calls)
    }

    /// Asks, and reads the answer to its end.
    pub(crate) async fn call(&mut self) -> Result<Call, String> {
        let started = Instant::now();
        self.ask().await?;
        let head = self.read_head().await?;
        let first = started.elapsed();
        loop {
            if self.is_whole(head)? {
                return Ok(Call { first, whole: started.elapsed() });
            }
            self.read().await?;
        }
    }

    /// Asks, and reads only the beginning of the answer.
    pub(crate) async fn begin(&mut self) -> Result<(), String> {
        self.ask().await?;
        self.read_head().await.map(drop)
    }

    async fn ask(&mut self) -> Result<(), String> {
        self.answer.clear();
        self.serial.write(&mut self.request);
        self.stream.write_all(&self.request).await.map_err(|error| format!("cannot ask: {error}"))
    }

    /// Where the body begins, once its first byte is here.
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
        let read = tokio::time::timeout(PATIENCE, self.stream.read_buf(&mut self.answer)).await;
        match read.map_err(|_| "nothing came for a minute")? {
            Ok(0) => Err("the connection ended in mid-answer".to_owned()),
            Ok(_) => Ok(()),
            Err(error) => Err(format!("cannot read: {error}")),
        }
    }

    /// Whether all of the answer is here; a stream that was cut is an error.
    fn is_whole(&self, head: usize) -> Result<bool, String> {
        let (head, body) = self.answer.split_at(head);
        if let Some(length) = content_length(head) {
            return Ok(body.len() >= length);
        }
        if !body.ends_with(b"0\r\n\r\n") {
            return Ok(false);
        }
        let told = memmem::rfind(body, b"stop_reason").is_some();
        if told { Ok(true) } else { Err("the answer has no end".to_owned()) }
    }
}

fn content_length(head: &[u8]) -> Option<usize> {
    let lines = head.split(|byte| *byte == b'\n').filter_map(|line| std::str::from_utf8(line).ok());
    lines.filter_map(|line| line.split_once(':')).find_map(|(name, value)| {
        name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok()).flatten()
    })
}
