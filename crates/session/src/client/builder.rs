//! The builder of an agent client.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agents::MockAgent;
use gateway::{ModelScriptError, PriceTable, PriceTableError, ScriptedUpstream, Upstream};
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, Preset};
use sandbox::{
    ContainerBackend, ContainerSettings, EngineKind, FallbackBackend, JailBackend, SandboxBackend, SandboxError,
    UnconfinedBackend,
};
use store::{DataDir, SystemClock};
use tokio::sync::OnceCell;

use super::{AgentClient, ClientState};
use crate::{
    AgentDefaults, AgentRegistry, BillingSettings, HostBudget, HostVariables, SessionError, SessionHostConfig,
    SessionOptions, SessionTimeouts, Sessions, UpstreamRegistry, system_egress,
};

/// The sandbox in which agents run.
#[derive(Clone, Default)]
pub enum SandboxChoice {
    /// The first that works: the jail, else a Podman or Docker container. `build` forks the spawner, so the process must
    /// still be single-threaded.
    #[default]
    FirstThatWorks,
    /// The jail. `build` forks its spawner, so the process must still be single-threaded.
    Jail,
    /// No sandbox: agents run on the host. Needs a policy with `fs: {workspace: bind}`.
    Unconfined,
    /// Containers of an engine. `build` forks the spawner, so the process must still be single-threaded.
    Container(ContainerSettings),
    /// A backend that the caller created, e.g. with [`JailBackend::fork`] at the start of `main`.
    Backend(Arc<dyn SandboxBackend>),
}

impl SandboxChoice {
    fn backend(self, data_dir: &Path) -> Result<Arc<dyn SandboxBackend>, SandboxError> {
        let containers = data_dir.join("containers");
        Ok(match self {
            Self::FirstThatWorks => {
                let engines =
                    [EngineKind::Podman, EngineKind::Docker].map(|kind| ContainerSettings::with_defaults(kind, None));
                Arc::new(FallbackBackend::detect(&ContainerBackend::spawner()?, engines, &containers)?)
            }
            Self::Jail => Arc::new(JailBackend::fork()?),
            Self::Container(settings) => {
                Arc::new(ContainerBackend::new(settings, ContainerBackend::spawner()?, containers)?)
            }
            Self::Unconfined => Arc::new(UnconfinedBackend::new(data_dir.join("unconfined"))),
            Self::Backend(backend) => backend,
        })
    }
}

/// Configures an [`AgentClient`].
#[derive(Default)]
pub struct AgentClientBuilder {
    agent: Option<String>,
    data_dir: Option<PathBuf>,
    mock_program: Option<PathBuf>,
    sandbox: SandboxChoice,
    policy: Option<Arc<EffectivePolicy>>,
    upstream: Option<Arc<dyn Upstream>>,
    billing: Option<BillingSettings>,
    timeouts: SessionTimeouts,
    variables: HostVariables,
    options: SessionOptions,
}

/// Why a client cannot be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No agent was set.
    #[error("no agent set: call `.agent(\"claude\")`")]
    NoAgent,
    /// No data directory was set.
    #[error("no data directory set: call `.data_dir(path)`")]
    NoDataDir,
    /// The sandbox cannot be created.
    #[error("cannot use the sandbox")]
    Sandbox(#[from] SandboxError),
    /// The data directory cannot be opened.
    #[error("cannot open the sessions")]
    Sessions(#[from] SessionError),
    /// A defect of this program.
    #[error("cannot read the built-in policy")]
    Policy(#[from] policy::PolicyError),
    /// A defect of this program.
    #[error("cannot read the built-in scripted model")]
    Script(#[from] ModelScriptError),
    /// A defect of this program.
    #[error("cannot read the built-in prices")]
    Prices(#[from] PriceTableError),
}

impl AgentClientBuilder {
    /// Sets the agent, e.g. `claude`. It must be installed in the data directory.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Sets the data directory, which holds installed agents, journals, changes and the ledger.
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// Sets the sandbox; by default the first that works, never an unconfined one.
    #[must_use]
    pub fn sandbox(mut self, sandbox: SandboxChoice) -> Self {
        self.sandbox = sandbox;
        self
    }

    /// Sets the policy; the preset `balanced` by default.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<Arc<EffectivePolicy>>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// Sets the upstream; by default the scripted model, which needs no key and no network.
    #[must_use]
    pub fn upstream(mut self, upstream: Arc<dyn Upstream>) -> Self {
        self.upstream = Some(upstream);
        self
    }

    /// Sets prices and budgets; by default the built-in prices and only the policy's budget.
    #[must_use]
    pub fn billing(mut self, billing: BillingSettings) -> Self {
        self.billing = Some(billing);
        self
    }

    /// Sets the account that pays; by default each session is its own account.
    #[must_use]
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.options.account = Some(account.into());
        self
    }

    /// Sets the timeouts of sessions.
    #[must_use]
    pub fn timeouts(mut self, timeouts: SessionTimeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Sets the lookup of host variables that `env.pass` of the policy names; by default none is passed.
    #[must_use]
    pub fn variables(mut self, variables: HostVariables) -> Self {
        self.variables = variables;
        self
    }

    /// Sets the program that acts as the agent `mock` when it is started with `__agent mock`.
    #[must_use]
    pub fn mock_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.mock_program = Some(program.into());
        self
    }

    /// Builds the client. Fails when the sandbox or the data directory cannot be used.
    pub fn build(self) -> Result<AgentClient, BuildError> {
        let agent = self.agent.ok_or(BuildError::NoAgent)?;
        let data_dir = self.data_dir.ok_or(BuildError::NoDataDir)?;
        let backend = self.sandbox.backend(&data_dir)?;
        let policy = match self.policy {
            Some(policy) => policy,
            None => Arc::new(policy::effective(&CeilingLayer::built_in()?, &BaseLayer::preset(Preset::Balanced)?, &[])),
        };
        let upstream = match self.upstream {
            Some(upstream) => upstream,
            None => Arc::new(ScriptedUpstream::demo()?),
        };
        let billing = match self.billing {
            Some(billing) => billing,
            None => BillingSettings { prices: PriceTable::built_in()?, ..BillingSettings::default() },
        };
        let agents = AgentRegistry::default().with_installed(data_dir.clone());
        let agents = match self.mock_program {
            Some(program) => agents.with(&MockAgent, program),
            None => agents,
        };
        let data_dir = DataDir::open(&data_dir).map_err(SessionError::from)?;
        let sessions = Sessions::open(SessionHostConfig {
            gateway: billing.open_gateway(&data_dir)?,
            gateway_limits: billing.limits,
            data_dir,
            clock: Arc::new(SystemClock),
            agents,
            backend,
            egress: system_egress(Vec::new()),
            upstream,
            upstreams: UpstreamRegistry::default(),
            agent_defaults: AgentDefaults::default(),
            policy,
            project_policy: None,
            lifetime: crate::SessionLifetime::default(),
            timeouts: self.timeouts,
            budget: HostBudget::default(),
            variables: self.variables,
        })?;
        let inner = ClientState { sessions, agent, options: self.options, recovered: OnceCell::new() };
        Ok(AgentClient { inner: Arc::new(inner) })
    }
}
