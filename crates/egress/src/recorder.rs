//! The one task that writes a session's attempts into its journal.
//!
//! Connections hand their records over and go on; the disk delays none of them. An agent that tries the
//! same denied host in a loop makes one record at once, and one a window for its repeats.

use std::{collections::HashMap, sync::Arc, time::Duration};

use protocol::{Connection, Draft, EventBody, TurnId};
use store::Journal;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

/// Denials that are counted at a time; beyond that each is recorded.
const COUNTED: usize = 1024;

/// Hands records to the task that writes them. When the last one is dropped, that task ends.
#[derive(Clone)]
pub(crate) struct Recorder(mpsc::UnboundedSender<Note>);

struct Note {
    verdict: Verdict,
    connection: Connection,
    turn: Option<TurnId>,
    written: Option<oneshot::Sender<()>>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Verdict {
    Allowed,
    Denied,
}

impl Recorder {
    /// A recorder, and the task that must run for it.
    pub(crate) fn new(journal: Arc<dyn Journal>, window: Duration) -> (Self, impl Future<Output = ()> + Send) {
        // Without a bound, but each connection holds at most two records, and connections are bounded.
        let (sender, notes) = mpsc::unbounded_channel();
        let scribe = Scribe { journal, window, repeats: HashMap::new() };
        (Self(sender), scribe.run(notes))
    }

    /// Records a denial; returns when it is written, so that whoever is told can find it.
    pub(crate) async fn denied(&self, connection: Connection, turn: Option<TurnId>) {
        let (written, done) = oneshot::channel();
        self.send(Note { verdict: Verdict::Denied, connection, turn, written: Some(written) });
        // An error means the task is gone, with its runtime; it has said so itself.
        let _ = done.await;
    }

    /// Records a connection that is over.
    pub(crate) fn allowed(&self, connection: Connection, turn: Option<TurnId>) {
        self.send(Note { verdict: Verdict::Allowed, connection, turn, written: None });
    }

    fn send(&self, note: Note) {
        if let Err(mpsc::error::SendError(note)) = self.0.send(note) {
            tracing::error!(host = note.connection.host, "an attempt could not be recorded");
        }
    }
}

/// What makes two denials the same.
#[derive(PartialEq, Eq, Hash)]
struct Key {
    host: String,
    port: u16,
    method: Option<String>,
    rule: String,
}

/// A denial that was recorded, and how often it came again since.
struct Repeats {
    since: Instant,
    count: u64,
    last: Option<(Connection, Option<TurnId>)>,
}

struct Scribe {
    journal: Arc<dyn Journal>,
    window: Duration,
    repeats: HashMap<Key, Repeats>,
}

impl Scribe {
    async fn run(mut self, mut notes: mpsc::UnboundedReceiver<Note>) {
        loop {
            let due = self.repeats.values().map(|repeats| repeats.since + self.window).min();
            tokio::select! {
                note = notes.recv() => match note {
                    Some(note) => self.take(note).await,
                    None => break,
                },
                () = until(due) => self.settle(Instant::now()).await,
            }
        }
        self.settle(Instant::now() + self.window).await;
    }

    async fn take(&mut self, note: Note) {
        if note.verdict == Verdict::Allowed {
            self.write(EventBody::EgressAllowed(note.connection), note.turn).await;
        } else if let Some(repeats) = self.repeats.get_mut(&key(&note.connection)) {
            repeats.count += 1;
            repeats.last = Some((note.connection, note.turn));
        } else {
            if self.repeats.len() < COUNTED {
                let first = Repeats { since: Instant::now(), count: 0, last: None };
                self.repeats.insert(key(&note.connection), first);
            }
            self.write(EventBody::EgressDenied(note.connection), note.turn).await;
        }
        if let Some(written) = note.written {
            // The client may have left; the record was for us.
            let _ = written.send(());
        }
    }

    /// Records the repeats whose window is over at `now`.
    async fn settle(&mut self, now: Instant) {
        let window = self.window;
        let over: Vec<Repeats> =
            self.repeats.extract_if(|_, repeats| repeats.since + window <= now).map(|(_, repeats)| repeats).collect();
        for repeats in over {
            if let Some((mut connection, turn)) = repeats.last {
                connection.count = Some(repeats.count);
                self.write(EventBody::EgressDenied(connection), turn).await;
            }
        }
    }

    async fn write(&self, body: EventBody, turn: Option<TurnId>) {
        let journal = self.journal.clone();
        let append = move || journal.append(Draft::daemon(body).in_turn(turn));
        match tokio::task::spawn_blocking(append).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "an attempt could not be recorded"),
            Err(error) => tracing::error!(%error, "an attempt could not be recorded"),
        }
    }
}

fn key(connection: &Connection) -> Key {
    let Connection { host, port, method, rule, .. } = connection.clone();
    Key { host, port, method, rule }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
