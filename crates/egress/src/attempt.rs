//! One attempt to reach something, from the question to its record.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use policy::{Endpoint, RuleRef};
use protocol::{EgressConnection, TurnId};

use crate::{attempt_recorder::Recorder, refusal::Refusal};

/// Characters that are recorded of what a client sent, which can be as long as it likes.
const HOST_CHARS: usize = 255;
const METHOD_CHARS: usize = 32;
const PATH_CHARS: usize = 1024;

/// Bytes that went through a connection, counted while it runs.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    sent: AtomicU64,
    received: AtomicU64,
}

impl Traffic {
    /// Counts bytes that left the sandbox.
    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Counts bytes that came in.
    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Both together: it stands still while nothing happens.
    pub(crate) fn total(&self) -> u64 {
        self.sent.load(Ordering::Relaxed) + self.received.load(Ordering::Relaxed)
    }
}

/// An attempt. Once allowed, its end is recorded whatever becomes of the task that serves it.
pub(crate) struct Attempt {
    recorder: Recorder,
    turn: Option<TurnId>,
    connection: EgressConnection,
    started: Instant,
    traffic: Arc<Traffic>,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Undecided,
    Allowed,
    Recorded,
}

impl Attempt {
    /// Somebody asks for `host` and `port`, both as they were written.
    pub(crate) fn new(recorder: Recorder, turn: Option<TurnId>, (host, port): (&str, u16), method: &str) -> Self {
        let (host, method) = (first(host, HOST_CHARS), Some(first(method, METHOD_CHARS)));
        let connection = EgressConnection { host, port, method, ..EgressConnection::default() };
        let (started, traffic) = (Instant::now(), Arc::default());
        Self { recorder, turn, connection, started, traffic, state: State::Undecided }
    }

    /// Says which path was asked for. A query is left out: it is where secrets stand.
    pub(crate) fn with_path(mut self, path: &str) -> Self {
        let path = path.split('?').next().unwrap_or(path);
        self.connection.path = Some(first(path, PATH_CHARS));
        self
    }

    /// What was asked for, for messages; what is asked of the policy is the whole of it.
    pub(crate) fn to(&self) -> (&str, u16) {
        (&self.connection.host, self.connection.port)
    }

    pub(crate) fn traffic(&self) -> Arc<Traffic> {
        self.traffic.clone()
    }

    /// The policy said yes; from here on the attempt is an allowed connection.
    pub(crate) fn allow(&mut self, endpoint: &Endpoint, rule: &RuleRef) {
        self.connection.host = endpoint.host.to_string();
        self.connection.rule = rule.to_string();
        self.state = State::Allowed;
    }

    /// Says which address is called.
    pub(crate) fn dial(&mut self, address: std::net::SocketAddr) {
        self.connection.address = Some(address.to_string());
    }

    /// Says why an allowed connection failed, or was cut.
    pub(crate) fn fail(&mut self, why: impl Into<String>) {
        self.connection.error = Some(why.into());
    }

    /// Records what became of it before its client is told.
    pub(crate) async fn refuse(&mut self, refusal: &Refusal) {
        match refusal {
            Refusal::Denied { rule, .. } => {
                self.connection.rule = rule.to_string();
                self.deny().await;
            }
            Refusal::Malformed(_) | Refusal::TooLarge | Refusal::TooSlow if self.state == State::Undecided => {
                self.connection.rule = format!("{} (built-in)", refusal.what());
                self.deny().await;
            }
            Refusal::Unreachable(why) | Refusal::NoAnswer(why) => self.fail(why),
            Refusal::Malformed(_) | Refusal::TooLarge | Refusal::TooSlow => self.fail(refusal.what()),
        }
    }

    async fn deny(&mut self) {
        self.state = State::Recorded;
        self.recorder.denied(self.connection.clone(), self.turn.clone()).await;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.state != State::Allowed {
            return;
        }
        let mut connection = std::mem::take(&mut self.connection);
        connection.bytes = Some(self.traffic.total());
        connection.bytes_sent = Some(self.traffic.sent.load(Ordering::Relaxed));
        connection.duration_micros = Some(u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX));
        self.recorder.allowed(connection, self.turn.take());
    }
}

fn first(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}
