//! One call to a model: hold → record → send → tee → settle.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Response, header, request::Parts};
use http_body_util::Either;
use policy::Action;
use protocol::{BudgetExceeded, CallId, ErrorData, EventBody, EventDraft};
use uuid::Uuid;

use crate::{
    ask::Ask,
    endpoint::ModelEndpoint,
    headers,
    identity::GatewayIdentity,
    query,
    record::{CallRecord, Ending, describe},
    refusal::{Refusal, ResponseBody},
    service::Desk,
    tee::{Allowance, Head, Tee},
    upstream::{UpstreamFailure, UpstreamRequest, UpstreamResponse},
};

/// Makes the calls of one session.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) identity: Arc<GatewayIdentity>,
    pub(crate) desk: Arc<Desk>,
}

impl Caller {
    /// Makes a call, which goes on when the client leaves.
    pub(crate) async fn call(
        &self,
        endpoint: ModelEndpoint,
        parts: &Parts,
        body: Bytes,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let ask = Ask::read(endpoint, parts.uri.path(), &body)?;
        self.allow(&ask.model)?;
        let request = self.request(endpoint, parts, body, &ask)?;
        let call = Box::pin(self.clone().send(ask, request));
        CallUnderWay { call: Some(call), desk: self.desk.clone() }.await
    }

    /// Lets only models through that the policy names.
    fn allow(&self, model: &str) -> Result<(), Refusal> {
        let Some(policy) = &self.identity.policy else { return Ok(()) };
        let decision = policy.decide(&Action::Model(model.to_owned()));
        if decision.is_allowed() {
            return Ok(());
        }
        let refusal = Refusal::ModelDenied { model: model.to_owned(), rule: decision.rule };
        let code = refusal.code().map(|code| code.as_str().to_owned());
        self.tell(EventBody::Error(ErrorData { message: refusal.to_string(), code, details: None }));
        Err(refusal)
    }

    /// Says which limit a call would have passed, where that is why it was refused.
    fn tell_limit(&self, refusal: &Refusal) {
        let limit = match refusal {
            Refusal::BudgetSpent(spent) => spent.limit.name,
            Refusal::TooDear(_) => "budget_usd",
            _ => return,
        };
        self.tell(EventBody::BudgetExceeded(BudgetExceeded { limit: limit.to_owned(), message: refusal.to_string() }));
    }

    fn tell(&self, body: EventBody) {
        if let Err(error) = self.identity.journal.append(EventDraft::daemon(body).in_turn(self.identity.turn.get())) {
            tracing::error!(%error, "cannot record why a call was refused");
        }
    }

    fn request(
        &self,
        endpoint: ModelEndpoint,
        parts: &Parts,
        body: Bytes,
        ask: &Ask,
    ) -> Result<UpstreamRequest, Refusal> {
        let call = new_call()?;
        Ok(UpstreamRequest {
            endpoint,
            method: parts.method.clone(),
            path_and_query: parts
                .uri
                .path_and_query()
                .map_or_else(|| "/".to_owned(), |path| query::without_credentials(path.as_str())),
            headers: headers::outward(&parts.headers),
            body,
            model: ask.model.clone(),
            stream: ask.stream,
            call,
            session: self.identity.session.clone(),
            account: self.identity.account.clone(),
            run: self.identity.run.clone(),
            attempt: self.identity.attempt,
            user: self.identity.user.clone(),
        })
    }

    async fn send(self, ask: Ask, request: UpstreamRequest) -> Result<Response<ResponseBody>, Refusal> {
        let endpoint = request.endpoint;
        let (hold, step) = self.desk.till.hold(&self.identity, endpoint, &ask, &request.call)?;
        let record = CallRecord::open(self.identity.clone(), self.desk.tasks.clone(), hold, step, ask, &request).await;
        let record = record.inspect_err(|refusal| self.tell_limit(refusal))?;
        let sent = tokio::select! {
            biased;
            () = self.desk.tasks.abort.cancelled() => Err(UpstreamFailure::SessionEnded),
            sent = self.identity.upstream.send(request) => sent,
        };
        match sent {
            Ok(answer) => self.tee(endpoint, answer, record).await,
            Err(failure) => {
                let (message, reached) = (describe(&failure), failure.may_have_been_served());
                let refusal = Refusal::from(failure);
                let status = refusal.status().as_u16();
                let duration = record.elapsed();
                let ending = Ending { status, answer: None, failure: Some(message), reached, duration };
                record.end(ending).await;
                Err(refusal)
            }
        }
    }

    async fn tee(
        &self,
        endpoint: ModelEndpoint,
        answer: UpstreamResponse,
        record: CallRecord,
    ) -> Result<Response<ResponseBody>, Refusal> {
        let text = |name| answer.headers.get(name).and_then(|value: &http::HeaderValue| value.to_str().ok());
        let head = Head {
            dialect: endpoint.dialect(),
            status: answer.status,
            stream: text(header::CONTENT_TYPE).is_some_and(|kind| kind.starts_with("text/event-stream")),
            length: text(header::CONTENT_LENGTH).and_then(|length| length.parse().ok()),
            hide_usage: answer.hide_usage,
            upstream_call_id: text(headers::CALL_ID).map(str::to_owned),
        };
        let limits = &self.identity.limits;
        let allowance = Allowance { bytes: limits.answer_bytes, drain: limits.drain };
        let headers = headers::inward(&answer.headers);
        let tee = Tee::new(head, answer.frames, allowance, record, self.desk.tasks.clone()).gather().await?;
        let mut response = Response::new(Either::Right(tee));
        *response.status_mut() = answer.status;
        *response.headers_mut() = headers;
        Ok(response)
    }
}

/// A name for a call that no other has.
fn new_call() -> Result<CallId, Refusal> {
    let mut name = *b"call_00000000000000000000000000000000";
    Uuid::now_v7().simple().encode_lower(&mut name[5..]);
    let name = std::str::from_utf8(&name).unwrap_or_default();
    CallId::new(name).map_err(|_| Refusal::NotRecorded)
}

/// A call whose answer has not begun. Dropped, because its client has left, it goes on in a task of its own: it may
/// have cost something already.
struct CallUnderWay {
    call: Option<BoxFuture<'static, Result<Response<ResponseBody>, Refusal>>>,
    desk: Arc<Desk>,
}

impl Future for CallUnderWay {
    type Output = Result<Response<ResponseBody>, Refusal>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(call) = &mut self.call else { return Poll::Ready(Err(Refusal::SessionEnded)) };
        let answer = ready!(call.as_mut().poll(context));
        self.call = None;
        Poll::Ready(answer)
    }
}

impl Drop for CallUnderWay {
    fn drop(&mut self) {
        if let Some(call) = self.call.take() {
            // Its answer is dropped, too, and drains by itself.
            self.desk.tasks.spawn(async move { drop(call.await) });
        }
    }
}
