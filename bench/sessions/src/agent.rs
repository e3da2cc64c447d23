//! A mock agent as a task. It uses the protocol of the mock agent.
//!
//! `/flood N` sends N deltas of one message as fast as possible, `/rate HERTZ N` sends them at a fixed rate, and any
//! other prompt is echoed once.

use std::io;
use std::time::Duration;

use agents::{AgentLine, HostLine, LineItem};
use protocol::{ContentPart, ItemKind, ItemRole, ItemStatus, TurnOutcome};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncWrite, AsyncWriteExt, BufReader};

/// Size of the read buffer; small, because thousands of agents are idle.
const READ_BYTES: usize = 256;

/// Runs the agent until its input ends.
pub(crate) async fn run(input: impl AsyncRead + Unpin, output: impl AsyncWrite + Unpin) -> io::Result<()> {
    let mut agent = Agent { output, items: 0 };
    let (session, model, mode) = ("mock".to_owned(), "mock".to_owned(), "default".to_owned());
    agent.send(&AgentLine::Ready { session, resumed: false, model, mode }).await?;
    let mut lines = BufReader::with_capacity(READ_BYTES, input).lines();
    while let Some(line) = lines.next_line().await? {
        if let Ok(HostLine::Prompt { text, .. }) = serde_json::from_str(&line) {
            // Boxed, so that thousands of idle agents need no memory for a turn.
            Box::pin(agent.turn(&text)).await?;
        }
    }
    Ok(())
}

struct Agent<W> {
    output: W,
    items: u64,
}

impl<W: AsyncWrite + Unpin> Agent<W> {
    async fn turn(&mut self, text: &str) -> io::Result<()> {
        let words: Vec<&str> = text.split(' ').collect();
        let number = |word: &str| word.parse::<u64>().unwrap_or(1);
        match *words {
            ["/flood", count] => self.message("piece ", number(count), None).await?,
            ["/rate", hertz, count] => self.message("piece ", number(count), Some(number(hertz))).await?,
            _ => self.message(text, 1, None).await?,
        }
        self.send(&AgentLine::TurnEnded { outcome: TurnOutcome::Completed }).await
    }

    async fn message(&mut self, piece: &str, count: u64, hertz: Option<u64>) -> io::Result<()> {
        self.items += 1;
        let (kind, role, status) = (ItemKind::Message, ItemRole::Assistant, ItemStatus::InProgress);
        let mut item =
            LineItem { id: format!("i{}", self.items), parent: None, kind, role, content: Vec::new(), status };
        self.send(&AgentLine::ItemStarted { item: item.clone() }).await?;
        let period = hertz.map(|hertz| Duration::from_micros(1_000_000 / hertz.max(1)));
        let mut clock = period.map(tokio::time::interval);
        for _ in 0..count {
            if let Some(clock) = &mut clock {
                clock.tick().await;
            }
            self.send(&AgentLine::ItemDelta { id: item.id.clone(), delta: piece.to_owned() }).await?;
        }
        item.content.push(ContentPart::Text { text: piece.to_owned() });
        item.status = ItemStatus::Completed;
        self.send(&AgentLine::ItemCompleted { item }).await
    }

    async fn send(&mut self, line: &AgentLine) -> io::Result<()> {
        let mut bytes = serde_json::to_vec(line)?;
        bytes.push(b'\n');
        self.output.write_all(&bytes).await
    }
}
