//! The session API of `viv serve` with in-process agents.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use agents::MockAgent;
use gateway::ScriptedUpstream;
use policy::{BaseLayer, CeilingLayer, Preset};
use sandbox::SandboxBackend;
use server::{AuthMode, ServerConfig, ServerListeners};
use session::{
    AgentRegistry, BillingSettings, HostBudget, HostVariables, SessionHostConfig, SessionTimeouts, Sessions,
    UpstreamRegistry,
};
use store::{DataDir, StorageLimits, SystemClock};
use tokio::io::AsyncReadExt;

use crate::in_process::InProcess;

/// Prints the address, and serves until standard input ends.
pub(crate) fn run(directory: &Path) -> Result<(), String> {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build();
    runtime.map_err(|error| error.to_string())?.block_on(serve(directory))
}

async fn serve(directory: &Path) -> Result<(), String> {
    let sessions = open(directory)?;
    sessions.recover().await.map_err(|error| error.to_string())?;
    let data = DataDir::open(directory).map_err(|error| error.to_string())?;
    let listeners = ServerListeners { tcp: vec![(Ipv4Addr::LOCALHOST, 0).into()], unix: None, tls: None };
    let config = ServerConfig { audit: Some(data.audit_log()), ..ServerConfig::new(AuthMode::None) };
    let bound = |addresses: &[std::net::SocketAddr]| {
        for address in addresses {
            println!("{}", serde_json::json!({"listening": format!("http://{address}")}));
        }
    };
    let told_to_end = async {
        // A read error counts as the end of the input.
        let _ = tokio::io::stdin().read_to_end(&mut Vec::new()).await;
    };
    server::serve(listeners, config, sessions, bound, told_to_end).await.map_err(|error| error.to_string())
}

fn open(directory: &Path) -> Result<Sessions, String> {
    let base = BaseLayer::read(&Preset::Balanced.source()).map_err(|error| error.to_string())?;
    let ceiling = CeilingLayer::built_in().map_err(|error| error.to_string())?;
    let backend: Arc<dyn SandboxBackend> = Arc::new(InProcess);
    let billing = BillingSettings::default();
    let data_dir = DataDir::open(directory).map_err(|error| error.to_string())?;
    let agents = AgentRegistry::default().with_installed(directory.to_owned());
    let sessions = Sessions::open(SessionHostConfig {
        gateway: billing.open_gateway(&data_dir).map_err(|error| error.to_string())?,
        gateway_limits: billing.limits,
        data_dir,
        clock: Arc::new(SystemClock),
        agents: agents.with(&MockAgent, PathBuf::from("in-process")),
        backend,
        upstream: Arc::new(ScriptedUpstream::demo().map_err(|error| error.to_string())?),
        policy: Arc::new(policy::effective(&ceiling, &base, &[])),
        egress: session::system_egress(Vec::new()),
        timeouts: SessionTimeouts::default(),
        budget: host_budget(),
        project_policy: None,
        lifetime: session::SessionLifetime::default(),
        upstreams: UpstreamRegistry::default(),
        agent_defaults: session::AgentDefaults::default(),
        variables: HostVariables::default(),
    });
    sessions.map_err(|error| error.to_string())
}

/// Returns the default budget with room for the journal of 1,000,000 events, which is longer than the default limit.
/// The measurement is of a page of that journal, not of the limit.
fn host_budget() -> HostBudget {
    let storage = StorageLimits { journal_bytes: 16 << 30, ..StorageLimits::default() };
    HostBudget { storage, ..HostBudget::default() }
}
