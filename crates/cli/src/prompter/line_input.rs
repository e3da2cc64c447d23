//! Lines that a person types on stdin.
//!
//! Reading can be cancelled, because a request may be answered elsewhere while a person thinks. Keys that were typed
//! before a prompt are dropped: they cannot be meant as its answer.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::termios::{QueueSelector, tcflush};

use super::InputEnded;
use crate::output;

/// Time between two checks whether reading was cancelled.
const CHECK: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// Bytes that were read and belong to later lines.
static READ_AHEAD: Mutex<Vec<u8>> = Mutex::new(Vec::new());

/// Drops everything that was typed on the terminal so far. The input of a pipe is kept, because a script wrote it.
pub(super) fn drop_typed_ahead() {
    if !output::stdin_is_terminal() {
        return;
    }
    base::lock(&READ_AHEAD).clear();
    // A terminal that was closed has nothing to drop.
    let _ = tcflush(std::io::stdin(), QueueSelector::IFlush);
}

/// Reads one line, trimmed. Reading stops when the future is dropped.
pub(super) async fn read_line() -> Result<String, InputEnded> {
    let cancelled = Arc::new(AtomicBool::new(false));
    let _guard = CancelOnDrop(Arc::clone(&cancelled));
    let read = tokio::task::spawn_blocking(move || read_until_cancelled(&cancelled));
    read.await.unwrap_or(Err(InputEnded))
}

/// Cancels a read when it is dropped.
struct CancelOnDrop(Arc<AtomicBool>);

impl Drop for CancelOnDrop {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Release);
    }
}

fn read_until_cancelled(cancelled: &AtomicBool) -> Result<String, InputEnded> {
    let mut bytes = [0; 4096];
    loop {
        if let Some(line) = take_line(&mut base::lock(&READ_AHEAD)) {
            return Ok(line);
        }
        if cancelled.load(Ordering::Acquire) {
            return Err(InputEnded);
        }
        let stdin = std::io::stdin();
        let mut ready = [PollFd::new(&stdin, PollFlags::IN)];
        match poll(&mut ready, Some(&CHECK)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(_) => return Err(InputEnded),
        }
        match rustix::io::read(&stdin, &mut bytes) {
            Err(rustix::io::Errno::INTR) => {}
            Ok(count) if count > 0 => base::lock(&READ_AHEAD).extend_from_slice(&bytes[..count]),
            // The end of input, or a closed terminal. A last line may have no end.
            _ => {
                let rest = std::mem::take(&mut *base::lock(&READ_AHEAD));
                return if rest.is_empty() { Err(InputEnded) } else { Ok(text(&rest)) };
            }
        }
    }
}

/// Removes the first line from `bytes`; `None` if it is not complete.
fn take_line(bytes: &mut Vec<u8>) -> Option<String> {
    let end = bytes.iter().position(|byte| *byte == b'\n')?;
    let line: Vec<u8> = bytes.drain(..=end).collect();
    Some(text(&line))
}

fn text(line: &[u8]) -> String {
    String::from_utf8_lossy(line).trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_taken_one_by_one() {
        let mut bytes = b"one \r\ntwo\nthr".to_vec();
        assert_eq!(take_line(&mut bytes).as_deref(), Some("one"));
        assert_eq!(take_line(&mut bytes).as_deref(), Some("two"));
        assert_eq!((take_line(&mut bytes), bytes.as_slice()), (None, &b"thr"[..]));
    }
}
