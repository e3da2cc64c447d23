//! The first and last lines of an agent's stderr. The lines between are counted and dropped.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use base::lock;
use protocol::StderrOutput;
use tokio::io::AsyncRead;

use crate::lifecycle::{LineReader, OutputLine};

const HEAD_LINES: usize = 20;
const TAIL_LINES: usize = 50;
/// The longest recorded part of one line, in bytes. Stderr is for people, who do not read longer lines.
const LINE_CAP: usize = 8 * 1024;

/// The first and last lines of a stderr, shared by the task that reads it and the actor that reports it.
#[derive(Debug, Clone, Default)]
pub(crate) struct StderrBuffer(Arc<Mutex<StderrLines>>);

#[derive(Debug, Default)]
struct StderrLines {
    head: Vec<String>,
    tail: VecDeque<String>,
    total: u64,
}

impl StderrBuffer {
    /// Reads `stream` to its end.
    pub(crate) async fn read(self, stream: impl AsyncRead + Unpin) {
        let mut reader = LineReader::new(stream, LINE_CAP);
        while let Ok(Some(line)) = reader.next().await {
            self.push(line);
        }
    }

    /// Returns the recorded lines; `None` when nothing was written.
    pub(crate) fn output(&self) -> Option<StderrOutput> {
        let lines = lock(&self.0);
        if lines.total == 0 {
            return None;
        }
        let truncated = lines.total > (HEAD_LINES + TAIL_LINES) as u64;
        let tail: Vec<&str> = lines.tail.iter().map(String::as_str).collect();
        let (head, tail) = if truncated {
            (lines.head.join("\n"), Some(tail.join("\n")))
        } else {
            let all: Vec<&str> = lines.head.iter().map(String::as_str).chain(tail).collect();
            (all.join("\n"), None)
        };
        Some(StderrOutput { head: Some(head), tail, truncated, total_lines: Some(lines.total) })
    }

    fn push(&self, line: OutputLine) {
        let mut lines = lock(&self.0);
        let text = String::from_utf8_lossy(&line.bytes).into_owned();
        lines.total += 1;
        if lines.head.len() < HEAD_LINES {
            lines.head.push(text);
            return;
        }
        if lines.tail.len() == TAIL_LINES {
            lines.tail.pop_front();
        }
        lines.tail.push_back(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn output(count: usize) -> Option<StderrOutput> {
        let stderr = StderrBuffer::default();
        let text: Vec<String> = (1..=count).map(|number| format!("line {number}")).collect();
        stderr.clone().read(text.join("\n").as_bytes()).await;
        stderr.output()
    }

    #[tokio::test]
    async fn empty_stderr_is_absent() {
        assert_eq!(output(0).await, None);
    }

    #[tokio::test]
    async fn short_stderr_is_kept_whole() {
        let lines = output(70).await.unwrap();
        assert_eq!(lines.head.unwrap().lines().count(), 70);
        assert_eq!((lines.tail, lines.truncated, lines.total_lines), (None, false, Some(70)));
    }

    #[tokio::test]
    async fn long_stderr_keeps_both_ends() {
        let lines = output(1000).await.unwrap();
        assert!(lines.head.unwrap().ends_with("line 19\nline 20"));
        let tail = lines.tail.unwrap();
        assert!(tail.starts_with("line 951\n") && tail.ends_with("line 1000"));
        assert_eq!((lines.truncated, lines.total_lines), (true, Some(1000)));
    }
}
