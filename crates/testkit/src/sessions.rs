//! An in-process session host with the mock agent, the scripted model and no sandbox.

#![expect(clippy::unwrap_used, reason = "only tests call this")]

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agents::MockAgent;
use gateway::{Gateway, GatewayConfig, GatewayLimits, PriceTable, ScriptedUpstream};
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource, Preset};
use sandbox::UnconfinedBackend;
use session::{
    AgentDefaults, AgentRegistry, HostBudget, HostVariables, SessionHostConfig, SessionTimeouts, Sessions,
    UpstreamRegistry,
};
use store::{DataDir, Durability, SqliteLedger, SystemClock};

/// Builder of a session host in a directory. The mock agent is the test program itself, which must run as an agent
/// when it is started as one.
#[derive(Debug)]
pub struct SessionHostFixture {
    directory: PathBuf,
    timeouts: SessionTimeouts,
    budget: HostBudget,
}

impl SessionHostFixture {
    /// Returns a fixture with its data directory at `data` in `directory`.
    pub fn new(directory: &Path) -> Self {
        Self { directory: directory.to_owned(), timeouts: SessionTimeouts::default(), budget: HostBudget::default() }
    }

    /// Replaces the timeouts.
    #[must_use]
    pub fn timeouts(mut self, timeouts: SessionTimeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Replaces the host budget.
    #[must_use]
    pub fn budget(mut self, budget: HostBudget) -> Self {
        self.budget = budget;
        self
    }

    /// Opens the session host. Panics while another host uses the data directory.
    pub fn open(self) -> Sessions {
        let data_dir = DataDir::open(self.directory.join("data")).unwrap();
        let config = SessionHostConfig {
            gateway: gateway(&data_dir),
            data_dir,
            clock: Arc::new(SystemClock),
            agents: AgentRegistry::default().with(&MockAgent, std::env::current_exe().unwrap()),
            backend: Arc::new(UnconfinedBackend::new(self.directory.join("scratch"))),
            upstream: Arc::new(ScriptedUpstream::demo().unwrap()),
            gateway_limits: GatewayLimits::default(),
            policy: unconfined_policy(&[]),
            egress: egress::Egress::default(),
            timeouts: self.timeouts,
            budget: self.budget,
            project_policy: None,
            lifetime: session::SessionLifetime::default(),
            upstreams: UpstreamRegistry::default(),
            agent_defaults: AgentDefaults::default(),
            variables: HostVariables::default(),
        };
        Sessions::open(config).unwrap()
    }
}

/// Returns a gateway with its ledger in `data_dir`.
fn gateway(data_dir: &DataDir) -> Gateway {
    let opened = SqliteLedger::claim(data_dir, Durability::Normal, Arc::new(SystemClock)).unwrap();
    Gateway::new(GatewayConfig { prices: PriceTable::default(), ledger: Arc::new(opened.ledger), budgets: Vec::new() })
}

/// Returns the default preset with the workspace mode that works without a sandbox. Replaces the first text of each
/// pair by the second; panics when the preset does not contain the first.
pub fn unconfined_policy(replacements: &[(&str, &str)]) -> Arc<EffectivePolicy> {
    let mut text = Preset::Balanced.source().text().replace("overlay", "bind");
    for (old, new) in replacements {
        assert!(text.contains(old), "the preset has no `{old}`");
        text = text.replace(old, new);
    }
    let base = BaseLayer::read(&PolicySource::new("test", text)).unwrap();
    Arc::new(policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]))
}
