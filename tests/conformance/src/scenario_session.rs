//! A session of a scenario: a data directory, one agent in the real sandbox, and functions to wait for events.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agents::MockAgent;
use gateway::{Gateway, GatewayConfig, GatewayLimits, PriceTable, Upstream};
use policy::{BaseLayer, CeilingLayer, EffectivePolicy, PolicySource, Preset};
use protocol::{
    BodyRef, ContentPart, CreateSession, Event, EventBody, ItemKind, ItemRole, Permission, PermissionReply, SessionId,
    TurnOutcome,
};
use sandbox::JailBackend;
use serde_json::Value;
use session::{
    AcceptedMessage, AgentRegistry, HostVariables, SessionHostConfig, SessionOptions, SessionTimeouts, Sessions,
    UpstreamRegistry, UserMessage,
};
use store::{DataDir, Durability, FileBodyStore, JournalTail, SqliteLedger, SystemClock};
use tempfile::TempDir;

use crate::tested_agent::TestedAgent;
use crate::{model_script, observed_capabilities, outline};

/// Budget that stops an agent which retries without limit.
pub(crate) const MAX_REQUESTS: u64 = 60;

/// The context of a scenario.
pub(crate) struct Scenario {
    pub(crate) agent: TestedAgent,
    pub(crate) backend: Arc<JailBackend>,
    pub(crate) name: &'static str,
    directory: TempDir,
}

/// The session of a scenario.
pub(crate) struct ScenarioSession {
    pub(crate) agent: TestedAgent,
    backend: Arc<JailBackend>,
    scenario: &'static str,
    directory: TempDir,
    pub(crate) sessions: Sessions,
    pub(crate) ledger: Arc<SqliteLedger>,
    pub(crate) id: SessionId,
}

/// The answer to all requests of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum UserReply {
    /// Allow once, and choose the last option.
    Yes,
    /// Allow for the rest of the session, and choose the last option.
    Always,
    /// Deny.
    No,
}

impl Scenario {
    /// Returns the context of a new session, with a directory of its own.
    pub(crate) fn new(agent: TestedAgent, backend: Arc<JailBackend>, name: &'static str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let workspace = directory.path().join("workspace");
        std::fs::create_dir(&workspace).unwrap();
        Self { agent: TestedAgent { workspace, ..agent }, backend, name, directory }
    }

    /// Returns the same context for another session.
    pub(crate) fn again(&self) -> Self {
        Self::new(self.agent.clone(), self.backend.clone(), self.name)
    }

    /// Opens a session in the agent's usual permission mode.
    pub(crate) async fn open(self) -> ScenarioSession {
        let mode = self.agent.mode();
        self.open_with(mode, SessionTimeouts::default()).await
    }

    pub(crate) async fn open_with(self, mode: &str, timing: SessionTimeouts) -> ScenarioSession {
        self.open_with_policy(mode, timing, policy(MAX_REQUESTS), |_, _| {}).await
    }

    /// Opens a session after `complete` has changed the request. It gets the parent directory of the workspace.
    pub(crate) async fn open_with_request(
        self,
        mode: &str,
        timing: SessionTimeouts,
        complete: impl FnOnce(&Path, &mut CreateSession),
    ) -> ScenarioSession {
        self.open_with_policy(mode, timing, policy(MAX_REQUESTS), complete).await
    }

    /// Opens a session without a budget.
    pub(crate) async fn open_without_budget(self) -> ScenarioSession {
        let mode = self.agent.mode();
        self.open_with_policy(mode, SessionTimeouts::default(), policy(0), |_, _| {}).await
    }

    /// Opens a session whose model is behind `upstream`.
    pub(crate) async fn open_with_upstream(
        self,
        upstream: Arc<dyn Upstream>,
        complete: impl FnOnce(&Path, &mut CreateSession),
    ) -> ScenarioSession {
        let (mode, timing) = (self.agent.mode(), SessionTimeouts::default());
        self.open_complete(mode, timing, policy(MAX_REQUESTS), upstream, complete).await
    }

    async fn open_with_policy(
        self,
        mode: &str,
        timing: SessionTimeouts,
        policy: Arc<EffectivePolicy>,
        complete: impl FnOnce(&Path, &mut CreateSession),
    ) -> ScenarioSession {
        let upstream = Arc::new(model_script::model(&self.agent));
        self.open_complete(mode, timing, policy, upstream, complete).await
    }

    async fn open_complete(
        self,
        mode: &str,
        timing: SessionTimeouts,
        policy: Arc<EffectivePolicy>,
        upstream: Arc<dyn Upstream>,
        complete: impl FnOnce(&Path, &mut CreateSession),
    ) -> ScenarioSession {
        let (sessions, ledger) = sessions(&self.agent, &self.backend, &self.directory, timing, policy, upstream);
        let id = SessionId::new("conformance").unwrap();
        let mut request = CreateSession {
            agent: self.agent.name.to_owned(),
            directory: Some(self.agent.workspace.to_str().unwrap().to_owned()),
            permission_mode: Some(mode.to_owned()),
            ..CreateSession::default()
        };
        complete(self.directory.path(), &mut request);
        sessions.create(id.clone(), request, SessionOptions::default()).await.unwrap();
        let Scenario { agent, backend, name: scenario, directory } = self;
        ScenarioSession { agent, backend, scenario, directory, sessions, ledger, id }
    }
}

fn sessions(
    agent: &TestedAgent,
    backend: &Arc<JailBackend>,
    directory: &TempDir,
    timing: SessionTimeouts,
    policy: Arc<EffectivePolicy>,
    upstream: Arc<dyn Upstream>,
) -> (Sessions, Arc<SqliteLedger>) {
    let agents = AgentRegistry::default()
        .with(&MockAgent, std::env::current_exe().unwrap())
        .with_installed(agent.installed.clone());
    let data = DataDir::open(directory.path().join("data")).unwrap();
    let opened = SqliteLedger::claim(&data, Durability::Normal, Arc::new(SystemClock)).unwrap();
    let ledger = Arc::new(opened.ledger);
    let sessions = Sessions::open(SessionHostConfig {
        data_dir: data,
        clock: Arc::new(SystemClock),
        agents,
        backend: backend.clone(),
        gateway: Gateway::new(GatewayConfig {
            prices: PriceTable::default(),
            ledger: ledger.clone(),
            budgets: Vec::new(),
        }),
        gateway_limits: GatewayLimits::default(),
        upstream,
        policy,
        egress: egress::Egress::default(),
        timeouts: timing,
        budget: session::HostBudget::default(),
        project_policy: None,
        lifetime: session::SessionLifetime::default(),
        upstreams: UpstreamRegistry::default(),
        agent_defaults: session::AgentDefaults::default(),
        variables: HostVariables::default(),
    })
    .unwrap();
    (sessions, ledger)
}

pub(crate) fn policy(max_requests: u64) -> Arc<EffectivePolicy> {
    let limit = format!("max_requests: {max_requests}");
    let text = Preset::Balanced.source().text().replace("max_requests: 1000", &limit);
    assert!(text.contains(&limit), "{text}");
    let base = BaseLayer::read(&PolicySource::new("conformance", text)).unwrap();
    Arc::new(policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]))
}

impl ScenarioSession {
    /// Closes everything and opens the same data directory again, as after a restart of the host.
    pub(crate) async fn restart(self) -> Self {
        let Self { agent, backend, scenario, directory, sessions: before, ledger, id } = self;
        before.close_all().await;
        // These objects own the sessions and calls of the data directory.
        drop((before, ledger));
        let (timing, upstream) = (SessionTimeouts::default(), Arc::new(model_script::model(&agent)));
        let (sessions, ledger) = sessions(&agent, &backend, &directory, timing, policy(MAX_REQUESTS), upstream);
        sessions.recover().await.unwrap();
        Self { agent, backend, scenario, directory, sessions, ledger, id }
    }

    pub(crate) async fn send(&self, text: &str) -> AcceptedMessage {
        self.sessions.send(&self.id, UserMessage::text(text)).await.unwrap()
    }

    /// Sends a text and answers requests until the turn has ended.
    pub(crate) async fn turn(&self, text: &str, answer: UserReply) -> TurnEvents {
        self.send_and_wait(UserMessage::text(text), answer).await
    }

    /// Sends a message and answers requests until the turn has ended.
    pub(crate) async fn send_and_wait(&self, message: UserMessage, answer: UserReply) -> TurnEvents {
        let text = message.text.clone();
        let accepted = self.sessions.send(&self.id, message).await.unwrap();
        let mut tail = JournalTail::new(self.sessions.journal(&self.id).unwrap(), accepted.sequence);
        let mut turn = TurnEvents { text, events: Vec::new() };
        while !turn.has_ended() {
            let events = tail.next(1).await.unwrap();
            assert!(!events.is_empty(), "the journal ended before the turn: {turn:#?}");
            for event in events {
                self.react(&event, answer).await;
                turn.events.push(event);
            }
        }
        turn
    }

    /// Waits for an event in the journal after `sequence`.
    pub(crate) async fn until(&self, sequence: u64, wanted: impl Fn(&EventBody) -> bool) -> Event {
        let mut tail = JournalTail::new(self.sessions.journal(&self.id).unwrap(), sequence);
        loop {
            let events = tail.next(1).await.unwrap();
            let end = events.is_empty();
            if let Some(event) = events.into_iter().find(|event| wanted(&event.draft.body)) {
                return event;
            }
            assert!(!end, "the journal ended before the event");
        }
    }

    /// Returns all events of the journal.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.sessions.journal(&self.id).unwrap().after(0, usize::MAX).unwrap()
    }

    /// Returns the bodies of all model requests and responses.
    pub(crate) fn bodies(&self) -> Vec<u8> {
        self.stored_bodies(|event| request(event).or(response(event))).concat()
    }

    /// Returns the bodies of all model requests.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.stored_bodies(request).iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
    }

    /// Returns the stored bodies that `wanted` selects.
    fn stored_bodies(&self, wanted: impl Fn(&EventBody) -> Option<&BodyRef>) -> Vec<Vec<u8>> {
        let (bodies, events) = (FileBodyStore::new(&self.data()), self.events());
        events.iter().filter_map(|event| wanted(&event.draft.body)).map(|body| bodies.get(body).unwrap()).collect()
    }

    /// Returns the data directory.
    pub(crate) fn data(&self) -> DataDir {
        DataDir::open(self.directory.path().join("data")).unwrap()
    }

    /// Returns the path of a workspace file on the host.
    pub(crate) fn on_host(&self, name: &str) -> PathBuf {
        self.directory.path().join("workspace").join(name)
    }

    /// Ends the session without checks.
    pub(crate) async fn discard(self) {
        self.sessions.terminate(&self.id).await.unwrap();
        self.sessions.close_all().await;
    }

    /// Ends the session and checks all of its events.
    pub(crate) async fn close(self) {
        self.sessions.terminate(&self.id).await.unwrap();
        self.sessions.close_all().await;
        self.check_events();
    }

    /// Checks the events of an ended session: capabilities, unknown messages and outline.
    pub(crate) fn check_events(&self) {
        let events = self.events();
        observed_capabilities::note(self.agent.name, &events);
        observed_capabilities::check_understood(self.agent.name, &events);
        outline::check(self.agent.name, self.scenario, &events);
    }

    async fn react(&self, event: &Event, answer: UserReply) {
        match &event.draft.body {
            EventBody::PermissionRequested(request) if needs_answer(request) => {
                let reply = match answer {
                    UserReply::Yes => PermissionReply::Once,
                    UserReply::Always => PermissionReply::Always,
                    UserReply::No => PermissionReply::Reject,
                };
                self.sessions.reply_permission(&self.id, &request.permission_id, reply).await.unwrap();
            }
            EventBody::QuestionRequested(request) => {
                let chosen = request.options.last().cloned().unwrap();
                self.sessions.reply_question(&self.id, &request.question_id, vec![vec![chosen]]).await.unwrap();
            }
            _ => {}
        }
    }
}

/// Returns whether a person must answer. A request that an earlier grant covers is in the journal as well.
fn needs_answer(request: &Permission) -> bool {
    request.metadata.as_ref().is_none_or(|metadata| metadata.get("granted_by").is_none())
}

fn request(event: &EventBody) -> Option<&BodyRef> {
    match event {
        EventBody::AnthropicRequest(call) | EventBody::OpenaiRequest(call) | EventBody::GeminiRequest(call) => {
            Some(&call.body)
        }
        _ => None,
    }
}

fn response(event: &EventBody) -> Option<&BodyRef> {
    match event {
        EventBody::AnthropicResponse(call) | EventBody::OpenaiResponse(call) | EventBody::GeminiResponse(call) => {
            Some(&call.body)
        }
        _ => None,
    }
}

/// The events of one turn.
pub(crate) struct TurnEvents {
    pub(crate) text: String,
    pub(crate) events: Vec<Event>,
}

impl std::fmt::Debug for TurnEvents {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "`{}`:", self.text)?;
        for event in &self.events {
            let line = serde_json::to_string(&event.draft.body).unwrap();
            writeln!(f, "  {}", line.chars().take(400).collect::<String>())?;
        }
        Ok(())
    }
}

impl TurnEvents {
    fn has_ended(&self) -> bool {
        let ends = |event: &Event| matches!(event.draft.body, EventBody::TurnEnded(_) | EventBody::SessionEnded(_));
        self.events.iter().any(ends)
    }

    /// Returns the outcome of the turn.
    pub(crate) fn outcome(&self) -> Option<TurnOutcome> {
        self.events.iter().find_map(|event| match &event.draft.body {
            EventBody::TurnEnded(ended) => ended.outcome,
            _ => None,
        })
    }

    /// Returns the text of all messages of the agent.
    pub(crate) fn text(&self) -> String {
        let items = self.events.iter().filter_map(|event| match &event.draft.body {
            EventBody::ItemCompleted(completed) => Some(&completed.item),
            _ => None,
        });
        let messages = items.filter(|item| item.kind == ItemKind::Message && item.role == Some(ItemRole::Assistant));
        let parts = messages.flat_map(|item| &item.content).filter_map(|part| match part {
            ContentPart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        parts.collect::<Vec<_>>().join("\n")
    }

    /// Returns how often a person was request for a permission.
    pub(crate) fn permission_count(&self) -> usize {
        let asks = |event: &&Event| matches!(&event.draft.body, EventBody::PermissionRequested(request) if needs_answer(request));
        self.events.iter().filter(asks).count()
    }

    /// Returns whether an event matches.
    pub(crate) fn has(&self, wanted: impl Fn(&EventBody) -> bool) -> bool {
        self.events.iter().any(|event| wanted(&event.draft.body))
    }
}

/// Returns a short timeout for silence that still lets an agent reason.
pub(crate) fn short_timeouts(agent: &TestedAgent) -> SessionTimeouts {
    // A real agent prints nothing while it starts, which takes long on a busy machine.
    let silence = Duration::from_secs(if agent.name == "mock" { 2 } else { 45 });
    SessionTimeouts { silence, ..SessionTimeouts::default() }
}
