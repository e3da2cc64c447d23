//! Configuration of a session host: one struct that the caller fills in and [`Sessions::open`] keeps.
//!
//! `viv run`, `viv serve` and programs that use [`crate::AgentClient`] all open their sessions with it.
//!
//! Not here: reading configuration files or the environment (`cli` does that).
//!
//! [`Sessions::open`]: crate::Sessions::open

mod agent_defaults;
mod agent_registry;
mod host_budget;
mod host_variables;
mod lifetime;
mod project_policy;
mod timeouts;
mod upstream_registry;
mod workspace_access;

use std::sync::Arc;

use base::{system_roots, tls_client};
use egress::{Egress, TrustStore};
use gateway::{Gateway, GatewayConfig, GatewayLimits, PriceTable, Upstream};
use policy::EffectivePolicy;
use rustls_pki_types::CertificateDer;
use sandbox::SandboxBackend;
use store::{Clock, DataDir, Durability, SqliteLedger, SystemClock, UsageLimit};

use crate::SessionError;

pub use agent_defaults::{AgentDefault, AgentDefaults};
pub use agent_registry::{AgentRegistry, RegisteredAgent};
pub use host_budget::HostBudget;
pub use host_variables::HostVariables;
pub use lifetime::SessionLifetime;
pub use project_policy::{NarrowPolicy, ProjectPolicy};
pub use timeouts::SessionTimeouts;
pub use upstream_registry::{UpstreamFactory, UpstreamRegistry};
pub use workspace_access::{WorkspaceAccess, WorkspaceForbidden};

pub(crate) use workspace_access::{hide_data_dir, refuse_reserved};

/// Configuration and collaborators of a session host.
pub struct SessionHostConfig {
    /// The data directory that holds journals, ledger and session index.
    pub data_dir: DataDir,
    /// The source of time.
    pub clock: Arc<dyn Clock>,
    /// The agents that sessions can start.
    pub agents: AgentRegistry,
    /// Creates the sandboxes.
    pub backend: Arc<dyn SandboxBackend>,
    /// The proxy for model calls; see [`BillingSettings::open_gateway`].
    pub gateway: Gateway,
    /// Gateway limits for each session.
    pub gateway_limits: GatewayLimits,
    /// The most that this process spends for its sessions.
    pub budget: HostBudget,
    /// The proxy for all other traffic; see [`system_egress`].
    pub egress: Egress,
    /// The default upstream.
    pub upstream: Arc<dyn Upstream>,
    /// Upstreams that a session can select by name instead.
    pub upstreams: UpstreamRegistry,
    /// The upstream and the model of sessions that name none, by agent.
    pub agent_defaults: AgentDefaults,
    /// The policy of sessions that do not bring their own.
    pub policy: Arc<EffectivePolicy>,
    /// Narrows `policy` by the policy file in a session's directory; `None` ignores such files.
    pub project_policy: Option<ProjectPolicy>,
    /// How long a session waits before it gives up.
    pub timeouts: SessionTimeouts,
    /// How long sessions and their agents live.
    pub lifetime: SessionLifetime,
    /// Host environment variables that `env.pass` of a policy can name.
    pub variables: HostVariables,
}

/// Prices, budgets and durability of the ledger, and the gateway limits of a session.
#[derive(Debug, Clone, Default)]
pub struct BillingSettings {
    /// Prices of models.
    pub prices: PriceTable,
    /// Limits on the usage of all calls in the data directory.
    pub budgets: Vec<UsageLimit>,
    /// How safely the ledger is written to disk.
    pub durability: Durability,
    /// Gateway limits for each session.
    pub limits: GatewayLimits,
}

impl BillingSettings {
    /// Returns a gateway whose ledger is in `data_dir`. Repairs ledger entries that a killed host left unfinished.
    pub fn open_gateway(&self, data_dir: &DataDir) -> Result<Gateway, SessionError> {
        let claimed = SqliteLedger::claim(data_dir, self.durability, Arc::new(SystemClock))?;
        let (prices, ledger, budgets) = (self.prices.clone(), Arc::new(claimed.ledger), self.budgets.clone());
        Ok(Gateway::new(GatewayConfig { prices, ledger, budgets }))
    }
}

/// Returns an egress proxy that trusts the system's root certificates and `extra_roots` when it opens TLS.
pub fn system_egress(extra_roots: Vec<CertificateDer<'static>>) -> Egress {
    Egress::default().with_trust(Arc::new(move || {
        let client = Arc::new(tls_client(&extra_roots)?);
        Ok(TrustStore { roots: system_roots().into_iter().chain(extra_roots.clone()).collect(), client })
    }))
}
