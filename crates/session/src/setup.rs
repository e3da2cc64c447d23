//! How sessions are put together on one machine: the same for `viv run`, `viv serve` and a program of yours.
//!
//! Not here: where the values come from (`cli` reads them, [`crate::AgentClient`] is told them).

use std::path::PathBuf;
use std::sync::Arc;

use agents::MockAgent;
use egress::{Egress, Trust};
use gateway::{Gateway, GatewayConfig, Limits, Prices, Upstream};
use policy::Effective;
use rustls_pki_types::CertificateDer;
use sandbox::Backend;
use store::{DataDir, Durability, Limit, SqliteLedger, SystemClock};

use crate::{Parts, Project, Roster, SessionError, Sessions, Timing, Upstreams, Variables};

/// What calls cost, what they must fit into, and what their entries survive.
#[derive(Debug, Clone, Default)]
pub struct Accounts {
    /// What models cost.
    pub prices: Prices,
    /// What all calls of the data directory must fit into.
    pub budgets: Vec<Limit>,
    /// What an entry in the ledger survives.
    pub durability: Durability,
    /// What one session may use of the gateway, and what is kept of its calls.
    pub limits: Limits,
}

impl Accounts {
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
    pub backend: Arc<dyn Backend>,
    /// The model behind the gateway.
    pub upstream: Arc<dyn Upstream>,
    /// What a session may do when nobody chose another policy for it.
    pub policy: Arc<Effective>,
    /// How calls are counted.
    pub accounts: Accounts,
    /// The way to everything else; see [`way_out`].
    pub egress: Egress,
    /// How long a session waits for what.
    pub timing: Timing,
    /// What the directory of a session makes of that policy; nothing when there is none.
    pub project: Option<Project>,
    /// Models that a session can name in place of that one.
    pub upstreams: Upstreams,
    /// What `env.pass` of a policy can name.
    pub variables: Variables,
}

/// The way to the world, which trusts the roots of the system and `extra_roots` where TLS is opened.
pub fn way_out(extra_roots: Vec<CertificateDer<'static>>) -> Egress {
    Egress::default().trusting(Arc::new(move || {
        let client = Arc::new(gateway::trust(&extra_roots)?);
        Ok(Trust { roots: gateway::system_roots().into_iter().chain(extra_roots.clone()).collect(), client })
    }))
}

impl Setup {
    /// Opens the sessions of the data directory. What a host that was killed left behind stays as it is until
    /// [`Sessions::recover`].
    pub fn open(self) -> Result<Sessions, SessionError> {
        let directory = DataDir::open(&self.data_dir)?;
        let roster = Roster::default().with_installed(self.data_dir);
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
