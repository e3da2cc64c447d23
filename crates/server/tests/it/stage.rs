//! A test server with sessions of the mock agent in a temporary data directory.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agents::MockAgent;
use gateway::{Gateway, GatewayConfig, GatewayLimits, PriceTable, ScriptedUpstream};
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource, Preset};
use sandbox::UnconfinedBackend;
use server::{AuthMode, ServerConfig, app};
use session::{
    AgentRegistry, HostVariables, SessionHostConfig, SessionOptions, SessionTimeouts, Sessions, UpstreamRegistry,
};
use store::{DataDir, Durability, SqliteLedger, SystemClock};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::client::Client;

/// A server without sockets, with its sessions and directory.
pub(crate) struct Stage {
    pub(crate) directory: TempDir,
    pub(crate) client: Client,
    pub(crate) sessions: Sessions,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: ServerConfig) -> Self {
        Self::on(tempfile::tempdir().unwrap(), config)
    }

    /// Starts a server on an existing directory.
    pub(crate) fn on(directory: TempDir, config: ServerConfig) -> Self {
        let sessions = open(directory.path());
        let app = app(sessions.clone(), config, CancellationToken::new()).unwrap();
        Self { directory, client: Client::new(app), sessions }
    }

    /// Closes the sessions and starts another server on the directory.
    pub(crate) fn restarted(self) -> Self {
        let Self { directory, client, sessions } = self;
        drop((client, sessions));
        Self::on(directory, config())
    }

    /// Returns an existing directory.
    pub(crate) fn workspace(&self) -> PathBuf {
        let path = self.directory.path().join("workspace");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Creates a session of the mock agent over the API.
    pub(crate) async fn session(&self, id: &str) {
        let made = self.client.post(&format!("/v1/sessions/{id}"), r#"{"agent":"mock"}"#).await;
        assert_eq!(made.status, 200, "{}", made.text());
    }

    /// Sends a message over the API and returns the sequence number before its turn.
    pub(crate) async fn send(&self, id: &str, text: &str) -> u64 {
        let body = serde_json::json!({"message": text}).to_string();
        let sent = self.client.post(&format!("/v1/sessions/{id}/messages"), &body).await;
        assert_eq!(sent.status, 204, "{}", sent.text());
        sent.headers["x-viv-sequence"].to_str().unwrap().parse().unwrap()
    }
}

pub(crate) fn config() -> ServerConfig {
    let (options, workspace_roots) = (SessionOptions::default(), ["/".into()].into());
    ServerConfig { options, workspace_roots, ..ServerConfig::new(AuthMode::None) }
}

/// Opens the sessions of a directory.
pub(crate) fn open(directory: &Path) -> Sessions {
    let data = DataDir::open(directory.join("data")).unwrap();
    let config = SessionHostConfig {
        gateway: gateway(&data),
        policy: policy(),
        egress: egress::Egress::default(),
        data_dir: data,
        clock: Arc::new(SystemClock),
        agents: AgentRegistry::default().with(&MockAgent, std::env::current_exe().unwrap()),
        backend: Arc::new(UnconfinedBackend::new(directory.join("scratch"))),
        upstream: Arc::new(ScriptedUpstream::demo().unwrap()),
        gateway_limits: GatewayLimits::default(),
        timeouts: SessionTimeouts::default(),
        project_policy: None,
        upstreams: UpstreamRegistry::default(),
        variables: HostVariables::default(),
    };
    Sessions::open(config).unwrap()
}

/// Opens a gateway with its ledger in `directory`.
fn gateway(directory: &DataDir) -> Gateway {
    let opened = SqliteLedger::claim(directory, Durability::Normal, Arc::new(SystemClock)).unwrap();
    Gateway::new(GatewayConfig { prices: PriceTable::default(), ledger: Arc::new(opened.ledger), budgets: Vec::new() })
}

/// The default preset with the workspace mode that works without a sandbox.
fn policy() -> Arc<EffectivePolicy> {
    let text = Preset::Balanced.source().text().replace("overlay", "bind");
    let base = BaseLayer::read(&PolicySource::new("test", text)).unwrap();
    Arc::new(policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]))
}
