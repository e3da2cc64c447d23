//! A test server with sessions of the mock agent in a temporary data directory.

use std::path::{Path, PathBuf};

use server::{AuthMode, EventFilter, ServerConfig, app};
use session::{HostBudget, SessionOptions, Sessions};
use tempfile::TempDir;
use testkit::SessionHostFixture;
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

    /// Starts a server with another host budget.
    pub(crate) fn within(budget: HostBudget, config: ServerConfig) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let sessions = SessionHostFixture::new(directory.path()).budget(budget).open();
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

    /// Waits until the last event of a session says that it is idle. That event follows the end of the turn.
    pub(crate) async fn until_idle(&self, id: &str) {
        testkit::wait_until_async("the session to be idle", || async {
            let page = self.client.get(&format!("/v1/sessions/{id}/events")).await.json();
            let last = page["events"].as_array().unwrap().last().cloned().unwrap_or_default();
            last["type"] == "session.status" && last["data"]["status"] == "idle"
        })
        .await;
    }
}

/// Returns a configuration without authentication. Clients get all events, because most tests are about ours too.
pub(crate) fn config() -> ServerConfig {
    let (options, workspace_roots) = (SessionOptions::default(), ["/".into()].into());
    ServerConfig { options, workspace_roots, events: EventFilter::All, ..ServerConfig::new(AuthMode::None) }
}

/// Opens the sessions of a directory.
pub(crate) fn open(directory: &Path) -> Sessions {
    SessionHostFixture::new(directory).open()
}
