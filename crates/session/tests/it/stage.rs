//! A test host with its own data directory, and helpers that wait for events.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use agents::MockAgent;
use gateway::{Gateway, GatewayConfig, GatewayLimits, PriceTable, ScriptedUpstream};
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource, Preset};
use protocol::{CreateSession, Event, EventBody, SessionId, SessionInfo, TurnOutcome};
use sandbox::UnconfinedBackend;
use session::{
    AcceptedMessage, AgentRegistry, HostVariables, SessionError, SessionHostConfig, SessionOptions, SessionTimeouts,
    Sessions, UpstreamRegistry, UserMessage,
};
use store::{DataDir, Durability, JournalTail, SqliteLedger, SystemClock};
use tempfile::TempDir;

/// Sessions with their own data directory.
pub(crate) struct Stage {
    pub(crate) directory: Arc<TempDir>,
    pub(crate) sessions: Sessions,
}

impl Stage {
    pub(crate) fn new() -> Self {
        Self::with(SessionTimeouts::default())
    }

    pub(crate) fn with(timing: SessionTimeouts) -> Self {
        Self::on(Arc::new(tempfile::tempdir().unwrap()), timing)
    }

    /// Opens sessions on an existing data directory.
    pub(crate) fn on(directory: Arc<TempDir>, timing: SessionTimeouts) -> Self {
        let data = DataDir::open(directory.path().join("data")).unwrap();
        let sessions = Sessions::open(SessionHostConfig {
            gateway: gateway(&data),
            data_dir: data,
            clock: Arc::new(SystemClock),
            agents: AgentRegistry::default().with(&MockAgent, std::env::current_exe().unwrap()),
            backend: Arc::new(UnconfinedBackend::new(directory.path().join("scratch"))),
            upstream: Arc::new(ScriptedUpstream::demo().unwrap()),
            gateway_limits: GatewayLimits::default(),
            policy: policy(),
            egress: egress::Egress::default(),
            timeouts: timing,
            project_policy: None,
            upstreams: UpstreamRegistry::default(),
            variables: HostVariables::default(),
        });
        Self { directory, sessions: sessions.unwrap() }
    }

    /// Returns a workspace directory, created if missing.
    pub(crate) fn workspace(&self) -> PathBuf {
        let path = self.directory.path().join("workspace");
        std::fs::create_dir_all(&path).unwrap();
        path
    }

    /// Creates a session of the mock agent.
    pub(crate) async fn session(&self, name: &str) -> SessionId {
        self.create(name, request()).await.unwrap().session_id
    }

    pub(crate) async fn create(&self, name: &str, request: CreateSession) -> Result<SessionInfo, SessionError> {
        let options = SessionOptions::default();
        self.sessions.create(id(name), request, options).await
    }

    pub(crate) async fn say(&self, id: &SessionId, text: &str) -> AcceptedMessage {
        self.sessions.send(id, UserMessage::text(text)).await.unwrap()
    }

    /// Sends a message and returns the events up to the end of its turn.
    pub(crate) async fn turn(&self, id: &SessionId, text: &str) -> Vec<Event> {
        let accepted = self.say(id, text).await;
        self.until(id, accepted.sequence, |event| {
            event.draft.turn_id.as_ref() == Some(&accepted.turn_id)
                && matches!(event.draft.body, EventBody::TurnEnded(_))
        })
        .await
    }

    /// Returns the events after `sequence` up to the first that is `wanted`.
    pub(crate) async fn until(&self, id: &SessionId, sequence: u64, wanted: impl Fn(&Event) -> bool) -> Vec<Event> {
        let mut tail = JournalTail::new(self.sessions.journal(id).unwrap(), sequence);
        let mut seen: Vec<Event> = Vec::new();
        loop {
            let events = tail.next(1).await.unwrap();
            assert!(!events.is_empty(), "the session ended before that: {:#?}", kinds(&seen));
            let found = events.iter().any(&wanted);
            seen.extend(events);
            if found {
                return seen;
            }
        }
    }

    /// Returns the first event of this type after `sequence`.
    pub(crate) async fn until_type(&self, id: &SessionId, sequence: u64, kind: &str) -> Event {
        self.until(id, sequence, |event| type_of(event) == kind).await.pop().unwrap()
    }

    pub(crate) fn events(&self, id: &SessionId) -> Vec<Event> {
        self.sessions.journal(id).unwrap().after(0, usize::MAX).unwrap()
    }
}

/// Returns a gateway with its ledger in `directory`.
fn gateway(directory: &DataDir) -> Gateway {
    let opened = SqliteLedger::claim(directory, Durability::Normal, Arc::new(SystemClock)).unwrap();
    Gateway::new(GatewayConfig { prices: PriceTable::default(), ledger: Arc::new(opened.ledger), budgets: Vec::new() })
}

pub(crate) fn id(name: &str) -> SessionId {
    SessionId::new(name).unwrap()
}

pub(crate) fn request() -> CreateSession {
    CreateSession { agent: "mock".to_owned(), ..CreateSession::default() }
}

pub(crate) fn in_directory(path: &Path) -> CreateSession {
    CreateSession { directory: Some(path.to_str().unwrap().to_owned()), ..request() }
}

pub(crate) fn type_of(event: &Event) -> String {
    serde_json::to_value(&event.draft.body).unwrap()["type"].as_str().unwrap().to_owned()
}

pub(crate) fn kinds(events: &[Event]) -> Vec<String> {
    events.iter().map(type_of).collect()
}

/// Returns the outcome of the last turn.
pub(crate) fn outcome(events: &[Event]) -> Option<TurnOutcome> {
    events.iter().rev().find_map(|event| match &event.draft.body {
        EventBody::TurnEnded(turn) => turn.outcome,
        _ => None,
    })
}

/// Returns the default preset with the workspace mode that works without a sandbox.
fn policy() -> Arc<EffectivePolicy> {
    policy_with("overlay", "bind")
}

/// Returns that policy with `old` replaced by `new`.
pub(crate) fn policy_with(old: &str, new: &str) -> Arc<EffectivePolicy> {
    let text = Preset::Balanced.source().text().replace("overlay", "bind");
    assert!(old == "overlay" || text.contains(old), "the preset has no `{old}`");
    let text = text.replace(old, new);
    let base = BaseLayer::read(&PolicySource::new("test", text)).unwrap();
    Arc::new(policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]))
}
