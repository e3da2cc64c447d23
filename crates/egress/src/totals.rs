//! Totals of the proxy since it started, for the metrics.

use std::sync::atomic::{AtomicU64, Ordering};

use protocol::EgressConnection;

/// Totals of the proxy over all sessions since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct EgressTotals {
    /// Denied attempts, repeats included.
    pub denied: u64,
    /// Allowed connections that have ended.
    pub allowed: u64,
    /// Allowed connections that failed or were closed by the proxy.
    pub failed: u64,
    /// Bytes sent by sandboxes.
    pub bytes_sent: u64,
    /// Bytes received by sandboxes.
    pub bytes_received: u64,
}

/// The counters behind [`EgressTotals`].
#[derive(Debug, Default)]
pub(crate) struct EgressCounters {
    denied: AtomicU64,
    allowed: AtomicU64,
    failed: AtomicU64,
    sent: AtomicU64,
    received: AtomicU64,
}

impl EgressCounters {
    pub(crate) fn denied(&self) {
        self.denied.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn allowed(&self, connection: &EgressConnection) {
        let sent = connection.bytes_sent.unwrap_or(0);
        self.allowed.fetch_add(1, Ordering::Relaxed);
        self.failed.fetch_add(u64::from(connection.error.is_some()), Ordering::Relaxed);
        self.sent.fetch_add(sent, Ordering::Relaxed);
        self.received.fetch_add(connection.bytes.unwrap_or(0).saturating_sub(sent), Ordering::Relaxed);
    }

    pub(crate) fn read(&self) -> EgressTotals {
        EgressTotals {
            denied: self.denied.load(Ordering::Relaxed),
            allowed: self.allowed.load(Ordering::Relaxed),
            failed: self.failed.load(Ordering::Relaxed),
            bytes_sent: self.sent.load(Ordering::Relaxed),
            bytes_received: self.received.load(Ordering::Relaxed),
        }
    }
}
