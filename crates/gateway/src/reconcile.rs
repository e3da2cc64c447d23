//! Finds out what calls cost whose host died before it settled them.
//!
//! The journal is written before a call is sent and before it is settled, so it knows more than the ledger:
//! a call whose end is in it is closed by the same rule as if its host had lived, and one whose request is not
//! was never sent. What it cannot tell stays as it is, held and listed.

use std::collections::{BTreeMap, HashMap};

use base::error_chain;
use protocol::{CallId, EventBody, LlmCall, SessionId, UpstreamError, Usage};
use store::{CallCharge, DataDir, JournalError, JournalReader, LedgerError, UnknownCall};

use crate::{
    Gateway,
    call::{CallFacts, CallOutcome},
    price::PriceTable,
};

/// So many events are read at a time.
const PAGE: usize = 1_000;

/// What became of the calls that were looked up.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ReconcileReport {
    /// Charged as the journal says.
    pub settled: u64,
    /// Found to have cost nothing.
    pub failed: u64,
    /// Still unknown.
    pub unknown: u64,
}

/// What a journal says of one call.
#[derive(Debug, Default)]
struct Trace {
    requested: bool,
    /// The answer that is on record: its status and its tokens.
    answered: Option<(u16, Usage)>,
    failure: Option<String>,
    end: Option<LlmCall>,
}

impl Gateway {
    /// Closes every unknown call whose end its journal in `directory` knows. Waits for the disk.
    ///
    /// A journal that cannot be read is told in the log and costs nobody else's calls their look.
    pub fn settle_unknown_calls(&self, directory: &DataDir) -> Result<ReconcileReport, LedgerError> {
        let mut by_session: BTreeMap<SessionId, Vec<UnknownCall>> = BTreeMap::new();
        for unknown in self.ledger().unknowns()? {
            by_session.entry(unknown.session.clone()).or_default().push(unknown);
        }
        let mut reconciled = ReconcileReport::default();
        for (session, calls) in by_session {
            match read(directory, &session, &calls) {
                Ok(traces) => self.close(&calls, &traces, &mut reconciled)?,
                Err(error) => {
                    tracing::warn!(%session, error = error_chain(&error), "cannot look up calls that were never settled");
                    reconciled.unknown += calls.len() as u64;
                }
            }
        }
        Ok(reconciled)
    }

    fn close(
        &self,
        calls: &[UnknownCall],
        traces: &HashMap<&CallId, Trace>,
        reconciled: &mut ReconcileReport,
    ) -> Result<(), LedgerError> {
        for unknown in calls {
            let outcome = traces.get(&unknown.call).and_then(|trace| trace.outcome(unknown, self.prices()));
            match outcome {
                Some((CallOutcome::Settled(usage), picos)) => {
                    self.ledger().settle(unknown.call.clone(), CallCharge { usage, picos }).wait()?;
                    reconciled.settled += 1;
                }
                Some((CallOutcome::Failed(reason), _)) => {
                    self.ledger().fail(unknown.call.clone(), reason).wait()?;
                    reconciled.failed += 1;
                }
                Some((CallOutcome::Unknown, _)) | None => reconciled.unknown += 1,
            }
        }
        Ok(())
    }
}

impl Trace {
    /// What the journal knows of the end, and what it cost.
    fn outcome(&self, unknown: &UnknownCall, prices: &PriceTable) -> Option<(CallOutcome, u64)> {
        if !self.requested && unknown.since_boot {
            return Some((CallOutcome::Failed("the host died before it was sent".to_owned()), 0));
        }
        let (free, answered) = (unknown.held_picos == 0, self.answered.map(|(status, _)| status));
        if self.end.is_none() && answered.is_none() && !free {
            return None;
        }
        let usage = self.answered.map(|(_, usage)| usage).unwrap_or_default();
        let cost_picos = if free { 0 } else { self.cost_picos(unknown, &usage, prices)? };
        let facts = CallFacts {
            response_status: answered,
            failure: self.failure.as_deref(),
            usage,
            reached_upstream: true,
            free,
        };
        Some((CallOutcome::decide(&facts), u64::try_from(cost_picos).unwrap_or(0)))
    }

    /// What the journal says it cost, or what the prices it was held with say; none: they have changed since.
    fn cost_picos(&self, unknown: &UnknownCall, usage: &Usage, prices: &PriceTable) -> Option<i64> {
        if let Some(end) = &self.end {
            return Some(end.cost_picos);
        }
        let price = prices.get(&unknown.model).filter(|_| **prices.version() == *unknown.price_hash)?;
        Some(price.cost_picos(usage))
    }
}

/// What the journal of `session` says of `calls`. Nothing of the journal is changed: it may be torn, and
/// whoever takes the session over cuts it and says so.
fn read<'c>(
    directory: &DataDir,
    session: &SessionId,
    calls: &'c [UnknownCall],
) -> Result<HashMap<&'c CallId, Trace>, JournalError> {
    let journal = JournalReader::open(directory.journal(session), session.clone())?;
    let mut traces: HashMap<&CallId, Trace> = calls.iter().map(|unknown| (&unknown.call, Trace::default())).collect();
    let mut seen = 0;
    loop {
        let page = journal.after(seen, PAGE)?;
        let Some(last) = page.last() else { return Ok(traces) };
        seen = last.sequence;
        for event in page {
            observe(event.draft.body, &mut traces);
        }
    }
}

fn observe(body: EventBody, traces: &mut HashMap<&CallId, Trace>) {
    match body {
        EventBody::AnthropicRequest(request)
        | EventBody::OpenaiRequest(request)
        | EventBody::GeminiRequest(request) => {
            if let Some(trace) = traces.get_mut(&request.call_id) {
                trace.requested = true;
            }
        }
        EventBody::AnthropicResponse(response)
        | EventBody::OpenaiResponse(response)
        | EventBody::GeminiResponse(response) => {
            if let Some(trace) = traces.get_mut(&response.call_id) {
                trace.answered = Some((response.status, response.usage));
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
