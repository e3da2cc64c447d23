//! Records, in the ledger and in the call, whether the request of a call may have left the host.
//!
//! A call counts as sent from its hold on. If it has to wait for a new connection, the ledger notes the wait
//! before the connection is opened, and notes the call as sent before the first byte is written. So a call whose host dies
//! while it connects is released and not charged. A call on a pooled connection costs no extra write.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use protocol::CallId;
use store::{CallProgress, Ledger, LedgerError, LedgerReply};

/// Notes of one call about its request. The default notes nothing.
#[derive(Clone, Default)]
pub struct SendProgress {
    ledger: Option<(Arc<dyn Ledger>, CallId)>,
    connecting: Arc<AtomicBool>,
}

impl fmt::Debug for SendProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SendProgress").field("connecting", &self.is_connecting()).finish_non_exhaustive()
    }
}

impl SendProgress {
    pub(super) fn new(ledger: Arc<dyn Ledger>, call: CallId) -> Self {
        Self { ledger: Some((ledger, call)), connecting: Arc::default() }
    }

    /// Returns whether the call waits for a connection, so that nothing of it was sent.
    pub(super) fn is_connecting(&self) -> bool {
        self.connecting.load(Ordering::Acquire)
    }

    /// Notes that the call waits for a new connection. Nothing of it may have been sent before.
    pub(crate) fn connect(&self) -> ConnectingCall<'_> {
        self.connecting.store(true, Ordering::Release);
        let noted = self.ledger.as_ref().map(|(ledger, call)| ledger.advance(call.clone(), CallProgress::Connecting));
        ConnectingCall { progress: self, noted }
    }
}

/// A call that waits for a connection.
#[must_use = "the call must be marked as sent before its first byte is written"]
pub(crate) struct ConnectingCall<'p> {
    progress: &'p SendProgress,
    noted: Option<LedgerReply>,
}

impl ConnectingCall<'_> {
    /// Notes that the request is about to be written. It must not be written if this fails.
    pub(crate) async fn mark_sent(self) -> Result<(), LedgerError> {
        if let (Some((ledger, call)), Some(noted)) = (&self.progress.ledger, self.noted) {
            // In this order: the first note must not overtake the second.
            noted.await?;
            ledger.advance(call.clone(), CallProgress::Sent).await?;
        }
        self.progress.connecting.store(false, Ordering::Release);
        Ok(())
    }
}
