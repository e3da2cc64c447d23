//! The handler of model calls: policy check → hold → send → response.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, ready},
};

use base::{ByteReservation, error_chain};
use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{HeaderValue, Response, StatusCode, header, request::Parts};
use http_body_util::Either;
use policy::Action;
use protocol::{BudgetExceeded, CallId, ErrorData, EventBody, EventDraft, Usage};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{
    CallEnd, ModelCall, SendProgress,
    tee::{ResponseHead, ResponseLimits, Tee},
};
use crate::{
    endpoint::ModelEndpoint,
    headers,
    identity::GatewayIdentity,
    query,
    refusal::{CallRefusal, ResponseBody},
    request_fields::RequestFields,
    response_budget::within_budget,
    service::ConnectionContext,
    translate::translation_bytes,
    upstream::{UpstreamFailure, UpstreamRequest, UpstreamResponse},
};

/// Makes the calls of one authenticated client.
#[derive(Clone)]
pub(crate) struct CallHandler {
    pub(crate) identity: Arc<GatewayIdentity>,
    pub(crate) context: Arc<ConnectionContext>,
}

impl CallHandler {
    /// Makes one call and returns the response. The call continues if the client disconnects.
    pub(crate) async fn handle(
        &self,
        endpoint: ModelEndpoint,
        parts: &Parts,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, CallRefusal> {
        let fields = RequestFields::read(endpoint, parts.uri.path(), &body)?;
        self.check_policy(&fields.model)?;
        let request = self.upstream_request(endpoint, parts, body, &fields)?;
        let waits = Arc::<AtomicBool>::default();
        let client_left = CancellationToken::new();
        let call = Box::pin(self.clone().send(fields, request, waits.clone(), client_left.clone()));
        PendingCall { call: Some(call), waits, client_left, context: self.context.clone() }.await
    }

    /// Refuses a model that the policy does not allow, and records the refusal.
    fn check_policy(&self, model: &str) -> Result<(), CallRefusal> {
        let Some(policy) = &self.identity.policy else { return Ok(()) };
        let decision = policy.decide(&Action::Model(model.to_owned()));
        if decision.is_allowed() {
            return Ok(());
        }
        let refusal = CallRefusal::ModelDenied { model: model.to_owned(), rule: decision.rule };
        let code = refusal.code().map(|code| code.as_str().to_owned());
        self.record(EventBody::Error(ErrorData { message: refusal.to_string(), code, details: None }));
        Err(refusal)
    }

    /// Records which limit was exceeded or which price is missing, if that is the reason of the refusal.
    fn record_exceeded_limit(&self, refusal: &CallRefusal) {
        let message = refusal.to_string();
        let limit = match refusal {
            CallRefusal::PriceUnknown { .. } => {
                let code = refusal.code().map(|code| code.as_str().to_owned());
                return self.record(EventBody::Error(ErrorData { message: refusal.to_string(), code, details: None }));
            }
            CallRefusal::BudgetSpent(exceeded) => exceeded.limit.name,
            CallRefusal::CostTooHigh(_) => "budget_usd",
            // The client may try again, so the budget does not end the turn.
            CallRefusal::BudgetHeld(_) | CallRefusal::FieldRefused { .. } => {
                let code = refusal.code().map(|code| code.as_str().to_owned());
                self.record(EventBody::Error(ErrorData { message, code, details: None }));
                return;
            }
            _ => return,
        };
        self.record(EventBody::BudgetExceeded(BudgetExceeded { limit: limit.to_owned(), message }));
    }

    fn record(&self, body: EventBody) {
        let turn = self.identity.turn.join();
        let draft = EventDraft::daemon(body).in_turn(turn.as_ref().map(|guard| guard.turn().clone()));
        if let Err(error) = self.identity.journal.append(draft) {
            tracing::error!(%error, "cannot record why a call was refused");
        }
    }

    fn upstream_request(
        &self,
        endpoint: ModelEndpoint,
        parts: &Parts,
        body: Bytes,
        fields: &RequestFields,
    ) -> Result<UpstreamRequest, CallRefusal> {
        Ok(UpstreamRequest {
            endpoint,
            method: parts.method.clone(),
            path_and_query: parts
                .uri
                .path_and_query()
                .map_or_else(|| "/".to_owned(), |path| query::without_credentials(path.as_str())),
            headers: headers::for_upstream(&parts.headers),
            body,
            model: fields.model.clone(),
            stream: fields.stream,
            call: new_call_id()?,
            session: self.identity.session.clone(),
            account: self.identity.account.clone(),
            run: self.identity.run.clone(),
            attempt: self.identity.attempt,
            user: self.identity.user.clone(),
            progress: SendProgress::default(),
        })
    }

    /// Holds the call, sends it, and returns the head of the response with a body that is still arriving.
    async fn send(
        self,
        fields: RequestFields,
        mut request: UpstreamRequest,
        waits: Arc<AtomicBool>,
        client_left: CancellationToken,
    ) -> Result<Response<ResponseBody>, CallRefusal> {
        let endpoint = request.endpoint;
        let room = self.reserve_translation(&request).await?;
        let mut call = ModelCall::hold(&self.context, self.identity.clone(), fields, &request, &waits)
            .await
            .inspect_err(|refusal| self.record_exceeded_limit(refusal))?;
        call.mark_sent();
        let progress = call.bill.send_progress();
        request.progress = progress.clone();
        let sent = tokio::select! {
            biased;
            () = self.context.tasks.abort().cancelled() => Err(UpstreamFailure::SessionEnded),
            () = call.interrupted() => Err(UpstreamFailure::Interrupted),
            sent = self.identity.upstream.send(request) => sent,
        };
        // The translated request was written.
        drop(room);
        match sent {
            Ok(response) => self.forward(endpoint, response, call, client_left).await,
            Err(failure) => {
                let message = error_chain(&failure);
                let reached_upstream = failure.may_have_been_served() && !progress.is_connecting();
                let cancelled = failure.is_cancellation() && reached_upstream;
                let refusal = CallRefusal::from(failure);
                let end = CallEnd {
                    status: refusal.status().as_u16(),
                    response: None,
                    failure: Some(message),
                    reached_upstream,
                    estimate: cancelled.then(|| call.cancelled_usage(Usage::default(), 0)),
                    duration: call.elapsed(),
                };
                call.finish(end).await;
                Err(refusal)
            }
        }
    }

    /// Reserves the memory that the translation of a request takes. Fails if the session has no room for it.
    async fn reserve_translation(&self, request: &UpstreamRequest) -> Result<Option<ByteReservation>, CallRefusal> {
        if !self.identity.upstream.translates(request.endpoint) {
            return Ok(None);
        }
        let (budget, needed) = (&self.identity.in_flight, translation_bytes(&request.body));
        let capacity = budget.capacity();
        if needed.saturating_add(request.body.len()) > capacity {
            return Err(CallRefusal::TranslationTooLarge { needed, capacity });
        }
        let mut room = budget.reservation();
        room.grow(needed, self.identity.limits.body_idle).await?;
        Ok(Some(room))
    }

    /// Starts to forward the response to the client.
    async fn forward(
        &self,
        endpoint: ModelEndpoint,
        response: UpstreamResponse,
        call: ModelCall,
        client_left: CancellationToken,
    ) -> Result<Response<ResponseBody>, CallRefusal> {
        let text = |name| response.headers.get(name).and_then(|value: &HeaderValue| value.to_str().ok());
        let head = ResponseHead {
            endpoint,
            status: response.status,
            stream: text(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/event-stream")),
            length: text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            hide_usage: response.hide_usage,
            upstream_call_id: text(headers::CALL_ID).map(str::to_owned),
        };
        let limits = &self.identity.limits;
        let limits = ResponseLimits { bytes: limits.answer_bytes, drain: limits.drain };
        let (budget, patience) = (&self.identity.in_flight, self.identity.limits.body_idle);
        let frames = within_budget(response.frames, budget, patience, !head.stream, client_left.clone());
        let mut headers = headers::for_client(&response.headers);
        if matches!(response.status, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) {
            // The key of the host was rejected. Some agents would retry for minutes, as if they could get another one.
            headers.entry("x-should-retry").or_insert(HeaderValue::from_static("false"));
        }
        let tee = Tee::new(head, frames, limits, call, self.context.tasks.clone(), client_left).prefetch().await?;
        let mut forwarded = Response::new(Either::Right(tee));
        *forwarded.status_mut() = response.status;
        *forwarded.headers_mut() = headers;
        Ok(forwarded)
    }
}

/// Returns a unique id for a call.
fn new_call_id() -> Result<CallId, CallRefusal> {
    let mut id = *b"call_00000000000000000000000000000000";
    Uuid::now_v7().simple().encode_lower(&mut id[5..]);
    let id = std::str::from_utf8(&id).unwrap_or_default();
    CallId::new(id).map_err(|_| CallRefusal::NotRecorded)
}

/// A call whose response has not started.
///
/// Dropped when the client disconnects. The call then continues in a separate task, because it may already have cost
/// something. A call that waits for money ends at once: nothing of it was written.
struct PendingCall {
    call: Option<BoxFuture<'static, Result<Response<ResponseBody>, CallRefusal>>>,
    /// Whether the call waits for money.
    waits: Arc<AtomicBool>,
    /// Cancelled when the client disconnects.
    client_left: CancellationToken,
    context: Arc<ConnectionContext>,
}

impl Future for PendingCall {
    type Output = Result<Response<ResponseBody>, CallRefusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.call else { return Poll::Ready(Err(CallRefusal::SessionEnded)) };
        let response = ready!(call.as_mut().poll(context));
        self.call = None;
        Poll::Ready(response)
    }
}

impl Drop for PendingCall {
    fn drop(&mut self) {
        if let Some(call) = self.call.take().filter(|_| !self.waits.load(Ordering::Acquire)) {
            self.client_left.cancel();
            // The response is dropped as well. Its tee then reads the rest, so that the call is metered.
            drop(self.context.tasks.spawn(async move { drop(call.await) }));
        }
    }
}
