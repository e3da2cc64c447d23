//! A data directory, one agent in the real sandbox, and ways to wait for what happens.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use agents::MockAgent;
use gateway::{Gateway, GatewayConfig, GatewayLimits, PriceTable};
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

use crate::cast::Player;
use crate::{ability, script, shape};

/// An agent that asks without end is ended by its budget.
pub(crate) const MAX_REQUESTS: u64 = 60;

/// What every scenario is given.
pub(crate) struct World {
    pub(crate) player: Player,
    pub(crate) backend: Arc<JailBackend>,
    pub(crate) scenario: &'static str,
}

/// One agent in one session.
pub(crate) struct Stage {
    pub(crate) player: Player,
    backend: Arc<JailBackend>,
    scenario: &'static str,
    directory: TempDir,
    pub(crate) sessions: Sessions,
    pub(crate) ledger: Arc<SqliteLedger>,
    pub(crate) id: SessionId,
}

/// What is answered when an agent asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Answer {
    /// Allow it, and choose the last of the options.
    Yes,
    /// Allow it for the rest of the session, and choose the last of the options.
    Always,
    /// Refuse it.
    No,
}

impl World {
    /// The same for another session.
    pub(crate) fn again(&self) -> Self {
        Self { player: self.player.clone(), backend: self.backend.clone(), scenario: self.scenario }
    }

    /// A session in the agent's usual mode.
    pub(crate) async fn open(self) -> Stage {
        let mode = self.player.mode();
        self.open_with(mode, SessionTimeouts::default()).await
    }

    pub(crate) async fn open_with(self, mode: &str, timing: SessionTimeouts) -> Stage {
        self.open_under(mode, timing, policy(MAX_REQUESTS), |_, _| {}).await
    }

    /// The same, with a request that is completed for the folder in which the workspace is.
    pub(crate) async fn open_as(
        self,
        mode: &str,
        timing: SessionTimeouts,
        complete: impl FnOnce(&Path, &mut CreateSession),
    ) -> Stage {
        self.open_under(mode, timing, policy(MAX_REQUESTS), complete).await
    }

    /// A session whose budget is spent before its first call.
    pub(crate) async fn open_penniless(self) -> Stage {
        let mode = self.player.mode();
        self.open_under(mode, SessionTimeouts::default(), policy(0), |_, _| {}).await
    }

    async fn open_under(
        self,
        mode: &str,
        timing: SessionTimeouts,
        policy: Arc<EffectivePolicy>,
        complete: impl FnOnce(&Path, &mut CreateSession),
    ) -> Stage {
        let directory = tempfile::tempdir().unwrap();
        std::fs::create_dir(directory.path().join("workspace")).unwrap();
        let (sessions, ledger) = sessions(&self.player, &self.backend, &directory, timing, policy);
        let id = SessionId::new("conformance").unwrap();
        let mut request = CreateSession {
            agent: self.player.agent.to_owned(),
            directory: Some(directory.path().join("workspace").to_str().unwrap().to_owned()),
            permission_mode: Some(mode.to_owned()),
            ..CreateSession::default()
        };
        complete(directory.path(), &mut request);
        sessions.create(id.clone(), request, SessionOptions::default()).await.unwrap();
        let World { player, backend, scenario } = self;
        Stage { player, backend, scenario, directory, sessions, ledger, id }
    }
}

fn sessions(
    player: &Player,
    backend: &Arc<JailBackend>,
    directory: &TempDir,
    timing: SessionTimeouts,
    policy: Arc<EffectivePolicy>,
) -> (Sessions, Arc<SqliteLedger>) {
    let agents = AgentRegistry::default()
        .with(&MockAgent, std::env::current_exe().unwrap())
        .with_installed(player.installed.clone());
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
        upstream: Arc::new(script::model(player)),
        policy,
        egress: egress::Egress::default(),
        timeouts: timing,
        project_policy: None,
        upstreams: UpstreamRegistry::default(),
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

impl Stage {
    /// Ends everything and opens the same data directory again, as after a restart of the host.
    pub(crate) async fn restart(self) -> Self {
        let Self { player, backend, scenario, directory, sessions: before, ledger, id } = self;
        before.close_all().await;
        // While they are there they own its sessions and its calls.
        drop((before, ledger));
        let (sessions, ledger) =
            sessions(&player, &backend, &directory, SessionTimeouts::default(), policy(MAX_REQUESTS));
        sessions.recover().await.unwrap();
        Self { player, backend, scenario, directory, sessions, ledger, id }
    }

    pub(crate) async fn send(&self, text: &str) -> AcceptedMessage {
        self.sessions.send(&self.id, UserMessage::text(text)).await.unwrap()
    }

    /// Says something and plays along until its turn has ended.
    pub(crate) async fn turn(&self, text: &str, answer: Answer) -> Turn {
        self.turn_of(UserMessage::text(text), answer).await
    }

    /// The same, with whatever goes with the words.
    pub(crate) async fn turn_of(&self, message: UserMessage, answer: Answer) -> Turn {
        let text = message.text.clone();
        let accepted = self.sessions.send(&self.id, message).await.unwrap();
        let mut tail = JournalTail::new(self.sessions.journal(&self.id).unwrap(), accepted.sequence);
        let mut turn = Turn { text, events: Vec::new() };
        while !turn.has_ended() {
            let events = tail.next(1).await.unwrap();
            assert!(!events.is_empty(), "the record ended before the turn: {turn:#?}");
            for event in events {
                self.react(&event, answer).await;
                turn.events.push(event);
            }
        }
        turn
    }

    /// Waits for something in the record after `sequence`.
    pub(crate) async fn until(&self, sequence: u64, wanted: impl Fn(&EventBody) -> bool) -> Event {
        let mut tail = JournalTail::new(self.sessions.journal(&self.id).unwrap(), sequence);
        loop {
            let events = tail.next(1).await.unwrap();
            let end = events.is_empty();
            if let Some(event) = events.into_iter().find(|event| wanted(&event.draft.body)) {
                return event;
            }
            assert!(!end, "it never happened");
        }
    }

    /// Everything that is on record.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.sessions.journal(&self.id).unwrap().after(0, usize::MAX).unwrap()
    }

    /// Everything that models were sent and answered.
    pub(crate) fn bodies(&self) -> Vec<u8> {
        self.kept(|event| request(event).or(response(event))).concat()
    }

    /// Everything that models were sent.
    pub(crate) fn requests(&self) -> Vec<Value> {
        self.kept(request).iter().map(|body| serde_json::from_slice(body).unwrap()).collect()
    }

    /// The bodies beside the record that `wanted` finds in it.
    fn kept(&self, wanted: impl Fn(&EventBody) -> Option<&BodyRef>) -> Vec<Vec<u8>> {
        let (bodies, events) = (FileBodyStore::new(&self.data()), self.events());
        events.iter().filter_map(|event| wanted(&event.draft.body)).map(|body| bodies.get(body).unwrap()).collect()
    }

    /// Where everything is kept.
    pub(crate) fn data(&self) -> DataDir {
        DataDir::open(self.directory.path().join("data")).unwrap()
    }

    /// A file of the workspace as the host sees it.
    pub(crate) fn on_host(&self, name: &str) -> PathBuf {
        self.directory.path().join("workspace").join(name)
    }

    /// Ends the session and looks at all of it.
    pub(crate) async fn close(self) {
        self.sessions.terminate(&self.id).await.unwrap();
        self.sessions.close_all().await;
        self.look_back();
    }

    /// Looks at a session that has ended: at what it shows of its agent, and at its form.
    pub(crate) fn look_back(&self) {
        let events = self.events();
        ability::note(self.player.agent, &events);
        ability::check_understood(self.player.agent, &events);
        shape::check(self.player.agent, self.scenario, &events);
    }

    async fn react(&self, event: &Event, answer: Answer) {
        match &event.draft.body {
            EventBody::PermissionRequested(asked) if waits(asked) => {
                let reply = match answer {
                    Answer::Yes => PermissionReply::Once,
                    Answer::Always => PermissionReply::Always,
                    Answer::No => PermissionReply::Reject,
                };
                self.sessions.reply_permission(&self.id, &asked.permission_id, reply).await.unwrap();
            }
            EventBody::QuestionRequested(asked) => {
                let chosen = asked.options.last().cloned().unwrap();
                self.sessions.reply_question(&self.id, &asked.question_id, vec![vec![chosen]]).await.unwrap();
            }
            _ => {}
        }
    }
}

/// Whether a person must answer: what was granted before is on record as well, with its answer.
fn waits(asked: &Permission) -> bool {
    asked.metadata.as_ref().is_none_or(|metadata| metadata.get("granted_by").is_none())
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

/// What happened in one turn.
pub(crate) struct Turn {
    pub(crate) text: String,
    pub(crate) events: Vec<Event>,
}

impl std::fmt::Debug for Turn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        writeln!(f, "`{}`:", self.text)?;
        for event in &self.events {
            let line = serde_json::to_string(&event.draft.body).unwrap();
            writeln!(f, "  {}", line.chars().take(400).collect::<String>())?;
        }
        Ok(())
    }
}

impl Turn {
    fn has_ended(&self) -> bool {
        let ends = |event: &Event| matches!(event.draft.body, EventBody::TurnEnded(_) | EventBody::SessionEnded(_));
        self.events.iter().any(ends)
    }

    /// How it ended.
    pub(crate) fn outcome(&self) -> Option<TurnOutcome> {
        self.events.iter().find_map(|event| match &event.draft.body {
            EventBody::TurnEnded(ended) => ended.outcome,
            _ => None,
        })
    }

    /// Everything the agent said.
    pub(crate) fn words(&self) -> String {
        let items = self.events.iter().filter_map(|event| match &event.draft.body {
            EventBody::ItemCompleted(completed) => Some(&completed.item),
            _ => None,
        });
        let said = items.filter(|item| item.kind == ItemKind::Message && item.role == Some(ItemRole::Assistant));
        let parts = said.flat_map(|item| &item.content).filter_map(|part| match part {
            ContentPart::Text { text } => Some(text.as_str()),
            _ => None,
        });
        parts.collect::<Vec<_>>().join("\n")
    }

    /// How often a person was asked for a permission.
    pub(crate) fn asked(&self) -> usize {
        let asks = |event: &&Event| matches!(&event.draft.body, EventBody::PermissionRequested(asked) if waits(asked));
        self.events.iter().filter(asks).count()
    }

    /// Whether anything like it happened.
    pub(crate) fn has(&self, wanted: impl Fn(&EventBody) -> bool) -> bool {
        self.events.iter().any(|event| wanted(&event.draft.body))
    }
}

/// Short enough for a test, long enough for an agent that only thinks.
pub(crate) fn impatient(player: &Player) -> SessionTimeouts {
    // A real agent starts silently, and takes a while where others are at work; whoever waits here costs nothing.
    let silence = Duration::from_secs(if player.agent == "mock" { 2 } else { 45 });
    SessionTimeouts { silence, ..SessionTimeouts::default() }
}
