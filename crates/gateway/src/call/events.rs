//! The events of a call in the journal.

use std::time::Duration;

use protocol::{BodyRef, EventBody, EventDraft, LlmCall, ModelRequest, ModelResponse, UpstreamError};

use super::{CallEnd, CallOutcome, ModelCall, ReceivedResponse, batch_writer::JournalEntry};
use crate::{headers, meter::MeterReading, upstream::UpstreamRequest};

impl ModelCall {
    /// Returns the event of the request.
    pub(super) fn request_entry(&self, stream: bool, request: &UpstreamRequest, body: BodyRef) -> JournalEntry {
        let request = ModelRequest {
            call_id: self.id.clone(),
            path: format!("{} {}", request.method, request.path_and_query),
            model: Some(self.model.clone()),
            stream,
            beta: request
                .headers
                .get(headers::BETA)
                .map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned()),
            body,
        };
        self.journal_entry(vec![self.draft(self.endpoint.dialect().request_event(request))])
    }

    /// Returns the events that record the end of the call. `body` refers to the stored response.
    pub(super) fn end_events(
        &self,
        end: CallEnd,
        body: Option<BodyRef>,
        outcome: &CallOutcome,
        cost_picos: i64,
    ) -> Vec<EventDraft> {
        let CallEnd { status, response, failure, estimate, duration, .. } = end;
        let mut events = Vec::with_capacity(3);
        if let Some(message) = failure {
            let status = response.is_some().then_some(status);
            let error = UpstreamError { call_id: self.id.clone(), status, message };
            events.push(self.draft(EventBody::UpstreamError(error)));
        }
        if let (Some(response), Some(body)) = (&response, body) {
            let response = ModelResponse {
                call_id: self.id.clone(),
                status,
                stream: response.stream,
                usage: response.reading.usage,
                stop_reason: response.reading.stop_reason.clone(),
                body,
            };
            events.push(self.draft(self.endpoint.dialect().response_event(response)));
        }
        if self.endpoint.is_charged() {
            let mut call = self.llm_call(status, response, duration);
            call.cost_picos = if matches!(outcome, CallOutcome::Failed(_)) { 0 } else { cost_picos };
            call.cost_unknown = *outcome == CallOutcome::Unknown;
            if let Some(usage) = estimate.filter(|_| !self.bill.is_free()) {
                (call.usage, call.estimated) = (usage, true);
            }
            events.push(self.draft(EventBody::LlmCall(call)));
        }
        events
    }

    /// Returns the summary of the call, without its cost.
    fn llm_call(&self, status: u16, response: Option<ReceivedResponse>, duration: Duration) -> LlmCall {
        let (reading, time_to_first_byte, upstream_call_id) = match response {
            Some(response) => (response.reading, response.time_to_first_byte, response.upstream_call_id),
            None => (MeterReading::default(), Duration::ZERO, None),
        };
        LlmCall {
            call_id: self.id.clone(),
            model: self.model.clone(),
            model_answered: reading.model,
            upstream: self.identity.upstream.name().to_owned(),
            upstream_call_id,
            usage: reading.usage,
            cost_picos: 0,
            unpriced: self.bill.model_without_price().map(str::to_owned),
            estimated: false,
            cost_unknown: false,
            status,
            ttft_micros: micros(time_to_first_byte),
            duration_micros: micros(duration),
            stop_reason: reading.stop_reason,
        }
    }

    pub(super) fn journal_entry(&self, drafts: Vec<EventDraft>) -> JournalEntry {
        JournalEntry { journal: self.identity.journal.clone(), drafts }
    }

    fn draft(&self, body: EventBody) -> EventDraft {
        let turn_id = self.turn.as_ref().map(|guard| guard.turn().clone());
        EventDraft { turn_id, ..EventDraft::daemon(body) }
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
