//! The model gateway: the only way from a sandbox to a model.
//!
//! The gateway serves one listener for each session and checks the session's token as well. Each call is held,
//! recorded, sent, forwarded frame by frame, metered and settled. The agent never sees a vendor key, and bodies are
//! forwarded unchanged.
//!
//! Not here: other network traffic of a session (`egress`), or the start and end of turns (`session`).

mod attachment;
mod body_store;
mod call;
mod coding;
mod endpoint;
mod external_inputs;
mod headers;
mod http_client;
mod identity;
mod meter;
mod models;
mod price;
#[cfg(any(test, feature = "probe"))]
pub mod probe;
mod query;
mod reconcile;
mod refusal;
mod replay;
mod request_body;
mod request_fields;
mod response_budget;
mod retention;
mod scripted;
mod service;
mod splice;
mod token;
mod translate;
mod upstream;
mod usage_filter;
mod vendor;
mod workers;

use std::{fmt, io, sync::Arc};

use store::{Ledger, UsageLimit};

use call::Billing;
use workers::WorkerPool;

pub use attachment::{GatewayAttachment, TokenLookup};
pub use body_store::{BodyStore, MemoryBodyStore};
pub use call::SendProgress;
pub use endpoint::{ApiDialect, ModelEndpoint};
pub use http_client::UpstreamTimeouts;
pub use identity::{AuthenticationError, GatewayIdentity, GatewayLimits, NoTurn, TurnGuard, TurnTracker};
pub use price::{HiddenReasoning, ModelPrice, PriceSource, PriceTable, PriceTableError, TokenRates, UsageBound};
pub use reconcile::ReconcileReport;
pub use replay::{NormalizerError, ReplayError, ReplayUpstream, RequestNormalizer};
pub use retention::{BodyRetention, RedactionRules};
pub use scripted::{DEMO_SCRIPT, ModelScript, ModelScriptError, ScriptedUpstream};
pub use token::{SessionToken, TOKEN_PREFIX};
pub use upstream::{ResponseStream, Upstream, UpstreamFailure, UpstreamRequest, UpstreamResponse};
pub use vendor::{VendorConfig, VendorError, VendorKind, VendorUpstream, parse_certificates};

/// The configuration of a host's gateway.
#[derive(Clone)]
pub struct GatewayConfig {
    /// The prices of models.
    pub prices: PriceTable,
    /// The ledger that holds and charges calls.
    pub ledger: Arc<dyn Ledger>,
    /// The budgets of the host. Every call must fit into them and into those of its identity.
    pub budgets: Vec<UsageLimit>,
}

/// The gateway of a host: serves the listeners of all its sessions.
#[derive(Clone)]
pub struct Gateway {
    billing: Billing,
    workers: Arc<WorkerPool>,
}

impl fmt::Debug for Gateway {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gateway").field("prices", &self.billing.prices.version()).finish_non_exhaustive()
    }
}

impl Gateway {
    /// Makes a gateway without listeners.
    pub fn new(config: GatewayConfig) -> Self {
        let GatewayConfig { prices, ledger, budgets } = config;
        let workers = Arc::new(WorkerPool::new(ledger.clone()));
        Self {
            billing: Billing { prices: Arc::new(prices), ledger, budgets: budgets.into(), queue: Arc::default() },
            workers,
        }
    }

    /// Returns the ledger that holds and charges calls.
    pub fn ledger(&self) -> &Arc<dyn Ledger> {
        &self.billing.ledger
    }

    /// Returns the prices of models.
    pub fn prices(&self) -> &PriceTable {
        &self.billing.prices
    }

    /// Serves `listener` for the session `identity` until the attachment is closed or dropped.
    ///
    /// The listener may belong to another network namespace.
    pub fn attach(&self, listener: std::net::TcpListener, identity: GatewayIdentity) -> io::Result<GatewayAttachment> {
        let limits = identity.limits.clone();
        let identity = Arc::new(identity);
        let lookup = move |token: &str| {
            if identity.token.matches(token) { Ok(identity.clone()) } else { Err(AuthenticationError::OtherSession) }
        };
        self.serve(listener, limits, Arc::new(lookup))
    }

    /// Serves `listener` for every client that `lookup` finds by its token, until the attachment is closed or dropped.
    ///
    /// `limits` apply to the listener and its requests. The limits on responses come from each identity.
    pub fn serve(
        &self,
        listener: std::net::TcpListener,
        limits: GatewayLimits,
        lookup: TokenLookup,
    ) -> io::Result<GatewayAttachment> {
        GatewayAttachment::serve(listener, limits, lookup, self.billing.clone(), self.workers.clone())
    }
}
