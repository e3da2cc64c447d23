//! Everything the agent waits for, in one queue.
//!
//! Lines from the host, pieces of a model's answer and the end of a command come from threads of their
//! own, so that an interrupt is heard while a model is silent or a command runs.

use std::io::{BufRead, BufReader, Read};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread;

use agents::HostLine;

use crate::gateway::ModelEvent;
use crate::program::ProgramEnd;

/// Something that came.
#[derive(Debug)]
pub(crate) enum InboxMessage {
    /// A line from the host.
    Host(HostLine),
    /// A line from the host that makes no sense.
    Unreadable(String),
    /// The host closed our input.
    Closed,
    /// Part of the answer to the model call of that number.
    Model(u64, ModelEvent),
    /// The command of that number ended.
    Program(u64, ProgramEnd),
}

/// Where messages queue up.
pub(crate) struct Inbox {
    pub(crate) messages: Receiver<InboxMessage>,
    pub(crate) sender: Sender<InboxMessage>,
}

impl Inbox {
    /// Reads `stdin` to its end in a thread.
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
        let arrival = match serde_json::from_slice(trimmed) {
            Ok(line) => InboxMessage::Host(line),
            Err(error) => InboxMessage::Unreadable(error.to_string()),
        };
        if lines.send(arrival).is_err() {
            return;
        }
    }
    // The agent may be gone already; then nobody needs to know.
    let _ = lines.send(InboxMessage::Closed);
}
