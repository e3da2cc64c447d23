//! The model gateway: the only way from a sandbox to a model.
//!
//! It serves each session's own listener, so the listener is the identity; the session's token is checked
//! as well. A call is held, recorded, sent, handed on frame by frame, metered and settled. The agent never
//! sees a key of ours, and nothing of ours ever sees a body changed.
//!
//! Not here: what a session may reach beside models (`egress`), or when a turn starts and ends (`session`).

mod ask;
mod attachment;
mod bodies;
mod call;
mod conceal;
mod endpoint;
mod headers;
mod identity;
mod meter;
mod price;
mod record;
mod refusal;
mod scripted;
mod secret;
mod service;
mod splice;
mod tasks;
mod tee;
mod till;
mod token;
mod translate;
mod upstream;
mod vendor;
mod wire;

use std::{io, sync::Arc};

pub use attachment::Attachment;
pub use bodies::{BodyStore, MemoryBodies};
pub use endpoint::{Dialect, Endpoint};
pub use identity::{CurrentTurn, Identity, Limits};
pub use price::{Price, PriceTableError, Prices, Rates};
pub use scripted::{DEMO_SCRIPT, Script, ScriptError, Scripted};
pub use secret::Secret;
pub use token::{SessionToken, TOKEN_PREFIX};
pub use upstream::{Frames, Upstream, UpstreamAnswer, UpstreamFailure, UpstreamRequest};
pub use vendor::{Vendor, VendorConfig, VendorError, VendorKind};
pub use wire::Timeouts;

/// What the gateway of a host is made of.
#[derive(Debug, Clone, Default)]
pub struct GatewayConfig {
    /// What models cost.
    pub prices: Prices,
}

/// The gateway of a host: serves the listeners of all its sessions.
#[derive(Debug, Clone)]
pub struct Gateway {
    prices: Arc<Prices>,
}

impl Gateway {
    /// A gateway that serves nobody yet.
    pub fn new(config: GatewayConfig) -> Self {
        Self { prices: Arc::new(config.prices) }
    }

    /// Serves `listener` for the session `identity` until the attachment is closed or dropped.
    ///
    /// Must be called within a Tokio runtime. The listener may live in another network namespace.
    pub fn attach(&self, listener: std::net::TcpListener, identity: Identity) -> io::Result<Attachment> {
        Attachment::serve(listener, identity, self.prices.clone())
    }
}
