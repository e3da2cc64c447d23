//! The policy of a running session, which can be replaced while connections are open.

use std::sync::Arc;

use policy::EffectivePolicy;
use tokio::sync::watch;

/// The policy of a running session; clones share it.
///
/// Connections that a new policy does not allow are closed when the policy is replaced.
#[derive(Debug, Clone)]
pub struct LivePolicy(Arc<watch::Sender<Arc<EffectivePolicy>>>);

impl LivePolicy {
    /// Returns a live policy that starts with `policy`.
    pub fn new(policy: EffectivePolicy) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(policy))))
    }

    /// Returns the current policy.
    pub fn current(&self) -> Arc<EffectivePolicy> {
        self.0.borrow().clone()
    }

    /// Replaces the policy: at once for new attempts, and for open connections when their tasks wake.
    pub fn replace(&self, policy: EffectivePolicy) {
        self.0.send_replace(Arc::new(policy));
    }

    /// Returns a receiver of every replacement after this call.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<EffectivePolicy>> {
        self.0.subscribe()
    }
}
