//! How sessions are put together on one machine: the same for `viv run`, `viv serve` and a program of yours.
//!
//! Not here: where the values come from (`cli` reads them, [`crate::AgentClient`] is told them).

use std::path::PathBuf;
use std::sync::Arc;

use agents::MockAgent;
use base::{system_roots, tls_client};
use egress::{Egress, TrustStore};
use gateway::{Gateway, GatewayConfig, GatewayLimits, PriceTable, Upstream};
use policy::EffectivePolicy;
use rustls_pki_types::CertificateDer;
use sandbox::SandboxBackend;
use store::{DataDir, Durability, SqliteLedger, SystemClock, UsageLimit};

use crate::{
    AgentRegistry, HostVariables, Parts, ProjectPolicy, SessionError, SessionTimeouts, Sessions, UpstreamRegistry,
};

/// What calls cost, what they must fit into, and what their entries survive.
#[derive(Debug, Clone, Default)]
pub struct BillingSettings {
    /// What models cost.
    pub prices: PriceTable,
    /// What all calls of the data directory must fit into.
    pub budgets: Vec<UsageLimit>,
    /// What an entry in the ledger survives.
    pub durability: Durability,
    /// What one session may use of the gateway, and what is kept of its calls.
    pub limits: GatewayLimits,
}

impl BillingSettings {
    /// A gateway that keeps its accounts in `directory`. What hosts that died left in them is put in order.
    pub fn gateway(self, directory: &DataDir) -> Result<Gateway, SessionError> {
        let claimed = SqliteLedger::claim(directory, self.durability, Arc::new(SystemClock))?;
        let (prices, ledger, budgets) = (self.prices, Arc::new(claimed.ledger), self.budgets);
        Ok(Gateway::new(GatewayConfig { prices, ledger, budgets }))
    }
}

/// What the sessions of a host are made of.
pub struct Setup {
    /// Where everything is kept.
    pub data_dir: PathBuf,
    /// The program that lives as the mock agent when it is started with `__agent mock`.
    pub mock_program: Option<PathBuf>,
    /// Makes sandboxes.
    pub backend: Arc<dyn SandboxBackend>,
    /// The model behind the gateway.
    pub upstream: Arc<dyn Upstream>,
    /// What a session may do when nobody chose another policy for it.
    pub policy: Arc<EffectivePolicy>,
    /// How calls are counted.
    pub accounts: BillingSettings,
    /// The way to everything else; see [`way_out`].
    pub egress: Egress,
    /// How long a session waits for what.
    pub timing: SessionTimeouts,
    /// What the directory of a session makes of that policy; nothing when there is none.
    pub project: Option<ProjectPolicy>,
    /// Models that a session can name in place of that one.
    pub upstreams: UpstreamRegistry,
    /// What `env.pass` of a policy can name.
    pub variables: HostVariables,
}

/// The way to the world, which trusts the roots of the system and `extra_roots` where TLS is opened.
pub fn way_out(extra_roots: Vec<CertificateDer<'static>>) -> Egress {
    Egress::default().with_trust(Arc::new(move || {
        let client = Arc::new(tls_client(&extra_roots)?);
        Ok(TrustStore { roots: system_roots().into_iter().chain(extra_roots.clone()).collect(), client })
    }))
}

impl Setup {
    /// Opens the sessions of the data directory. What a host that was killed left behind stays as it is until
    /// [`Sessions::recover`].
    pub fn open(self) -> Result<Sessions, SessionError> {
        let directory = DataDir::open(&self.data_dir)?;
        let roster = AgentRegistry::default().with_installed(self.data_dir);
        let roster = match self.mock_program {
            Some(program) => roster.with(&MockAgent, program),
            None => roster,
        };
        let limits = self.accounts.limits.clone();
        Sessions::open(Parts {
            clock: Arc::new(SystemClock),
            roster,
            backend: self.backend,
            gateway: self.accounts.gateway(&directory)?,
            directory,
            egress: self.egress,
            upstream: self.upstream,
            limits,
            policy: self.policy,
            timing: self.timing,
            project: self.project,
            upstreams: self.upstreams,
            variables: self.variables,
        })
    }
}
