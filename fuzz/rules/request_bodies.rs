//! Invariants for arbitrary request bodies of the session API; a violation panics.

use std::path::Path;
use std::sync::Arc;

use http_body_util::BodyExt as _;
use policy::{BaseLayer, CeilingLayer, Preset};
use sandbox::{Sandbox, SandboxBackend, SandboxError, SandboxFuture, SandboxSpec};
use server::{AuthMode, ServerConfig, app};
use session::{AgentRegistry, BillingSettings, HostVariables, SessionHostConfig, SessionTimeouts, Sessions};
use tokio::runtime::Runtime;
use tower::ServiceExt as _;

/// Every call with a body: JSON, a file or an archive. The first byte of a corpus file is an index into this list.
const CALLS: &[(&str, &str, &str)] = &[
    ("POST", "/v1/sessions/s1", JSON),
    ("PATCH", "/v1/sessions/s1", JSON),
    ("POST", "/v1/sessions/s1/fork", JSON),
    ("POST", "/v1/sessions/s1/messages", JSON),
    ("POST", "/v1/sessions/s1/messages/stream", JSON),
    ("POST", "/v1/sessions/s1/permissions/p1/reply", JSON),
    ("POST", "/v1/sessions/s1/questions/q1/reply", JSON),
    ("POST", "/v1/sessions/s1/apply", JSON),
    ("POST", "/v1/import", BYTES),
    ("POST", "/v1/agents/mock/install", JSON),
    ("POST", "/v1/fs/move?session_id=s1", JSON),
    ("POST", "/v1/sessions/s1/policy/narrow", JSON),
    ("POST", "/v1/sessions/s1/policy/grant", JSON),
    ("POST", "/v1/sessions/s1/replay", JSON),
    ("POST", "/v1/tasks", JSON),
    ("PUT", "/v1/fs/file?path=a&session_id=s1", BYTES),
    ("POST", "/v1/fs/upload-batch?session_id=s1", BYTES),
];
const JSON: &str = "application/json";
const BYTES: &str = "application/octet-stream";

/// A server without a socket and without sessions; it cannot create any.
pub(crate) struct Api {
    runtime: Runtime,
    router: axum::Router,
}

impl Api {
    pub(crate) fn new(directory: &Path) -> Self {
        let base = BaseLayer::read(&Preset::Balanced.source()).unwrap();
        let data_dir = store::DataDir::open(directory).unwrap();
        let billing = BillingSettings::default();
        let agents = AgentRegistry::default().with_installed(directory.to_owned());
        let config = SessionHostConfig {
            gateway: billing.open_gateway(&data_dir).unwrap(),
            gateway_limits: billing.limits,
            data_dir,
            clock: Arc::new(store::SystemClock),
            agents: agents.with(&agents::MockAgent, "/bin/true".into()),
            backend: Arc::new(NoSandboxBackend),
            upstream: Arc::new(gateway::ScriptedUpstream::demo().unwrap()),
            policy: Arc::new(policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[])),
            egress: session::system_egress(Vec::new()),
            timeouts: SessionTimeouts::default(),
            budget: session::HostBudget::default(),
            project_policy: None,
            lifetime: session::SessionLifetime::default(),
            upstreams: session::UpstreamRegistry::default(),
            agent_defaults: session::AgentDefaults::default(),
            variables: HostVariables::default(),
        };
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let router = {
            let _guard = runtime.enter();
            app(
                Sessions::open(config).unwrap(),
                ServerConfig::new(AuthMode::None),
                tokio_util::sync::CancellationToken::new(),
            )
            .unwrap()
        };
        Self { runtime, router }
    }

    /// Checks that a body is accepted or rejected with a client error; it must never cause a server error.
    pub(crate) fn check(&self, data: &[u8]) {
        // The first byte selects the call.
        let (first, body) = data.split_first().map_or((0, data), |(first, body)| (*first, body));
        let (method, path, content) = CALLS[usize::from(first) % CALLS.len()];
        let request = http::Request::builder()
            .method(method)
            .uri(path)
            .header("host", "localhost")
            .header("content-type", content)
            .body(axum::body::Body::from(body.to_vec()))
            .unwrap();
        let answer = self.runtime.block_on(async {
            let answer = self.router.clone().oneshot(request).await.unwrap();
            let (head, body) = answer.into_parts();
            (head, body.collect().await.unwrap().to_bytes())
        });
        let (head, body) = answer;
        if head.status.is_success() {
            return;
        }
        let shown = || format!("{method} {path}: {} {}", head.status, String::from_utf8_lossy(&body));
        let problem: serde_json::Value = serde_json::from_slice(&body).unwrap_or_else(|_| panic!("{}", shown()));
        assert_eq!(problem["status"], head.status.as_u16(), "{}", shown());
        // Sandboxes and installation are unavailable here; every other failure must be a client error.
        let is_expected = matches!(problem["code"].as_str(), Some("sandbox_create_error" | "install_failed"));
        assert!(head.status.is_client_error() || is_expected, "{}", shown());
    }
}

/// A backend that cannot create sandboxes.
struct NoSandboxBackend;

impl SandboxBackend for NoSandboxBackend {
    fn name(&self) -> &'static str {
        "none"
    }

    fn create(&self, _: SandboxSpec) -> SandboxFuture<'_, Box<dyn Sandbox>> {
        Box::pin(async { Err(SandboxError::Gone) })
    }
}
