//! The first and the last lines of an agent's stderr; what is between is counted and forgotten.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use base::lock;
use protocol::StderrOutput;
use tokio::io::AsyncRead;

use crate::line::{Line, LineReader};

const HEAD_LINES: usize = 20;
const TAIL_LINES: usize = 50;
/// A line of stderr is for a person: nobody reads more of it than this.
const LINE_CAP: usize = 8 * 1024;

/// What is kept of a stderr; shared by the task that reads it and the actor that tells it.
#[derive(Debug, Clone, Default)]
pub(crate) struct Stderr(Arc<Mutex<Kept>>);

#[derive(Debug, Default)]
struct Kept {
    head: Vec<String>,
    tail: VecDeque<String>,
    total: u64,
}

impl Stderr {
    /// Reads `stream` to its end.
    pub(crate) async fn read(self, stream: impl AsyncRead + Unpin) {
        let mut reader = LineReader::new(stream, LINE_CAP);
        while let Ok(Some(line)) = reader.next().await {
            self.push(line);
        }
    }

    /// What was kept so far; `None` when nothing was written.
    pub(crate) fn output(&self) -> Option<StderrOutput> {
        let kept = lock(&self.0);
        if kept.total == 0 {
            return None;
        }
        let truncated = kept.total > (HEAD_LINES + TAIL_LINES) as u64;
        let tail: Vec<&str> = kept.tail.iter().map(String::as_str).collect();
        let (head, tail) = if truncated {
            (kept.head.join("\n"), Some(tail.join("\n")))
        } else {
            let all: Vec<&str> = kept.head.iter().map(String::as_str).chain(tail).collect();
            (all.join("\n"), None)
        };
        Some(StderrOutput { head: Some(head), tail, truncated, total_lines: Some(kept.total) })
    }

    fn push(&self, line: Line) {
        let mut kept = lock(&self.0);
        let text = String::from_utf8_lossy(&line.bytes).into_owned();
        kept.total += 1;
        if kept.head.len() < HEAD_LINES {
            kept.head.push(text);
            return;
        }
        if kept.tail.len() == TAIL_LINES {
            kept.tail.pop_front();
        }
        kept.tail.push_back(text);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn output(lines: usize) -> Option<StderrOutput> {
        let stderr = Stderr::default();
        let text: Vec<String> = (1..=lines).map(|number| format!("line {number}")).collect();
        stderr.clone().read(text.join("\n").as_bytes()).await;
        stderr.output()
    }

    #[tokio::test]
    async fn a_silent_process_has_no_stderr() {
        assert_eq!(output(0).await, None);
    }

    #[tokio::test]
    async fn a_short_stderr_is_told_whole() {
        let kept = output(70).await.unwrap();
        assert_eq!(kept.head.unwrap().lines().count(), 70);
        assert_eq!((kept.tail, kept.truncated, kept.total_lines), (None, false, Some(70)));
    }

    #[tokio::test]
    async fn a_long_stderr_keeps_both_ends() {
        let kept = output(1000).await.unwrap();
        assert!(kept.head.unwrap().ends_with("line 19\nline 20"));
        let tail = kept.tail.unwrap();
        assert!(tail.starts_with("line 951\n") && tail.ends_with("line 1000"));
        assert_eq!((kept.truncated, kept.total_lines), (true, Some(1000)));
    }
}
