//! The way out of a sandbox for everything that is not a model: a proxy that connects to what the policy lists.
//!
//! It serves each session's own listener, so the listener is the identity. One rule must stay true: nothing
//! is looked up and nobody is called before the policy said yes to the very name that is then called.
//!
//! Not here: models (`gateway`), what a policy means (`policy`), or who starts a session (`session`).

mod attachment;
mod attempt;
mod client;
mod environment;
mod gate;
mod http;
mod identity;
mod internet;
mod live;
mod pump;
mod recorder;
mod refusal;
mod socks;
mod source;
mod tls;
mod totals;
mod tunnel;

use std::{io, sync::Arc};

use totals::Counters;

pub use attachment::Attachment;
pub use environment::proxy_environment;
pub use identity::{Identity, Limits, TurnSource};
pub use internet::{Internet, SystemInternet};
pub use live::LivePolicy;
pub use totals::Totals;

/// The egress proxy of a host: serves the listeners of all its sessions.
#[derive(Clone)]
pub struct Egress {
    internet: Arc<dyn Internet>,
    counters: Arc<Counters>,
}

impl Egress {
    /// A proxy that serves nobody yet and reaches the world through `internet`.
    pub fn new(internet: Arc<dyn Internet>) -> Self {
        Self { internet, counters: Arc::default() }
    }

    /// Serves `listener` for the session `identity` until the attachment is closed or dropped.
    ///
    /// Must be called within a Tokio runtime. The listener may live in another network namespace.
    pub fn attach(&self, listener: std::net::TcpListener, identity: Identity) -> io::Result<Attachment> {
        Attachment::serve(listener, identity, self.internet.clone(), self.counters.clone())
    }

    /// What it did so far, over all sessions.
    pub fn totals(&self) -> Totals {
        self.counters.read()
    }
}

impl Default for Egress {
    /// A proxy that reaches the world as this machine does.
    fn default() -> Self {
        Self::new(Arc::new(SystemInternet))
    }
}
