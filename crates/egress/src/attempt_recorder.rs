//! The recorder of a session's attempts: connections send records, and one task writes them into the journal.
//!
//! Allowed connections do not wait for the disk. An agent that tries denied hosts in a loop cannot fill the disk: the
//! first denial is recorded at once, and its repeats once per window. If there are too many different denials in a
//! window, the others share one record with the host `*`.

use std::{collections::HashMap, sync::Arc, time::Duration};

use protocol::{EgressConnection, EventBody, EventDraft, TurnId};
use store::Journal;
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};

use crate::totals::EgressCounters;

/// Most different denials recorded in one window.
const DISTINCT_DENIALS: usize = 256;
/// The host in the record of all further denials.
const ANY_HOST: &str = "*";

/// Sends records to the writing task. The task ends when the last recorder is dropped.
#[derive(Clone)]
pub(crate) struct AttemptRecorder {
    records: mpsc::UnboundedSender<AttemptRecord>,
    counters: Arc<EgressCounters>,
}

struct AttemptRecord {
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

impl AttemptRecorder {
    /// Returns a recorder and its writing task, which the caller must run.
    pub(crate) fn new(
        journal: Arc<dyn Journal>,
        counters: Arc<EgressCounters>,
        window: Duration,
    ) -> (Self, impl Future<Output = ()> + Send) {
        // Unbounded: denied clients wait for their record, and allowed connections are limited and slow to finish.
        let (records, received) = mpsc::unbounded_channel();
        let writer = AttemptWriter { journal, window, repeats: HashMap::new() };
        (Self { records, counters }, writer.run(received))
    }

    /// Records a denial and returns when it is written, so that the record exists before the client gets the refusal.
    pub(crate) async fn denied(&self, connection: EgressConnection, turn: Option<TurnId>) {
        self.counters.denied();
        let (written, done) = oneshot::channel();
        self.send(AttemptRecord { verdict: Verdict::Denied, connection, turn, written: Some(written) });
        // An error means that the writing task ended with its runtime.
        let _ = done.await;
    }

    /// Records a closed connection.
    pub(crate) fn allowed(&self, connection: EgressConnection, turn: Option<TurnId>) {
        self.counters.allowed(&connection);
        self.send(AttemptRecord { verdict: Verdict::Allowed, connection, turn, written: None });
    }

    fn send(&self, record: AttemptRecord) {
        if let Err(mpsc::error::SendError(record)) = self.records.send(record) {
            tracing::error!(host = record.connection.host, "cannot record an attempt: the writing task has ended");
        }
    }
}

/// The fields that are equal in repeats of a denial.
#[derive(PartialEq, Eq, Hash)]
struct DenialKey {
    host: String,
    port: u16,
    method: Option<String>,
    path: Option<String>,
    rule: String,
}

impl DenialKey {
    fn of(connection: &EgressConnection) -> Self {
        let EgressConnection { host, port, method, path, rule, .. } = connection.clone();
        Self { host, port, method, path, rule }
    }
}

/// A recorded denial and the number of its repeats since.
struct RepeatedDenial {
    since: Instant,
    count: u64,
    last: Option<(EgressConnection, Option<TurnId>)>,
}

struct AttemptWriter {
    journal: Arc<dyn Journal>,
    window: Duration,
    repeats: HashMap<DenialKey, RepeatedDenial>,
}

impl AttemptWriter {
    async fn run(mut self, mut records: mpsc::UnboundedReceiver<AttemptRecord>) {
        loop {
            let due = self.repeats.values().map(|repeats| repeats.since + self.window).min();
            tokio::select! {
                record = records.recv() => match record {
                    Some(record) => self.handle(record).await,
                    None => break,
                },
                () = sleep_until_due(due) => self.flush_due(Instant::now()).await,
            }
        }
        self.flush_due(Instant::now() + self.window).await;
    }

    async fn handle(&mut self, record: AttemptRecord) {
        match record.verdict {
            Verdict::Allowed => self.write(EventBody::EgressAllowed(record.connection), record.turn).await,
            Verdict::Denied => self.handle_denied(record.connection, record.turn).await,
        }
        if let Some(written) = record.written {
            // The client may have disconnected.
            let _ = written.send(());
        }
    }

    async fn handle_denied(&mut self, mut connection: EgressConnection, turn: Option<TurnId>) {
        if self.repeats.len() >= DISTINCT_DENIALS && !self.repeats.contains_key(&DenialKey::of(&connection)) {
            let rule = format!("more than {DISTINCT_DENIALS} different denials within the window");
            connection = EgressConnection { host: ANY_HOST.to_owned(), rule, ..EgressConnection::default() };
        }
        if let Some(repeats) = self.repeats.get_mut(&DenialKey::of(&connection)) {
            repeats.count += 1;
            repeats.last = Some((connection, turn));
        } else {
            let first = RepeatedDenial { since: Instant::now(), count: 0, last: None };
            self.repeats.insert(DenialKey::of(&connection), first);
            self.write(EventBody::EgressDenied(connection), turn).await;
        }
    }

    /// Records the repeats whose window has ended at `now`.
    async fn flush_due(&mut self, now: Instant) {
        let window = self.window;
        let over: Vec<RepeatedDenial> =
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
            Ok(Err(error)) => tracing::error!(%error, "cannot record an attempt"),
            Err(error) => tracing::error!(%error, "cannot record an attempt"),
        }
    }
}

async fn sleep_until_due(due: Option<Instant>) {
    match due {
        Some(due) => tokio::time::sleep_until(due).await,
        None => std::future::pending().await,
    }
}
