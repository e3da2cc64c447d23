//! A data directory with sessions of the mock agent on it.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agents::MockAgent;
use gateway::{Gateway, GatewayConfig, Limits, Scripted};
use policy::{Base, Ceiling, Effective, Preset, Source};
use sandbox::Unconfined;
use server::{Auth, ServerConfig, app};
use session::{Options, Parts, Roster, Sessions, Timing};
use store::{DataDir, SystemClock};
use tempfile::TempDir;
use tokio_util::sync::CancellationToken;

use crate::client::Client;

/// A server without sockets, and what is behind it.
pub(crate) struct Stage {
    pub(crate) directory: TempDir,
    pub(crate) client: Client,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(config())
    }

    pub(crate) fn with(config: ServerConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let app = app(open(directory.path()), config, CancellationToken::new());
        Self { directory, client: Client::new(app) }
    }

    /// A directory that is there.
    pub(crate) fn workspace(&self) -> PathBuf {
        let path = self.directory.path().join("workspace");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Makes a session of the mock agent over the API.
    pub(crate) async fn session(&self, id: &str) {
        let made = self.client.post(&format!("/v1/sessions/{id}"), r#"{"agent":"mock"}"#).await;
        assert_eq!(made.status, 200, "{}", made.text());
    }

    /// Sends a message over the API; its turn and the number before it.
    pub(crate) async fn send(&self, id: &str, text: &str) -> u64 {
        let body = serde_json::json!({"message": text}).to_string();
        let sent = self.client.post(&format!("/v1/sessions/{id}/messages"), &body).await;
        assert_eq!(sent.status, 204, "{}", sent.text());
        sent.headers["x-viv-sequence"].to_str().unwrap().parse().unwrap()
    }
}

pub(crate) fn config() -> ServerConfig {
    let options = Options::default();
    ServerConfig { options, ..ServerConfig::new(Auth::None) }
}

/// Sessions on a directory.
pub(crate) fn open(directory: &Path) -> Sessions {
    let parts = Parts {
        policy: policy(),
        egress: egress::Egress::default(),
        directory: DataDir::open(directory.join("data")).unwrap(),
        clock: Arc::new(SystemClock),
        roster: Roster::default().with(&MockAgent, std::env::current_exe().unwrap()),
        backend: Arc::new(Unconfined::new(directory.join("scratch"))),
        gateway: Gateway::new(GatewayConfig::default()),
        upstream: Arc::new(Scripted::demo().unwrap()),
        limits: Limits::default(),
        timing: Timing::default(),
    };
    Sessions::open(parts).unwrap()
}

/// The default preset with the one mode that can be had without a wall.
fn policy() -> Arc<Effective> {
    let text = Preset::Balanced.source().text().replace("overlay", "bind");
    let base = Base::read(&Source::new("test", text)).unwrap();
    Arc::new(policy::effective(&Ceiling::built_in().unwrap(), &base, &[]))
}
