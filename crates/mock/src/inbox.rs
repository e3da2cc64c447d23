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
pub(crate) enum Arrival {
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

/// Where arrivals queue up.
pub(crate) struct Inbox {
    pub(crate) arrivals: Receiver<Arrival>,
    pub(crate) sender: Sender<Arrival>,
}

impl Inbox {
    /// Reads `stdin` to its end in a thread.
    pub(crate) fn open(stdin: impl Read + Send + 'static) -> Self {
        let (sender, arrivals) = channel();
        let lines = sender.clone();
        thread::spawn(move || read_lines(BufReader::new(stdin), &lines));
        Self { arrivals, sender }
    }
}

fn read_lines(mut input: impl BufRead, lines: &Sender<Arrival>) {
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
            Ok(line) => Arrival::Host(line),
            Err(error) => Arrival::Unreadable(error.to_string()),
        };
        if lines.send(arrival).is_err() {
            return;
        }
    }
    // The agent may be gone already; then nobody needs to know.
    let _ = lines.send(Arrival::Closed);
}
