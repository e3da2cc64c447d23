//! What the agent prints: one JSON object a line, at once.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use agents::{AgentLine, LineItem};
use protocol::{ContentPart, ItemKind, ItemRole, ItemStatus};

/// Prints lines and counts items.
pub(crate) struct LinePrinter<W> {
    out: W,
    delay: Duration,
    items: u64,
    /// The item below which everything happens while a sub-agent is at work.
    pub(crate) parent: Option<String>,
}

impl<W: Write> LinePrinter<W> {
    pub(crate) fn new(out: W, delay: Duration) -> Self {
        Self { out, delay, items: 0, parent: None }
    }

    pub(crate) fn print_line(&mut self, line: &AgentLine) -> io::Result<()> {
        if !self.delay.is_zero() {
            thread::sleep(self.delay);
        }
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.print_bytes(&bytes)
    }

    /// Bytes as they are: not a line of the protocol unless they make one.
    pub(crate) fn print_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.flush()
    }

    /// The name that the next item will have.
    pub(crate) fn next_item_id(&self) -> String {
        format!("i{}", self.items + 1)
    }

    /// The name of the last item.
    pub(crate) fn last_item_id(&self) -> String {
        format!("i{}", self.items)
    }

    /// A new item, not yet printed.
    pub(crate) fn new_item(&mut self, kind: ItemKind, role: ItemRole) -> LineItem {
        let id = self.next_item_id();
        self.items += 1;
        LineItem { id, parent: self.parent.clone(), kind, role, content: Vec::new(), status: ItemStatus::InProgress }
    }

    pub(crate) fn start_item(&mut self, item: &LineItem) -> io::Result<()> {
        self.print_line(&AgentLine::ItemStarted { item: item.clone() })
    }

    pub(crate) fn print_delta(&mut self, item: &LineItem, delta: &str) -> io::Result<()> {
        self.print_line(&AgentLine::ItemDelta { id: item.id.clone(), delta: delta.to_owned() })
    }

    pub(crate) fn complete_item(&mut self, mut item: LineItem, status: ItemStatus) -> io::Result<()> {
        item.status = status;
        self.print_line(&AgentLine::ItemCompleted { item })
    }

    /// An item that is whole when it is first told of.
    pub(crate) fn print_item(&mut self, kind: ItemKind, role: ItemRole, content: Vec<ContentPart>) -> io::Result<()> {
        let mut item = self.new_item(kind, role);
        item.content = content;
        self.start_item(&item)?;
        self.complete_item(item, ItemStatus::Completed)
    }

    /// Words of the agent, streamed in `pieces`.
    pub(crate) fn print_message<'a>(&mut self, pieces: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
        let mut item = self.new_item(ItemKind::Message, ItemRole::Assistant);
        self.start_item(&item)?;
        let mut text = String::new();
        for piece in pieces {
            self.print_delta(&item, piece)?;
            text.push_str(piece);
        }
        item.content = vec![ContentPart::Text { text }];
        self.complete_item(item, ItemStatus::Completed)
    }

    pub(crate) fn print_error(&mut self, message: impl Into<String>, code: &str) -> io::Result<()> {
        self.print_line(&AgentLine::Error { message: message.into(), code: Some(code.to_owned()), details: None })
    }
}
