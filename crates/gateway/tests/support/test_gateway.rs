//! A gateway with one session on a real loopback listener.

use std::{
    net::{SocketAddr, TcpListener},
    sync::Arc,
    time::Duration,
};

use base::ByteBudget;
use bytes::Bytes;
use gateway::{
    Gateway, GatewayAttachment, GatewayConfig, GatewayIdentity, GatewayLimits, MemoryBodyStore, ModelScript,
    PriceTable, ScriptedUpstream, SessionToken, TurnGuard, TurnTracker, Upstream,
};
use http::{Method, Request};
use http_body_util::{BodyExt, Full};
use protocol::{EventBody, SessionId, TurnId};
use serde_json::Value;
use store::{
    DataDir, Durability, Journal, Ledger, SqliteLedger, SystemClock, UnknownCall, UsageGrouping, UsageLimit, UsageRow,
};
use tempfile::TempDir;
use tokio::time::timeout;
use tokio_util::task::TaskTracker;

use super::{
    test_client::{TestClient, TestResponse},
    test_journal::TestJournal,
};

/// Time limit of every wait in a test; a working test needs only a fraction of it.
pub(crate) const TEST_TIMEOUT: Duration = Duration::from_secs(60);

/// A gateway with one session attached.
pub(crate) struct TestGateway {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) journal: Arc<TestJournal>,
    pub(crate) bodies: Arc<MemoryBodyStore>,
    pub(crate) ledger: Arc<SqliteLedger>,
    /// Holds the ledger; deleted on drop.
    directory: TempDir,
    pub(crate) attachment: GatewayAttachment,
}

/// The journal and ledger of a closed gateway.
pub(crate) struct ClosedGateway {
    pub(crate) journal: Arc<TestJournal>,
    pub(crate) ledger: Arc<SqliteLedger>,
    directory: TempDir,
}

impl ClosedGateway {
    /// Returns the usage of the session; panics if the ledger's totals are inconsistent.
    #[track_caller]
    pub(crate) fn session_usage(&self) -> UsageRow {
        let mut rows = self.ledger.usage(UsageGrouping::Session, 0).unwrap();
        assert_eq!((rows.len(), self.ledger.audit().unwrap().wrong_totals), (1, 0));
        rows.remove(0)
    }

    /// Returns the calls with an unknown cost.
    pub(crate) fn unknown_calls(&self) -> Vec<UnknownCall> {
        self.ledger.unknowns().unwrap()
    }

    /// Returns all bytes of the ledger's files.
    pub(crate) fn ledger_bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.is_file()).flat_map(|path| std::fs::read(path).unwrap()).collect()
    }
}

impl TestGateway {
    /// Starts a gateway with the scripted model; `rules` are the rules of its script.
    pub(crate) fn with_script(rules: &str) -> Self {
        Self::with_script_and_limits(rules, GatewayLimits::default())
    }

    /// Starts a gateway with the scripted model and `limits`.
    pub(crate) fn with_script_and_limits(rules: &str, limits: GatewayLimits) -> Self {
        Self::with_upstream(scripted(rules), PriceTable::default(), limits)
    }

    /// Starts a gateway with the scripted model and the budgets of its session.
    pub(crate) fn with_script_and_budgets(rules: &str, budgets: Vec<UsageLimit>) -> Self {
        Self::with_identity(scripted(rules), PriceTable::default(), |identity| identity.budgets = budgets)
    }

    /// Starts a gateway with `upstream`.
    pub(crate) fn with_upstream(upstream: Arc<dyn Upstream>, prices: PriceTable, limits: GatewayLimits) -> Self {
        Self::with_identity(upstream, prices, |identity| identity.limits = limits)
    }

    /// Starts a gateway with `upstream` for a session whose identity `change` adjusts.
    pub(crate) fn with_identity(
        upstream: Arc<dyn Upstream>,
        prices: PriceTable,
        change: impl FnOnce(&mut GatewayIdentity),
    ) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(directory.path()).unwrap();
        let ledger = Arc::new(SqliteLedger::claim(&data, Durability::Normal, Arc::new(SystemClock)).unwrap().ledger);
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = listener.local_addr().unwrap();
        let (token, text) = SessionToken::issue();
        let (journal, bodies) = (Arc::new(TestJournal::default()), Arc::new(MemoryBodyStore::default()));
        let mut identity = GatewayIdentity {
            session: SessionId::new("s1").unwrap(),
            token,
            account: "acme".into(),
            user: Some("ann".into()),
            key: None,
            agent: Some("mock".into()),
            run: "r1".into(),
            attempt: 1,
            journal: journal.clone(),
            bodies: bodies.clone(),
            turn: Arc::new(FixedTurn(TaskTracker::new())),
            upstream,
            policy: None,
            budgets: Vec::new(),
            limits: GatewayLimits::default(),
            in_flight: ByteBudget::new(64 << 20),
        };
        change(&mut identity);
        let config = GatewayConfig { prices, ledger: ledger.clone(), budgets: Vec::new() };
        let attachment = Gateway::new(config).attach(listener, identity).unwrap();
        Self { address, token: text, journal, bodies, ledger, directory, attachment }
    }

    /// Waits until every call has ended and returns the journal and the ledger.
    pub(crate) async fn close(self) -> ClosedGateway {
        self.attachment.close().await;
        ClosedGateway { journal: self.journal, ledger: self.ledger, directory: self.directory }
    }

    /// Returns a request with the session's token.
    pub(crate) fn request(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "gateway.example.com")
            .header("authorization", format!("Bearer {}", self.token))
            .body(Full::new(body.into()))
            .unwrap()
    }

    /// Sends a request on a new connection and reads the complete response.
    pub(crate) async fn fetch(&self, request: Request<Full<Bytes>>) -> TestResponse {
        let exchange = async {
            let mut client = TestClient::connect(self.address).await;
            let (parts, body) = client.send(request).await.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            TestResponse { status: parts.status, headers: parts.headers, body }
        };
        timeout(TEST_TIMEOUT, exchange).await.unwrap()
    }

    /// Sends a POST request and reads the complete response.
    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> TestResponse {
        self.fetch(self.request(Method::POST, path, body)).await
    }

    /// Returns the events so far.
    pub(crate) fn events(&self) -> Vec<EventBody> {
        self.journal.after(0, usize::MAX).unwrap().into_iter().map(|event| event.draft.body).collect()
    }

    /// Waits for the first event of type `event_type` and returns its data.
    pub(crate) async fn wait_for_event(&self, event_type: &str) -> Value {
        let found = timeout(TEST_TIMEOUT, self.find_event(event_type)).await;
        found.unwrap_or_else(|_| panic!("no event `{event_type}` was written, only {:?}", self.journal.event_types()))
    }

    async fn find_event(&self, event_type: &str) -> Value {
        let mut last = self.journal.last();
        loop {
            let mut written = self.events().into_iter().map(|body| serde_json::to_value(body).unwrap());
            if let Some(event) = written.find(|event| event["type"] == event_type) {
                return event["data"].clone();
            }
            last.changed().await.unwrap();
        }
    }

    /// Returns the recorded body that an event's data refers to.
    pub(crate) fn recorded_body(&self, data: &Value) -> Bytes {
        let body = serde_json::from_value(data["body"].clone()).unwrap();
        self.bodies.get(&body).unwrap().into()
    }
}

/// Returns an upstream with a script of `rules`.
pub(crate) fn scripted(rules: &str) -> Arc<ScriptedUpstream> {
    Arc::new(ScriptedUpstream::new(ModelScript::parse(&format!("version: 1\nrules:\n{rules}")).unwrap()))
}

/// Returns the body of a Messages request with one prompt.
pub(crate) fn prompt(text: &str, stream: bool) -> String {
    serde_json::json!({"model": "claude-test", "max_tokens": 100, "stream": stream,
        "messages": [{"role": "user", "content": text}]})
    .to_string()
}

/// A tracker whose turn is always `trn_1`.
struct FixedTurn(TaskTracker);

impl TurnTracker for FixedTurn {
    fn join(&self) -> Option<TurnGuard> {
        Some(TurnGuard::new(TurnId::new("trn_1").unwrap(), self.0.token()))
    }
}
