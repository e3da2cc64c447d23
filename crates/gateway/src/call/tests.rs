//! Tests of the order in which a call is written to the ledger and the journal.

use std::sync::Mutex;

use base::lock;
use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};
use protocol::{Event, EventBody, EventDraft, SessionId};
use store::{
    CallProgress, DataDir, Durability, Journal, JournalError, Ledger, LedgerError, LedgerReply, MemoryJournal,
    SqliteLedger, StoredRange, SystemClock, UnknownCall, UsageGrouping, UsageRow,
};
use tokio::sync::watch;

use super::*;
use crate::{
    body_store::MemoryBodyStore,
    identity::{AuthenticationError, GatewayLimits},
    price::{ModelPrice, PriceTable, TokenRates, UsageBound},
    request_fields::ReasoningRequest,
    token::SessionToken,
    upstream::{Upstream, UpstreamResponse},
    workers::WorkerPool,
};

/// The names of ledger operations and events, in the order of their writes.
type WriteLog = Arc<Mutex<Vec<&'static str>>>;

struct LoggingLedger(SqliteLedger, WriteLog);

impl Ledger for LoggingLedger {
    fn submit(&self, operations: Vec<LedgerOperation>) -> Vec<LedgerReply> {
        lock(&self.1).extend(operations.iter().map(|operation| match operation {
            LedgerOperation::Hold(_) => "hold",
            LedgerOperation::Settle(..) => "settle",
            LedgerOperation::Fail(..) => "fail",
            LedgerOperation::Advance(_, CallProgress::Lost) => "unknown",
            _ => "other operation",
        }));
        self.0.submit(operations)
    }

    fn unknowns(&self) -> Result<Vec<UnknownCall>, LedgerError> {
        self.0.unknowns()
    }

    fn usage(&self, by: UsageGrouping, since_ms: i64) -> Result<Vec<UsageRow>, LedgerError> {
        self.0.usage(by, since_ms)
    }
}

struct LoggingJournal(MemoryJournal, WriteLog);

impl Journal for LoggingJournal {
    fn store(&self, drafts: &[EventDraft]) -> Result<StoredRange, JournalError> {
        let stored = self.0.store(drafts)?;
        lock(&self.1).extend(drafts.iter().map(|draft| match &draft.body {
            EventBody::AnthropicRequest(_) => "request event",
            EventBody::AnthropicResponse(_) => "response event",
            EventBody::UpstreamError(_) => "error event",
            EventBody::LlmCall(_) => "call event",
            _ => "other event",
        }));
        Ok(stored)
    }

    fn after(&self, sequence: u64, limit: usize) -> Result<Vec<Event>, JournalError> {
        self.0.after(sequence, limit)
    }

    fn last(&self) -> watch::Receiver<u64> {
        self.0.last()
    }

    fn sync(&self) -> Result<(), JournalError> {
        self.0.sync()
    }
}

/// An upstream that is never called.
struct UnusedUpstream;

impl Upstream for UnusedUpstream {
    fn name(&self) -> &'static str {
        "unused"
    }

    fn models(&self) -> Vec<String> {
        Vec::new()
    }

    fn send(&self, _: UpstreamRequest) -> BoxFuture<'_, Result<UpstreamResponse, UpstreamFailure>> {
        Box::pin(async { Err(UpstreamFailure::Cut) })
    }
}

struct Fixture {
    _directory: tempfile::TempDir,
    _workers: WorkerPool,
    log: WriteLog,
    context: ConnectionContext,
    identity: Arc<GatewayIdentity>,
}

impl Fixture {
    fn new() -> Self {
        let log = WriteLog::default();
        let directory = tempfile::tempdir().unwrap();
        let data = DataDir::open(directory.path()).unwrap();
        let ledger = SqliteLedger::claim(&data, Durability::Normal, Arc::new(SystemClock)).unwrap().ledger;
        let ledger: Arc<dyn Ledger> = Arc::new(LoggingLedger(ledger, log.clone()));
        let workers = WorkerPool::new(ledger.clone());
        let rates = TokenRates { input: 1, output: 1, ..TokenRates::default() };
        let prices = Arc::new(PriceTable::default().with_price("m", ModelPrice::flat(rates)));
        let context = ConnectionContext {
            lookup: Arc::new(|_| Err(AuthenticationError::OtherSession)),
            billing: Billing { prices, ledger, budgets: Arc::new([]), queue: Arc::default() },
            limits: GatewayLimits::default(),
            tasks: AttachmentTasks::new(workers.next().unwrap()),
        };
        let session = SessionId::new("s1").unwrap();
        let journal = MemoryJournal::new(session.clone(), Arc::new(SystemClock));
        let identity = GatewayIdentity {
            session,
            token: SessionToken::issue().0,
            account: "a1".into(),
            user: None,
            key: None,
            agent: None,
            run: "r1".into(),
            attempt: 1,
            journal: Arc::new(LoggingJournal(journal, log.clone())),
            bodies: Arc::new(MemoryBodyStore::default()),
            turn: Arc::new(crate::identity::NoTurn),
            upstream: Arc::new(UnusedUpstream),
            policy: None,
            budgets: Vec::new(),
            limits: GatewayLimits::default(),
            in_flight: base::ByteBudget::new(1 << 20),
        };
        Self { _directory: directory, _workers: workers, log, context, identity: Arc::new(identity) }
    }

    async fn hold(&self) -> Result<ModelCall, CallRefusal> {
        let bound = UsageBound { input_tokens: 1, output_tokens: Some(1), answers: 1, hour_cache: false };
        let fields = RequestFields {
            model: "m".to_owned(),
            stream: false,
            bound,
            service_tier: None,
            reasoning: ReasoningRequest::default(),
            searches: 0,
            open_prompt: false,
        };
        let request = UpstreamRequest {
            endpoint: ModelEndpoint::Messages,
            method: Method::POST,
            path_and_query: "/v1/messages".to_owned(),
            headers: HeaderMap::new(),
            body: Bytes::from_static(b"{}"),
            model: "m".to_owned(),
            stream: false,
            call: CallId::new("call_1").unwrap(),
            session: self.identity.session.clone(),
            account: self.identity.account.clone(),
            run: self.identity.run.clone(),
            attempt: 1,
            user: None,
            progress: SendProgress::default(),
        };
        ModelCall::hold(&self.context, self.identity.clone(), fields, &request, &Arc::default()).await
    }

    async fn sent(&self) -> ModelCall {
        let mut call = self.hold().await.unwrap();
        call.mark_sent();
        call
    }

    fn writes(&self) -> Vec<&'static str> {
        lock(&self.log).clone()
    }
}

fn successful_end() -> CallEnd {
    let usage = Usage { input_tokens: 1, output_tokens: 1, ..Usage::default() };
    let response = ReceivedResponse {
        body: Bytes::from_static(b"{}"),
        stream: false,
        reading: MeterReading { usage, complete: true, ..MeterReading::default() },
        time_to_first_byte: Duration::ZERO,
        upstream_call_id: None,
    };
    CallEnd {
        status: 200,
        response: Some(response),
        failure: None,
        reached_upstream: true,
        estimate: None,
        duration: Duration::ZERO,
    }
}

#[tokio::test]
async fn call_is_held_before_its_request_is_recorded_and_recorded_before_it_is_settled() {
    // With one call in flight, and with a second one, so that the writes go out in batches.
    for others in 0..2 {
        let fixture = Fixture::new();
        let _others: Vec<_> = (0..others).map(|_| fixture.context.tasks.writer().begin_call()).collect();
        fixture.sent().await.finish(successful_end()).await;
        assert_eq!(fixture.writes(), ["hold", "request event", "response event", "call event", "settle"]);
    }
}

#[tokio::test]
async fn dropped_call_records_itself_as_given_up() {
    let fixture = Fixture::new();
    drop(fixture.sent().await);
    assert_eq!(fixture.writes(), ["hold", "request event", "error event", "call event", "unknown"]);
}

#[tokio::test]
async fn hold_of_a_call_that_cannot_be_recorded_is_released() {
    let fixture = Fixture::new();
    let ended: EventBody =
        serde_json::from_str(r#"{"type":"session.ended","data":{"reason":"terminated","terminated_by":"daemon"}}"#)
            .unwrap();
    fixture.identity.journal.append(EventDraft::daemon(ended)).unwrap();
    let refused = fixture.hold().await.err().unwrap();
    assert!(matches!(refused, CallRefusal::SessionEnded), "{refused}");
    assert_eq!(fixture.writes(), ["other event", "hold", "fail"]);
}
