//! One attempt of a sandbox to reach a host, from the request to its record.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use base::{ByteBudget, ByteReservation};
use policy::{Endpoint, RuleRef};
use protocol::{EgressConnection, TurnId};

use crate::{attempt_recorder::AttemptRecorder, refusal::Refusal};

/// Longest recorded texts, in characters. Clients can send texts of any length.
const HOST_CHARS: usize = 255;
const METHOD_CHARS: usize = 32;
const PATH_CHARS: usize = 1024;

/// Byte counts of a running connection.
#[derive(Debug, Default)]
pub(crate) struct ConnectionBytes {
    sent: AtomicU64,
    received: AtomicU64,
    /// The bytes in memory that its buffers may take; `None` leaves them small.
    in_flight: Option<ByteBudget>,
}

impl ConnectionBytes {
    /// Returns a reservation for a buffer that grows; `None` leaves the buffer small.
    pub(crate) fn buffer_reservation(&self) -> Option<ByteReservation> {
        self.in_flight.as_ref().map(ByteBudget::reservation)
    }

    /// Adds bytes sent by the sandbox.
    pub(crate) fn add_sent(&self, bytes: usize) {
        self.sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Adds bytes received by the sandbox.
    pub(crate) fn add_received(&self, bytes: usize) {
        self.received.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// Returns the sum of both directions. It does not change while the connection is idle.
    pub(crate) fn total(&self) -> u64 {
        self.sent.load(Ordering::Relaxed) + self.received.load(Ordering::Relaxed)
    }
}

/// One attempt. After [`Attempt::allow`] its end is always recorded: dropping it writes the record.
pub(crate) struct Attempt {
    recorder: AttemptRecorder,
    turn: Option<TurnId>,
    connection: EgressConnection,
    started: Instant,
    traffic: Arc<ConnectionBytes>,
    state: AttemptState,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum AttemptState {
    Undecided,
    Allowed,
    Recorded,
}

impl Attempt {
    /// Returns an undecided attempt to reach `host` and `port`, as the client wrote them.
    pub(crate) fn new(
        recorder: AttemptRecorder,
        turn: Option<TurnId>,
        (host, port): (&str, u16),
        method: &str,
    ) -> Self {
        let (host, method) = (truncate(host, HOST_CHARS), Some(truncate(method, METHOD_CHARS)));
        let connection = EgressConnection { host, port, method, ..EgressConnection::default() };
        let (started, traffic) = (Instant::now(), Arc::default());
        Self { recorder, turn, connection, started, traffic, state: AttemptState::Undecided }
    }

    /// Sets the requested path without its query, because queries can contain secrets.
    pub(crate) fn with_path(mut self, path: &str) -> Self {
        let path = path.split('?').next().unwrap_or(path);
        self.connection.path = Some(truncate(path, PATH_CHARS));
        self
    }

    /// Returns the destination for messages. The host can be truncated, so the policy does not use it.
    pub(crate) fn destination(&self) -> (&str, u16) {
        (&self.connection.host, self.connection.port)
    }

    pub(crate) fn traffic(&self) -> Arc<ConnectionBytes> {
        self.traffic.clone()
    }

    /// Lets the buffers of the connection grow within `in_flight`. Called before the connection has traffic.
    pub(crate) fn within(mut self, in_flight: &ByteBudget) -> Self {
        self.traffic = Arc::new(ConnectionBytes { in_flight: Some(in_flight.clone()), ..ConnectionBytes::default() });
        self
    }

    /// Marks the attempt as an allowed connection.
    pub(crate) fn allow(&mut self, endpoint: &Endpoint, rule: &RuleRef) {
        self.connection.host = endpoint.host.to_string();
        self.connection.rule = rule.to_string();
        self.state = AttemptState::Allowed;
    }

    /// Sets the address that the proxy connected to.
    pub(crate) fn set_address(&mut self, address: std::net::SocketAddr) {
        self.connection.address = Some(address.to_string());
    }

    /// Sets the reason why an allowed connection failed or was closed early.
    pub(crate) fn fail(&mut self, reason: impl Into<String>) {
        self.connection.error = Some(reason.into());
    }

    /// Records the refusal. Call it before the client gets the refusal.
    pub(crate) async fn refuse(&mut self, refusal: &Refusal) {
        match refusal {
            Refusal::Denied { rule, .. } => {
                self.connection.rule = rule.to_string();
                self.deny().await;
            }
            Refusal::Malformed(_) | Refusal::TooLarge | Refusal::TooSlow if self.state == AttemptState::Undecided => {
                self.connection.rule = format!("{} (built-in)", refusal.reason());
                self.deny().await;
            }
            Refusal::Unreachable(reason) | Refusal::NoAnswer(reason) => self.fail(reason),
            Refusal::Malformed(_) | Refusal::TooLarge | Refusal::TooSlow => self.fail(refusal.reason()),
        }
    }

    async fn deny(&mut self) {
        self.state = AttemptState::Recorded;
        self.recorder.denied(self.connection.clone(), self.turn.clone()).await;
    }
}

impl Drop for Attempt {
    fn drop(&mut self) {
        if self.state != AttemptState::Allowed {
            return;
        }
        let mut connection = std::mem::take(&mut self.connection);
        connection.bytes = Some(self.traffic.total());
        connection.bytes_sent = Some(self.traffic.sent.load(Ordering::Relaxed));
        connection.duration_micros = Some(u64::try_from(self.started.elapsed().as_micros()).unwrap_or(u64::MAX));
        self.recorder.allowed(connection, self.turn.take());
    }
}

fn truncate(text: &str, characters: usize) -> String {
    text.chars().take(characters).collect()
}
