//! A gateway on a real loopback listener, a client for it, and a journal that can be waited for.

use std::{
    net::{SocketAddr, TcpListener},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
        mpsc,
    },
    time::Duration,
};

use bytes::Bytes;
use gateway::{
    CurrentTurn, Gateway, GatewayAttachment, GatewayConfig, GatewayIdentity, GatewayLimits, MemoryBodyStore,
    ModelScript, PriceTable, ScriptedUpstream, SessionToken, Upstream,
};
use http::{HeaderMap, Method, Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use protocol::{Event, EventBody, EventDraft, SessionId, TurnId};
use serde_json::Value;
use store::{
    DataDir, Durability, Journal, JournalError, Ledger, SqliteLedger, StoredRange, SystemClock, UnknownCall,
    UsageGrouping, UsageLimit, UsageRow,
};
use tempfile::TempDir;
use tokio::{net::TcpStream, sync::watch, task::JoinSet, time::timeout};

/// A test that waits longer than this has failed; nothing is expected to take a fraction of it.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// A journal in memory, which can be made to fail or to wait.
pub(crate) struct Notes {
    events: Mutex<Vec<Event>>,
    last: watch::Sender<u64>,
    failing: AtomicBool,
    pause: Mutex<Option<(mpsc::Sender<()>, mpsc::Receiver<()>)>>,
}

/// The end of a call is not written before somebody lets it.
pub(crate) struct Pause {
    /// Says that it is about to be written.
    pub(crate) reached: mpsc::Receiver<()>,
    /// Lets it be written.
    pub(crate) go: mpsc::Sender<()>,
}

impl Default for Notes {
    fn default() -> Self {
        let (last, failing) = (watch::Sender::new(0), AtomicBool::new(false));
        Self { events: Mutex::default(), last, failing, pause: Mutex::default() }
    }
}

impl Journal for Notes {
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        if self.failing.load(Ordering::SeqCst) {
            return Err(JournalError::Io {
                doing: "write",
                path: "s1.jsonl".into(),
                source: std::io::ErrorKind::StorageFull.into(),
            });
        }
        if drafts.iter().any(|draft| matches!(draft.body, EventBody::LlmCall(_)))
            && let Some((reached, go)) = self.pause.lock().unwrap().take()
        {
            reached.send(()).unwrap();
            go.recv().unwrap();
        }
        let mut events = self.events.lock().unwrap();
        let first = events.len() as u64 + 1;
        let (session, time) = (SessionId::new("s1").unwrap(), "2026-01-01T00:00:00Z".to_owned());
        events.extend((first..).zip(drafts).map(|(sequence, draft)| Event {
            event_id: format!("evt_{sequence}"),
            sequence,
            time: time.clone(),
            session_id: session.clone(),
            draft: draft.clone(),
        }));
        self.last.send_replace(events.len() as u64);
        Ok(StoredRange { session, first, time })
    }

    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        let events = self.events.lock().unwrap();
        Ok(events.iter().filter(|event| event.sequence > sequence).take(limit).cloned().collect())
    }

    fn last(&self) -> watch::Receiver<u64> {
        self.last.subscribe()
    }

    fn sync(&self) -> Result<(), JournalError> {
        Ok(())
    }
}

impl Notes {
    /// From now on nothing can be written.
    pub(crate) fn fail(&self) {
        self.failing.store(true, Ordering::SeqCst);
    }

    /// The next call does not end before it is let.
    pub(crate) fn pause_at_the_end(&self) -> Pause {
        let ((tell, reached), (go, wait)) = (mpsc::channel(), mpsc::channel());
        *self.pause.lock().unwrap() = Some((tell, wait));
        Pause { reached, go }
    }

    /// The names of the events so far.
    pub(crate) fn names(&self) -> Vec<String> {
        let events = self.after(0, usize::MAX).unwrap();
        events.iter().map(|event| serde_json::to_value(event).unwrap()["type"].as_str().unwrap().to_owned()).collect()
    }
}

/// A gateway with one session attached.
pub(crate) struct Desk {
    pub(crate) address: SocketAddr,
    pub(crate) token: String,
    pub(crate) notes: Arc<Notes>,
    pub(crate) bodies: Arc<MemoryBodyStore>,
    pub(crate) ledger: Arc<SqliteLedger>,
    /// The ledger's; kept until the desk is gone.
    directory: TempDir,
    pub(crate) attachment: GatewayAttachment,
}

/// What is left when a desk is closed.
pub(crate) struct Books {
    pub(crate) notes: Arc<Notes>,
    pub(crate) ledger: Arc<SqliteLedger>,
    directory: TempDir,
}

impl Books {
    /// What the session used.
    #[track_caller]
    pub(crate) fn bill(&self) -> UsageRow {
        let mut rows = self.ledger.usage(UsageGrouping::Session, 0).unwrap();
        assert_eq!((rows.len(), self.ledger.audit().unwrap().wrong_totals), (1, 0));
        rows.remove(0)
    }

    /// Calls nobody knows the end of.
    pub(crate) fn unknowns(&self) -> Vec<UnknownCall> {
        self.ledger.unknowns().unwrap()
    }

    /// Every byte the ledger has on disk.
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let files = std::fs::read_dir(self.directory.path()).unwrap().map(|entry| entry.unwrap().path());
        files.filter(|path| path.is_file()).flat_map(|path| std::fs::read(path).unwrap()).collect()
    }
}

/// What came back, whole.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: StatusCode,
    pub(crate) headers: HeaderMap,
    pub(crate) body: Bytes,
}

impl Answer {
    pub(crate) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {:?}", self.body))
    }

    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).unwrap()
    }
}

/// A connection of a client; dropped, the client has left.
pub(crate) struct Client {
    sender: hyper::client::conn::http1::SendRequest<Full<Bytes>>,
    _connection: JoinSet<()>,
}

impl Client {
    pub(crate) async fn connect(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).await.unwrap();
        let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.unwrap();
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let _ = connection.await;
        });
        Self { sender, _connection: tasks }
    }

    pub(crate) async fn send(&mut self, request: Request<Full<Bytes>>) -> http::Response<Incoming> {
        self.try_send(request).await.unwrap()
    }

    pub(crate) async fn try_send(
        &mut self,
        request: Request<Full<Bytes>>,
    ) -> Result<http::Response<Incoming>, hyper::Error> {
        self.sender.send_request(request).await
    }
}

impl Desk {
    /// A desk whose model plays `rules`, the rules of a script.
    pub(crate) fn playing(rules: &str) -> Self {
        Self::limited(rules, GatewayLimits::default())
    }

    pub(crate) fn limited(rules: &str, limits: GatewayLimits) -> Self {
        Self::before(scripted(rules), PriceTable::default(), limits)
    }

    /// A desk whose model plays `rules`, for a session with these budgets.
    pub(crate) fn budgeted(rules: &str, budgets: Vec<UsageLimit>) -> Self {
        Self::with(scripted(rules), PriceTable::default(), |identity| identity.budgets = budgets)
    }

    /// A desk before any upstream.
    pub(crate) fn before(upstream: Arc<dyn Upstream>, prices: PriceTable, limits: GatewayLimits) -> Self {
        Self::with(upstream, prices, |identity| identity.limits = limits)
    }

    /// A desk before any upstream, for a session that is told what is special about it.
    pub(crate) fn with(
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
        let (notes, bodies) = (Arc::new(Notes::default()), Arc::new(MemoryBodyStore::default()));
        let turn = CurrentTurn::default();
        turn.set(Some(TurnId::new("trn_1").unwrap()));
        let mut identity = GatewayIdentity {
            session: SessionId::new("s1").unwrap(),
            token,
            account: "acme".into(),
            user: Some("ann".into()),
            key: None,
            agent: Some("mock".into()),
            run: "r1".into(),
            attempt: 1,
            journal: notes.clone(),
            bodies: bodies.clone(),
            turn: Arc::new(turn),
            upstream,
            policy: None,
            budgets: Vec::new(),
            limits: GatewayLimits::default(),
        };
        change(&mut identity);
        let config = GatewayConfig { prices, ledger: ledger.clone(), budgets: Vec::new() };
        let attachment = Gateway::new(config).attach(listener, identity).unwrap();
        Self { address, token: text, notes, bodies, ledger, directory, attachment }
    }

    /// Lets every call end, and keeps what is written about them.
    pub(crate) async fn close(self) -> Books {
        self.attachment.close().await;
        Books { notes: self.notes, ledger: self.ledger, directory: self.directory }
    }

    /// A request with the session's token.
    pub(crate) fn request(&self, method: Method, path: &str, body: impl Into<Bytes>) -> Request<Full<Bytes>> {
        Request::builder()
            .method(method)
            .uri(path)
            .header("host", "gateway.example.com")
            .header("authorization", format!("Bearer {}", self.token))
            .body(Full::new(body.into()))
            .unwrap()
    }

    /// Sends a request and reads the whole answer.
    pub(crate) async fn fetch(&self, request: Request<Full<Bytes>>) -> Answer {
        let exchange = async {
            let mut client = Client::connect(self.address).await;
            let (parts, body) = client.send(request).await.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            Answer { status: parts.status, headers: parts.headers, body }
        };
        timeout(PATIENCE, exchange).await.unwrap()
    }

    /// Sends a body to a path and reads the whole answer.
    pub(crate) async fn post(&self, path: &str, body: impl Into<Bytes>) -> Answer {
        self.fetch(self.request(Method::POST, path, body)).await
    }

    /// The events so far.
    pub(crate) fn events(&self) -> Vec<EventBody> {
        self.notes.after(0, usize::MAX).unwrap().into_iter().map(|event| event.draft.body).collect()
    }

    /// Waits until an event of that name is written and returns its data.
    pub(crate) async fn event(&self, name: &str) -> Value {
        let found = timeout(PATIENCE, self.wait_for(name)).await;
        found.unwrap_or_else(|_| panic!("no `{name}` came, only {:?}", self.notes.names()))
    }

    async fn wait_for(&self, name: &str) -> Value {
        let mut last = self.notes.last();
        loop {
            let mut written = self.events().into_iter().map(|body| serde_json::to_value(body).unwrap());
            if let Some(event) = written.find(|event| event["type"] == name) {
                return event["data"].clone();
            }
            last.changed().await.unwrap();
        }
    }

    /// The bytes behind a body reference in an event's data.
    pub(crate) fn body(&self, data: &Value) -> Bytes {
        let body = serde_json::from_value(data["body"].clone()).unwrap();
        self.bodies.get(&body).unwrap().into()
    }
}

pub(crate) fn scripted(rules: &str) -> Arc<ScriptedUpstream> {
    Arc::new(ScriptedUpstream::new(ModelScript::parse(&format!("version: 1\nrules:\n{rules}")).unwrap()))
}

/// The next bytes of an answer.
pub(crate) async fn next_frame(body: &mut Incoming) -> Option<Bytes> {
    body.frame().await.map(|frame| frame.unwrap().into_data().unwrap())
}

/// A Messages request with one prompt.
pub(crate) fn prompt(text: &str, stream: bool) -> String {
    serde_json::json!({"model": "claude-test", "max_tokens": 100, "stream": stream,
        "messages": [{"role": "user", "content": text}]})
    .to_string()
}
