//! The tee: forwards a response to the client while it is metered and copied.
//!
//! A frame is forwarded as soon as it arrives. Nothing is queued, so a slow client slows down its own upstream only.
//! When the client disconnects, the rest is still read, so that the call is metered to its end.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt;
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    ModelCall,
    growth::HoldGrowth,
    metered_body::{INITIAL_CAPACITY, MeteredBody},
};
use crate::{
    attachment::AttachmentTasks,
    endpoint::ModelEndpoint,
    meter::UsageMeter,
    refusal::error_event,
    upstream::{ResponseStream, UpstreamFailure},
    usage_filter::UsageFilter,
};

/// The properties of a response that are known before its first byte.
pub(super) struct ResponseHead {
    pub(super) endpoint: ModelEndpoint,
    pub(super) status: StatusCode,
    pub(super) stream: bool,
    /// The content length, if the upstream sent one.
    pub(super) length: Option<u64>,
    pub(super) hide_usage: bool,
    /// The id of the call at a proxy behind the gateway.
    pub(super) upstream_call_id: Option<String>,
}

/// How much of a response is read, and how long after the client disconnected.
#[derive(Debug, Clone, Copy)]
pub(super) struct ResponseLimits {
    pub(super) bytes: usize,
    pub(super) drain: Duration,
}

/// The body of a response on its way to the client.
pub(crate) struct Tee {
    state: TeeState,
    tasks: AttachmentTasks,
    length: Option<u64>,
}

enum TeeState {
    /// The response is arriving.
    Forwarding(Box<MeteredBody>),
    /// The response has ended. The client gets the rest after the call is settled.
    Settling { settled: JoinHandle<()>, rest: UnsentRest },
    /// The call is settled.
    Finishing(UnsentRest),
}

/// The part of an ended response that the client has not got yet.
#[derive(Default)]
struct UnsentRest {
    frames: VecDeque<Bytes>,
    /// Whether the connection is then closed with an error.
    broken: bool,
}

impl Tee {
    pub(super) fn new(
        head: ResponseHead,
        frames: ResponseStream,
        limits: ResponseLimits,
        call: ModelCall,
        tasks: AttachmentTasks,
        client_left: CancellationToken,
    ) -> Self {
        let meter = UsageMeter::new(head.endpoint.dialect(), head.stream);
        let filter = (head.hide_usage && head.stream).then(UsageFilter::default);
        // A filter removes bytes, so the upstream's length would be wrong.
        let length = head.length.filter(|_| filter.is_none());
        // Enough for most responses, so that the copy is rarely moved.
        let capacity = length.map_or(INITIAL_CAPACITY, |length| usize::try_from(length).unwrap_or(usize::MAX));
        let body = MeteredBody {
            frames: frames.peekable(),
            head,
            limits,
            meter,
            filter,
            body: Vec::with_capacity(capacity.min(INITIAL_CAPACITY)),
            uncovered: Bytes::new(),
            unsent: VecDeque::new(),
            time_to_first_byte: None,
            complete: false,
            growth: HoldGrowth::default(),
            interrupted: Box::pin(call.interrupted()),
            client_left,
            call,
        };
        Self { state: TeeState::Forwarding(Box::new(body)), tasks, length }
    }

    /// Reads a document completely, up to [`WHOLE_DOCUMENT_BYTES`], or the part of a stream that is already there.
    ///
    /// Fails if a document was cut off. The failure is then recorded.
    pub(super) async fn prefetch(mut self) -> Result<Self, UpstreamFailure> {
        let TeeState::Forwarding(body) = &mut self.state else { return Ok(self) };
        if body.head.stream {
            let ended = poll_fn(|context| Poll::Ready(body.read_available(context))).await;
            // A short stream then leaves in one write, together with its head.
            if !matches!(ended, Ok(false)) {
                self.end_response(ended.err());
                poll_fn(|context| self.poll_settled(context)).await;
            }
            return Ok(self);
        }
        let read = tokio::select! {
            biased;
            () = self.tasks.abort().cancelled() => Err(UpstreamFailure::SessionEnded),
            read = body.read_document() => read,
        };
        let Err(failure) = read else { return Ok(self) };
        if let Some(body) = self.stop_forwarding() {
            body.settle(Some(&failure)).await;
        }
        Err(failure)
    }

    /// Stops forwarding and returns the response, if it is still arriving.
    fn stop_forwarding(&mut self) -> Option<Box<MeteredBody>> {
        match mem::replace(&mut self.state, TeeState::Finishing(UnsentRest::default())) {
            TeeState::Forwarding(body) => Some(body),
            TeeState::Settling { .. } | TeeState::Finishing(_) => None,
        }
    }

    /// Ready when the call of an ended response is settled.
    fn poll_settled(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let TeeState::Settling { settled, rest } = &mut self.state {
            // An error means that the task panicked. The call has then recorded itself as given up.
            let _ = ready!(Pin::new(settled).poll(context));
            self.state = TeeState::Finishing(mem::take(rest));
        }
        Poll::Ready(())
    }

    /// Settles the call of a response that has ended, and keeps the rest for the client. If the upstream failed within
    /// a stream, the rest ends with an error event.
    fn end_response(&mut self, failure: Option<UpstreamFailure>) {
        let Some(mut body) = self.stop_forwarding() else { return };
        let (endpoint, stream) = (body.head.endpoint, body.head.stream);
        let last_frame = match &failure {
            Some(failure) if stream => Some(error_event(endpoint, failure, &body.body)),
            Some(_) => None,
            None => body.filter.as_mut().and_then(UsageFilter::finish),
        };
        let mut frames = mem::take(&mut body.unsent);
        frames.extend(last_frame);
        // A partly forwarded document can report the failure only by a broken connection.
        let rest = UnsentRest { frames, broken: failure.is_some() && !stream };
        let settled = body.spawn_settle(&self.tasks, failure);
        self.state = TeeState::Settling { settled, rest };
    }
}

impl Body for Tee {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        loop {
            match &mut self.state {
                TeeState::Forwarding(body) => match ready!(body.poll_next(context)) {
                    Ok(Some(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                    Ok(None) => self.end_response(None),
                    Err(failure) => self.end_response(Some(failure)),
                },
                TeeState::Settling { .. } => ready!(self.poll_settled(context)),
                TeeState::Finishing(rest) => {
                    if let Some(bytes) = rest.frames.pop_front() {
                        return Poll::Ready(Some(Ok(Frame::data(bytes))));
                    }
                    let broken = mem::take(&mut rest.broken);
                    return Poll::Ready(broken.then(|| Err(io::ErrorKind::UnexpectedEof.into())));
                }
            }
        }
    }

    fn size_hint(&self) -> SizeHint {
        self.length.map_or_else(SizeHint::new, SizeHint::with_exact)
    }
}

impl Drop for Tee {
    fn drop(&mut self) {
        let Some(body) = self.stop_forwarding() else { return };
        if body.complete {
            drop(body.spawn_settle(&self.tasks, None));
        } else {
            drop(self.tasks.spawn(body.drain(self.tasks.clone())));
        }
    }
}
