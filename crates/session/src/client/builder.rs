//! What a client is made of, and why it cannot be made.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use gateway::{ModelScriptError, PriceTable, PriceTableError, ScriptedUpstream, Upstream};
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, Preset};
use sandbox::{
    ContainerBackend, ContainerSettings, EngineKind, FallbackBackend, JailBackend, SandboxBackend, SandboxError,
    UnconfinedBackend,
};
use tokio::sync::OnceCell;

use super::{AgentClient, Inner};
use crate::{
    BillingSettings, HostVariables, SessionError, SessionOptions, SessionTimeouts, Setup, UpstreamRegistry, way_out,
};

/// Where agents run.
#[derive(Clone, Default)]
pub enum SandboxChoice {
    /// The first that works here: the jail, else a container of Podman or Docker, else an error. The spawner is forked
    /// by `build`, so the process must still have one thread.
    #[default]
    FirstThatWorks,
    /// The sandbox of our own. Its spawner is forked by `build`, so the process must still have one thread.
    Jail,
    /// On the host itself, with no wall at all. Needs a policy with `fs: {workspace: bind}`.
    Unconfined,
    /// In containers of an engine. The spawner is forked by `build`, so the process must still have one thread.
    Container(ContainerSettings),
    /// A backend that the caller made, e.g. with [`JailBackend::fork`] at the beginning of `main`.
    Backend(Arc<dyn SandboxBackend>),
}

impl SandboxChoice {
    fn backend(self, data_dir: &Path) -> Result<Arc<dyn SandboxBackend>, SandboxError> {
        let containers = data_dir.join("containers");
        Ok(match self {
            Self::FirstThatWorks => {
                let engines = [EngineKind::Podman, EngineKind::Docker].map(|kind| ContainerSettings::with_defaults(kind, None));
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
    confinement: SandboxChoice,
    policy: Option<Arc<EffectivePolicy>>,
    upstream: Option<Arc<dyn Upstream>>,
    accounts: Option<BillingSettings>,
    timing: SessionTimeouts,
    variables: HostVariables,
    options: SessionOptions,
}

/// Why a client cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// No agent was named.
    #[error("no agent was named: call `.agent(\"claude\")`")]
    NoAgent,
    /// Records need a place.
    #[error("no data directory was named: call `.data_dir(path)`")]
    NoDataDir,
    /// The sandbox cannot be had.
    #[error("the sandbox cannot be used")]
    Sandbox(#[from] SandboxError),
    /// The data directory cannot be used.
    #[error("the sessions cannot be opened")]
    Sessions(#[from] SessionError),
    /// A defect of what is built in.
    #[error("the built-in policy cannot be read")]
    Policy(#[from] policy::PolicyError),
    /// A defect of what is built in.
    #[error("the built-in model cannot be read")]
    Script(#[from] ModelScriptError),
    /// A defect of what is built in.
    #[error("the built-in prices cannot be read")]
    Prices(#[from] PriceTableError),
}

impl AgentClientBuilder {
    /// Which agent, e.g. `claude`. It must be installed in the data directory.
    #[must_use]
    pub fn agent(mut self, name: impl Into<String>) -> Self {
        self.agent = Some(name.into());
        self
    }

    /// Where agents are installed, and where records, changes and accounts are kept.
    #[must_use]
    pub fn data_dir(mut self, path: impl Into<PathBuf>) -> Self {
        self.data_dir = Some(path.into());
        self
    }

    /// Where agents run: the first that works when nothing is said, never without walls.
    #[must_use]
    pub fn sandbox(mut self, confinement: SandboxChoice) -> Self {
        self.confinement = confinement;
        self
    }

    /// What agents may do: the preset `balanced` when nothing is said.
    #[must_use]
    pub fn policy(mut self, policy: impl Into<Arc<EffectivePolicy>>) -> Self {
        self.policy = Some(policy.into());
        self
    }

    /// The model behind the gateway: the built-in one when nothing is said, which needs no key and no network.
    #[must_use]
    pub fn upstream(mut self, upstream: Arc<dyn Upstream>) -> Self {
        self.upstream = Some(upstream);
        self
    }

    /// What calls cost and must fit into: built-in prices and no budget but the policy's when nothing is said.
    #[must_use]
    pub fn accounts(mut self, accounts: BillingSettings) -> Self {
        self.accounts = Some(accounts);
        self
    }

    /// Who pays: each session for itself when nothing is said.
    #[must_use]
    pub fn account(mut self, account: impl Into<String>) -> Self {
        self.options.account = Some(account.into());
        self
    }

    /// How long a session waits for what.
    #[must_use]
    pub fn timing(mut self, timing: SessionTimeouts) -> Self {
        self.timing = timing;
        self
    }

    /// What `env.pass` of the policy can name: none is passed when nobody says how one is found.
    #[must_use]
    pub fn variables(mut self, variables: HostVariables) -> Self {
        self.variables = variables;
        self
    }

    /// A program that lives as the agent `mock` when it is started with `__agent mock`.
    #[must_use]
    pub fn mock_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.mock_program = Some(program.into());
        self
    }

    /// Makes the client.
    pub fn build(self) -> Result<AgentClient, BuildError> {
        let agent = self.agent.ok_or(BuildError::NoAgent)?;
        let data_dir = self.data_dir.ok_or(BuildError::NoDataDir)?;
        let backend = self.confinement.backend(&data_dir)?;
        let policy = match self.policy {
            Some(policy) => policy,
            None => Arc::new(policy::effective(&CeilingLayer::built_in()?, &BaseLayer::preset(Preset::Balanced)?, &[])),
        };
        let upstream = match self.upstream {
            Some(upstream) => upstream,
            None => Arc::new(ScriptedUpstream::demo()?),
        };
        let accounts = match self.accounts {
            Some(accounts) => accounts,
            None => BillingSettings { prices: PriceTable::built_in()?, ..BillingSettings::default() },
        };
        let (mock_program, timing) = (self.mock_program, self.timing);
        let egress = way_out(Vec::new());
        let setup = Setup {
            data_dir,
            mock_program,
            backend,
            upstream,
            policy,
            accounts,
            egress,
            timing,
            project: None,
            upstreams: UpstreamRegistry::default(),
            variables: self.variables,
        };
        let inner = Inner { sessions: setup.open()?, agent, options: self.options, recovered: OnceCell::new() };
        Ok(AgentClient { inner: Arc::new(inner) })
    }
}
