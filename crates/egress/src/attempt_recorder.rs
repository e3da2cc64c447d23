//! The one task that writes a session's attempts into its journal.
//!
//! Connections hand their records over and go on; the disk delays none of them. An agent that tries denied
//! hosts in a loop cannot fill the disk: the first denial is recorded at once, its repeats once a window, and
//! when it tries ever new hosts, those beyond a number are recorded together, under the host `*`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use protocol::{EgressConnection, EventBody, EventDraft, TurnId};
use store::Journal;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::totals::Counters;

/// Different denials that are recorded in one window.
const DIFFERENT: usize = 256;
/// What stands for all other hosts.
const OTHERS: &str = "*";

/// Hands records to the task that writes them. When the last one is dropped, that task ends.
#[derive(Clone)]
pub(crate) struct Recorder {
    notes: mpsc::UnboundedSender<Note>,
    counters: Arc<Counters>,
}

struct Note {
    verdict: Verdict,
    connection: EgressConnection,
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
    pub(crate) fn new(
        journal: Arc<dyn Journal>,
        counters: Arc<Counters>,
        window: Duration,
    ) -> (Self, impl Future<Output = ()> + Send) {
        // Without a bound: whoever is denied waits for its record, and whoever is served does so for a while.
        let (notes, taken) = mpsc::unbounded_channel();
        let scribe = Scribe { journal, window, repeats: HashMap::new() };
        (Self { notes, counters }, scribe.run(taken))
    }

    /// Records a denial; returns when it is written, so that whoever is told can find it.
    pub(crate) async fn denied(&self, connection: EgressConnection, turn: Option<TurnId>) {
        self.counters.denied();
        let (written, done) = oneshot::channel();
        self.send(Note { verdict: Verdict::Denied, connection, turn, written: Some(written) });
        // An error means the task is gone, with its runtime; it has said so itself.
        let _ = done.await;
    }

    /// Records a connection that is over.
    pub(crate) fn allowed(&self, connection: EgressConnection, turn: Option<TurnId>) {
        self.counters.allowed(&connection);
        self.send(Note { verdict: Verdict::Allowed, connection, turn, written: None });
    }

    fn send(&self, note: Note) {
        if let Err(mpsc::error::SendError(note)) = self.notes.send(note) {
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
    path: Option<String>,
    rule: String,
}

impl Key {
    fn of(connection: &EgressConnection) -> Self {
        let EgressConnection { host, port, method, path, rule, .. } = connection.clone();
        Self { host, port, method, path, rule }
    }
}

/// A denial that was recorded, and how often it came again since.
struct Repeats {
    since: Instant,
    count: u64,
    last: Option<(EgressConnection, Option<TurnId>)>,
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
        match note.verdict {
            Verdict::Allowed => self.write(EventBody::EgressAllowed(note.connection), note.turn).await,
            Verdict::Denied => self.take_denied(note.connection, note.turn).await,
        }
        if let Some(written) = note.written {
            // The client may have left; the record was for us.
            let _ = written.send(());
        }
    }

    async fn take_denied(&mut self, mut connection: EgressConnection, turn: Option<TurnId>) {
        if self.repeats.len() >= DIFFERENT && !self.repeats.contains_key(&Key::of(&connection)) {
            let rule = format!("more than {DIFFERENT} different denials in a short time");
            connection = EgressConnection { host: OTHERS.to_owned(), rule, ..EgressConnection::default() };
        }
        if let Some(repeats) = self.repeats.get_mut(&Key::of(&connection)) {
            repeats.count += 1;
            repeats.last = Some((connection, turn));
        } else {
            let first = Repeats { since: Instant::now(), count: 0, last: None };
            self.repeats.insert(Key::of(&connection), first);
            self.write(EventBody::EgressDenied(connection), turn).await;
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
        let append = move || journal.append(EventDraft::daemon(body).in_turn(turn));
        match tokio::task::spawn_blocking(append).await {
            Ok(Ok(_)) => {}
            Ok(Err(error)) => tracing::error!(%error, "an attempt could not be recorded"),
            Err(error) => tracing::error!(%error, "an attempt could not be recorded"),
        }
    }
}

async fn until(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
