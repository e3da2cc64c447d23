//! Output of the agent: one JSON object per line, flushed at once.

use std::io::{self, Write};
use std::thread;
use std::time::Duration;

use agents::{AgentLine, LineItem};
use protocol::{ContentPart, ItemKind, ItemRole, ItemStatus};

/// Prints lines and numbers items.
pub(crate) struct LinePrinter<W> {
    out: W,
    delay: Duration,
    items: u64,
    /// The parent of all items while a sub-agent runs.
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

    /// Prints raw bytes, which need not be a valid line.
    pub(crate) fn print_bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.out.write_all(bytes)?;
        self.out.flush()
    }

    /// Returns the id of the next item.
    pub(crate) fn next_item_id(&self) -> String {
        format!("i{}", self.items + 1)
    }

    /// Returns the id of the last item.
    pub(crate) fn last_item_id(&self) -> String {
        format!("i{}", self.items)
    }

    /// Returns a new item without printing it.
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

    /// Prints an item that is complete from the start.
    pub(crate) fn print_item(&mut self, kind: ItemKind, role: ItemRole, content: Vec<ContentPart>) -> io::Result<()> {
        let mut item = self.new_item(kind, role);
        item.content = content;
        self.start_item(&item)?;
        self.complete_item(item, ItemStatus::Completed)
    }

    /// Prints a message of the agent, streamed in `parts`.
    pub(crate) fn print_message<'a>(&mut self, parts: impl IntoIterator<Item = &'a str>) -> io::Result<()> {
        let mut item = self.new_item(ItemKind::Message, ItemRole::Assistant);
        self.start_item(&item)?;
        let mut text = String::new();
        for part in parts {
            self.print_delta(&item, part)?;
            text.push_str(part);
        }
        item.content = vec![ContentPart::Text { text }];
        self.complete_item(item, ItemStatus::Completed)
    }

    pub(crate) fn print_error(&mut self, message: impl Into<String>, code: &str) -> io::Result<()> {
        self.print_line(&AgentLine::Error { message: message.into(), code: Some(code.to_owned()), details: None })
    }
}
