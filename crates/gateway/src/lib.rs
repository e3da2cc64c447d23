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
mod coding;
mod conceal;
mod endpoint;
mod headers;
mod http_client;
mod identity;
mod keep;
mod lanes;
mod meter;
mod models;
mod outcome;
mod price;
#[cfg(any(test, feature = "probe"))]
pub mod probe;
mod query;
mod reach;
mod reconcile;
mod record;
mod refusal;
mod replay;
mod scribe;
mod scripted;
mod service;
mod splice;
mod syncs;
mod tasks;
mod tee;
mod till;
mod token;
mod translate;
mod upstream;
mod vendor;

use std::{fmt, io, sync::Arc};

use store::{Ledger, UsageLimit};

use lanes::Lanes;
use till::Till;

pub use attachment::{GatewayAttachment, TokenLookup};
pub use bodies::{BodyStore, MemoryBodyStore};
pub use endpoint::{ApiDialect, ModelEndpoint};
pub use http_client::UpstreamTimeouts;
pub use identity::{AuthenticationError, CurrentTurn, GatewayIdentity, GatewayLimits};
pub use keep::{BodyRetention, RedactionRules};
pub use price::{ModelPrice, PriceSource, PriceTable, PriceTableError, TokenRates, UsageBound};
pub use reconcile::ReconcileReport;
pub use replay::{NormalizerError, ReplayError, ReplayUpstream, RequestNormalizer};
pub use scripted::{DEMO_SCRIPT, ModelScript, ModelScriptError, ScriptedUpstream};
pub use token::{SessionToken, TOKEN_PREFIX};
pub use upstream::{ResponseStream, Upstream, UpstreamFailure, UpstreamRequest, UpstreamResponse};
pub use vendor::{VendorConfig, VendorError, VendorKind, VendorUpstream, parse_certificates};

/// What the gateway of a host is made of.
#[derive(Clone)]
pub struct GatewayConfig {
    /// What models cost.
    pub prices: PriceTable,
    /// Where calls are held and charged.
    pub ledger: Arc<dyn Ledger>,
    /// What all calls must fit into, beside the budgets of whoever makes them.
    pub budgets: Vec<UsageLimit>,
}

/// The gateway of a host: serves the listeners of all its sessions.
#[derive(Clone)]
pub struct Gateway {
    till: Till,
    lanes: Arc<Lanes>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("prices", &self.till.prices.version()).finish_non_exhaustive()
    }
}

impl Gateway {
    /// A gateway that serves nobody yet.
    pub fn new(config: GatewayConfig) -> Self {
        let GatewayConfig { prices, ledger, budgets } = config;
        let lanes = Arc::new(Lanes::new(ledger.clone()));
        Self { till: Till { prices: Arc::new(prices), ledger, budgets: budgets.into() }, lanes }
    }

    /// Where calls are held and charged.
    pub fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.till.ledger
    }

    /// What models cost.
    pub fn prices(&self) -> &PriceTable {
        &self.till.prices
    }

    /// Serves `listener` for the session `identity` until the attachment is closed or dropped.
    ///
    /// The listener may live in another network namespace.
    pub fn attach(&self, listener: std::net::TcpListener, identity: GatewayIdentity) -> io::Result<GatewayAttachment> {
        let limits = identity.limits.clone();
        let identity = Arc::new(identity);
        let admit = move |token: &str| {
            if identity.token.admits(token) { Ok(identity.clone()) } else { Err(AuthenticationError::OtherSession) }
        };
        self.serve(listener, limits, Arc::new(admit))
    }

    /// Serves `listener` for everybody whom `admit` knows by a token, until the attachment is closed or dropped.
    ///
    /// `limits` are those of the listener; what an answer may take is said by each identity.
    pub fn serve(
        &self,
        listener: std::net::TcpListener,
        limits: GatewayLimits,
        admit: TokenLookup,
    ) -> io::Result<GatewayAttachment> {
        GatewayAttachment::serve(listener, limits, admit, self.till.clone(), self.lanes.clone())
    }
}
