//! Settles calls whose host died before it settled them.
//!
//! The journal is written before a call is sent and before it is settled, so it knows more than the ledger. A call
//! whose end is in the journal is closed by the usual rule. A call whose request is not in the journal was never sent.
//! A call that was sent and whose host died is charged for the most that it can have cost, which is never more than its
//! hold. It is marked as an estimate, so that a person can correct it. Every other call stays unknown: held and listed.

use std::collections::{BTreeMap, HashMap};

use base::error_chain;
use http::Method;
use protocol::{CallId, EventBody, LlmCall, ModelRequest, SessionId, UpstreamError, Usage};
use store::{CallCharge, DataDir, FileBodyStore, JournalError, JournalReader, LedgerError, UNPRICED_HASH, UnknownCall};

use crate::{
    Gateway,
    call::{CallFacts, CallOutcome, HoldPlan},
    endpoint::Route,
    price::PriceTable,
    request_fields::RequestFields,
};

/// Events read at a time.
const PAGE_SIZE: usize = 1_000;

/// The number of unknown calls by their result.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReconcileReport {
    /// Calls charged according to the journal.
    pub settled: u64,
    /// Calls charged for the most that they can have cost.
    pub estimated: u64,
    /// Calls that cost nothing.
    pub failed: u64,
    /// Calls that are still unknown.
    pub unknown: u64,
}

/// The events of one call in a journal.
#[derive(Debug, Default)]
struct CallTrace {
    request: Option<ModelRequest>,
    /// Status and usage of the recorded response.
    response: Option<(u16, Usage)>,
    failure: Option<String>,
    end: Option<LlmCall>,
}

impl Gateway {
    /// Closes every unknown call whose end is in its journal in `directory`, and every call whose host died. Waits for
    /// the disk.
    ///
    /// A journal that cannot be read is logged, and its calls stay unknown. Fails if the ledger cannot be used.
    pub fn settle_unknown_calls(&self, directory: &DataDir) -> Result<ReconcileReport, LedgerError> {
        let mut by_session: BTreeMap<SessionId, Vec<UnknownCall>> = BTreeMap::new();
        for unknown in self.ledger().unknowns()? {
            by_session.entry(unknown.session.clone()).or_default().push(unknown);
        }
        let (mut report, bodies) = (ReconcileReport::default(), FileBodyStore::new(directory));
        for (session, calls) in by_session {
            match read_traces(directory, &session, &calls) {
                Ok(traces) => self.close(&calls, &traces, &bodies, &mut report)?,
                Err(error) => {
                    tracing::warn!(%session, error = error_chain(&error), "cannot read the journal of unknown calls");
                    report.unknown += calls.len() as u64;
                }
            }
        }
        Ok(report)
    }

    fn close(
        &self,
        calls: &[UnknownCall],
        traces: &HashMap<&CallId, CallTrace>,
        bodies: &FileBodyStore,
        report: &mut ReconcileReport,
    ) -> Result<(), LedgerError> {
        for unknown in calls {
            let Some(trace) = traces.get(&unknown.call) else { continue };
            let outcome = trace.outcome(unknown, self.prices());
            match outcome {
                Some((CallOutcome::Settled(usage), picos)) => {
                    self.ledger()
                        .settle(unknown.call.clone(), CallCharge { usage, picos, estimated: trace.is_estimated() })
                        .wait()?;
                    report.settled += 1;
                }
                Some((CallOutcome::Failed(reason), _)) => {
                    self.ledger().fail(unknown.call.clone(), reason).wait()?;
                    report.failed += 1;
                }
                Some((CallOutcome::Unknown, _)) | None => match trace.estimate(unknown, self.prices(), bodies) {
                    Some(charge) => {
                        self.ledger().settle(unknown.call.clone(), charge).wait()?;
                        report.estimated += 1;
                    }
                    None => report.unknown += 1,
                },
            }
        }
        Ok(())
    }
}

impl CallTrace {
    /// Returns the outcome and the cost of the call; `None` if the journal does not tell.
    fn outcome(&self, unknown: &UnknownCall, prices: &PriceTable) -> Option<(CallOutcome, u64)> {
        if self.request.is_none() && unknown.since_boot {
            return Some((CallOutcome::Failed("the host died before the call was sent".to_owned()), 0));
        }
        let unpriced = unknown.price_hash == UNPRICED_HASH;
        let (free, response_status) = (unknown.held_picos == 0 && !unpriced, self.response.map(|(status, _)| status));
        if self.end.is_none() && response_status.is_none() && !free {
            return None;
        }
        let estimate = self.end.as_ref().filter(|end| end.estimated).map(|end| end.usage);
        let usage = estimate.or(self.response.map(|(_, usage)| usage)).unwrap_or_default();
        let cost_picos = if free || unpriced { 0 } else { self.cost_picos(unknown, &usage, prices)? };
        let facts = CallFacts {
            response_status,
            failure: self.failure.as_deref(),
            usage,
            reached_upstream: true,
            estimated: estimate.is_some(),
            free,
        };
        Some((CallOutcome::decide(&facts), u64::try_from(cost_picos).unwrap_or(0)))
    }

    fn is_estimated(&self) -> bool {
        self.end.as_ref().is_some_and(|end| end.estimated)
    }

    /// Returns the most that a call can have cost whose host died during the call; `None` if the host did not die, or
    /// if the journal does not have the request.
    fn estimate(&self, unknown: &UnknownCall, prices: &PriceTable, bodies: &FileBodyStore) -> Option<CallCharge> {
        let elapsed = unknown.host_died_after?;
        let request = self.request.as_ref().filter(|_| self.end.is_none() && self.response.is_none())?;
        let whole_hold = (Usage::default(), unknown.held_picos);
        let plan = rebuilt_plan(request, unknown, prices, bodies);
        let (usage, picos) = plan.map_or(whole_hold, |plan| plan.cost_at_death(elapsed));
        Some(CallCharge { usage, picos: picos.min(unknown.held_picos), estimated: true })
    }

    /// Returns the recorded cost, or the cost by the prices of the hold; `None` if the prices have changed since.
    fn cost_picos(&self, unknown: &UnknownCall, usage: &Usage, prices: &PriceTable) -> Option<i64> {
        if let Some(end) = &self.end {
            return Some(end.cost_picos);
        }
        let price = prices.get(&unknown.model).filter(|_| **prices.version() == *unknown.price_hash)?;
        Some(price.cost_picos(usage))
    }
}

/// Returns the plan of the hold of a stream, made from its recorded request. `None` if it does not give exactly the held
/// amount: the hold has changed, the prices have changed, or the body is redacted.
///
/// A vendor may complete a response that is not streamed after the connection is closed, so it has no plan.
fn rebuilt_plan(
    request: &ModelRequest,
    unknown: &UnknownCall,
    prices: &PriceTable,
    bodies: &FileBodyStore,
) -> Option<HoldPlan> {
    let (_, target) = request.path.split_once(' ')?;
    let path = target.split_once('?').map_or(target, |(path, _)| path);
    let Route::Call(endpoint) = Route::of(&Method::POST, path) else { return None };
    let body = bodies.get(&request.body).ok()?;
    let fields = RequestFields::read(endpoint, path, &body).ok().filter(|fields| fields.stream)?;
    let price = prices.get(&unknown.model).filter(|_| **prices.version() == *unknown.price_hash)?;
    let plan = HoldPlan::new(price, price.service(fields.service_tier.as_deref())?, &fields);
    (plan.picos() == unknown.held_picos).then_some(plan)
}

/// Reads the events of `calls` in the journal of `session`. Changes nothing: a torn journal is repaired when the
/// session is opened.
fn read_traces<'c>(
    directory: &DataDir,
    session: &SessionId,
    calls: &'c [UnknownCall],
) -> Result<HashMap<&'c CallId, CallTrace>, JournalError> {
    let journal = JournalReader::open(directory.journal(session), session.clone())?;
    let mut traces: HashMap<&CallId, CallTrace> =
        calls.iter().map(|unknown| (&unknown.call, CallTrace::default())).collect();
    let mut seen = 0;
    loop {
        let page = journal.after(seen, PAGE_SIZE)?;
        let Some(last) = page.last() else { return Ok(traces) };
        seen = last.sequence;
        for event in page {
            add_event(event.draft.body, &mut traces);
        }
    }
}

fn add_event(body: EventBody, traces: &mut HashMap<&CallId, CallTrace>) {
    match body {
        EventBody::AnthropicRequest(request)
        | EventBody::OpenaiRequest(request)
        | EventBody::GeminiRequest(request) => {
            if let Some(trace) = traces.get_mut(&request.call_id) {
                trace.request = Some(request);
            }
        }
        EventBody::AnthropicResponse(response)
        | EventBody::OpenaiResponse(response)
        | EventBody::GeminiResponse(response) => {
            if let Some(trace) = traces.get_mut(&response.call_id) {
                trace.response = Some((response.status, response.usage));
            }
        }
        EventBody::UpstreamError(UpstreamError { call_id, message, .. }) => {
            if let Some(trace) = traces.get_mut(&call_id) {
                trace.failure = Some(message);
            }
        }
        EventBody::LlmCall(call) => {
            if let Some(trace) = traces.get_mut(&call.call_id) {
                trace.end = Some(call);
            }
        }
        _ => {}
    }
}
