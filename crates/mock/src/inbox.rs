//! One queue for everything that the agent waits for.
//!
//! Lines of the host, parts of model responses and the ends of commands come from separate threads. An interrupt is
//! therefore handled while a model is silent or a command runs.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use agents::HostLine;

use crate::gateway::ModelEvent;
use crate::program::ProgramEnd;

/// A message in the queue.
#[derive(Debug)]
pub(crate) enum InboxMessage {
    /// A line from the host.
    Host(HostLine),
    /// An invalid line from the host.
    Unreadable(String),
    /// The host closed stdin.
    Closed,
    /// Part of the response to the model call with this number.
    Model(u64, ModelEvent),
    /// The command with this number ended.
    Program(u64, ProgramEnd),
}

/// The receiving and sending ends of the queue.
pub(crate) struct Inbox {
    pub(crate) messages: Receiver<InboxMessage>,
    pub(crate) sender: Sender<InboxMessage>,
}

impl Inbox {
    /// Starts a thread that reads `stdin` to its end.
    pub(crate) fn open(stdin: impl Read + Send + 'static) -> Self {
        let (sender, messages) = channel();
        let lines = sender.clone();
        thread::spawn(move || read_lines(BufReader::new(stdin), &lines));
        Self { messages, sender }
    }
}

fn read_lines(mut input: impl BufRead, lines: &Sender<InboxMessage>) {
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.read_until(b'\n', &mut line) {
            Ok(count) if count > 0 => {}
            _ => break,
        }
        let trimmed = line.trim_ascii();
        if trimmed.is_empty() {
            continue;
        }
        let message = match serde_json::from_slice(trimmed) {
            Ok(line) => InboxMessage::Host(line),
            Err(error) => InboxMessage::Unreadable(error.to_string()),
        };
        if lines.send(message).is_err() {
            return;
        }
    }
    // The agent may have ended; then the message is not needed.
    let _ = lines.send(InboxMessage::Closed);
}
