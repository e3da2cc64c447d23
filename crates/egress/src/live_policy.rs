//! What a session may reach now: a policy that can be exchanged while connections run.

use std::sync::Arc;

use policy::EffectivePolicy;
use tokio::sync::watch;

/// The policy of a running session; clones share it.
///
/// A connection that the new policy would not have allowed is cut when the policy is exchanged.
#[derive(Debug, Clone)]
pub struct LivePolicy(Arc<watch::Sender<Arc<EffectivePolicy>>>);

impl LivePolicy {
    /// Begins with `policy`.
    pub fn new(policy: EffectivePolicy) -> Self {
        Self(Arc::new(watch::Sender::new(Arc::new(policy))))
    }

    /// What holds now.
    pub fn current(&self) -> Arc<EffectivePolicy> {
        self.0.borrow().clone()
    }

    /// Exchanges it: for attempts to come at once, for running connections as soon as they are woken.
    pub fn replace(&self, policy: EffectivePolicy) {
        self.0.send_replace(Arc::new(policy));
    }

    /// Tells of every exchange after this call.
    pub(crate) fn changes(&self) -> watch::Receiver<Arc<EffectivePolicy>> {
        self.0.subscribe()
    }
}
