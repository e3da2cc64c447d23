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

use base::error_chain;
use bytes::Bytes;
use futures_util::{StreamExt, stream::Peekable};
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::task::JoinHandle;

use super::{CallEnd, ModelCall, ReceivedResponse};
use crate::{
    attachment::AttachmentTasks,
    endpoint::ApiDialect,
    meter::UsageMeter,
    refusal::error_event,
    upstream::{ResponseStream, UpstreamFailure},
    usage_filter::UsageFilter,
};

/// A response that has been arriving for longer than this is marked in the ledger. Most responses end earlier, and the
/// ledger is spared a write.
const MARK_STREAMING_AFTER: Duration = Duration::from_secs(1);

/// Bytes that are allocated for a response before it arrives.
const INITIAL_CAPACITY: usize = 32 << 10;

/// A document up to this size is read completely before any of it is forwarded. A client cannot use a part of a
/// document, and a document that is cut off can still become an error.
const WHOLE_DOCUMENT_BYTES: usize = 4 << 20;

/// The properties of a response that are known before its first byte.
pub(super) struct ResponseHead {
    pub(super) dialect: ApiDialect,
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

/// A response that is still arriving, with its meter and its copy.
struct MeteredBody {
    frames: Peekable<ResponseStream>,
    head: ResponseHead,
    limits: ResponseLimits,
    meter: UsageMeter,
    filter: Option<UsageFilter>,
    /// The copy of all bytes so far.
    body: Vec<u8>,
    /// Frames that were read and not forwarded yet.
    unsent: VecDeque<Bytes>,
    time_to_first_byte: Option<Duration>,
    /// Whether all of the response was read.
    complete: bool,
    call: ModelCall,
}

impl Tee {
    pub(super) fn new(
        head: ResponseHead,
        frames: ResponseStream,
        limits: ResponseLimits,
        call: ModelCall,
        tasks: AttachmentTasks,
    ) -> Self {
        let meter = UsageMeter::new(head.dialect, head.stream);
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
            unsent: VecDeque::new(),
            time_to_first_byte: None,
            complete: false,
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
        let read = self.tasks.abort().run_until_cancelled(body.read_document()).await;
        let Err(failure) = read.unwrap_or(Err(UpstreamFailure::SessionEnded)) else { return Ok(self) };
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
        let (dialect, stream) = (body.head.dialect, body.head.stream);
        let last_frame = match &failure {
            Some(failure) if stream => Some(error_event(dialect, &failure.to_string())),
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

impl MeteredBody {
    /// Returns the next bytes for the client. `None` if the rest may be sent only after the call is settled.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, UpstreamFailure>> {
        loop {
            // The last frames of a stream wait for the settlement and then leave in one write.
            if self.head.stream && self.has_ended(context) {
                return Poll::Ready(Ok(None));
            }
            if let Some(bytes) = self.unsent.pop_front() {
                return Poll::Ready(Ok(Some(bytes)));
            }
            if self.complete {
                return Poll::Ready(Ok(None));
            }
            let Some(bytes) = ready!(self.frames.poll_next_unpin(context)) else { return Poll::Ready(Ok(None)) };
            self.take_frame(bytes?)?;
        }
    }

    /// Reads the frames that have arrived, without waiting. Returns whether the response has ended.
    fn read_available(&mut self, context: &mut Context<'_>) -> Result<bool, UpstreamFailure> {
        while self.body.len() < INITIAL_CAPACITY {
            match self.frames.poll_next_unpin(context) {
                Poll::Ready(Some(bytes)) => self.take_frame(bytes?)?,
                Poll::Ready(None) => return Ok(true),
                Poll::Pending => break,
            }
        }
        Ok(false)
    }

    async fn read_document(&mut self) -> Result<(), UpstreamFailure> {
        while self.body.len() <= WHOLE_DOCUMENT_BYTES {
            let Some(bytes) = self.frames.next().await else {
                self.complete = true;
                return Ok(());
            };
            let bytes = bytes?;
            self.meter(&bytes)?;
            self.unsent.push_back(bytes);
        }
        Ok(())
    }

    /// Meters a frame and queues the part of it that the client may see.
    fn take_frame(&mut self, bytes: Bytes) -> Result<(), UpstreamFailure> {
        self.meter(&bytes)?;
        let visible = match &mut self.filter {
            Some(filter) => filter.push(&bytes),
            None => Some(bytes),
        };
        self.unsent.extend(visible);
        Ok(())
    }

    /// Returns whether the response has ended, as far as that is known without waiting.
    fn has_ended(&mut self, context: &mut Context<'_>) -> bool {
        matches!(Pin::new(&mut self.frames).poll_peek(context), Poll::Ready(None))
    }

    /// Meters and copies the next bytes. Fails if the response or one of its events is too long.
    fn meter(&mut self, bytes: &Bytes) -> Result<(), UpstreamFailure> {
        let elapsed = self.call.elapsed();
        let first = *self.time_to_first_byte.get_or_insert(elapsed);
        if elapsed.saturating_sub(first) > MARK_STREAMING_AFTER {
            self.call.mark_streaming();
        }
        let limit = self.limits.bytes;
        if self.body.len() + bytes.len() > limit {
            return Err(UpstreamFailure::TooLong { limit });
        }
        self.body.extend_from_slice(bytes);
        self.meter.push(bytes)
    }

    /// Reads the rest of the response for a client that has disconnected, then settles the call.
    async fn drain(mut self: Box<Self>, tasks: AttachmentTasks) {
        let limit = self.limits.drain;
        let failure = tokio::select! {
            biased;
            () = tasks.abort().cancelled() => Some(UpstreamFailure::SessionEnded),
            read = tokio::time::timeout(limit, self.read_rest()) => match read {
                Ok(result) => result.err(),
                Err(_) => Some(UpstreamFailure::Abandoned),
            },
        };
        self.settle(failure.as_ref()).await;
    }

    async fn read_rest(&mut self) -> Result<(), UpstreamFailure> {
        while let Some(bytes) = self.frames.next().await {
            self.meter(&bytes?)?;
        }
        Ok(())
    }

    /// Settles the call in a separate task, so that the forwarded bytes leave first.
    fn spawn_settle(self: Box<Self>, tasks: &AttachmentTasks, failure: Option<UpstreamFailure>) -> JoinHandle<()> {
        let duration = self.call.elapsed();
        tasks.spawn(async move {
            let (call, end) = self.into_end(failure.as_ref(), duration);
            call.finish(end).await;
        })
    }

    /// Records the end of the call and settles it. Returns when both are written.
    async fn settle(self: Box<Self>, failure: Option<&UpstreamFailure>) {
        let duration = self.call.elapsed();
        let (call, end) = self.into_end(failure, duration);
        call.finish(end).await;
    }

    fn into_end(self: Box<Self>, failure: Option<&UpstreamFailure>, duration: Duration) -> (ModelCall, CallEnd) {
        let Self { head, meter, body, time_to_first_byte, call, .. } = *self;
        let stream = head.stream;
        let reading = meter.finish(&body);
        let failure = match failure {
            Some(failure) => Some(error_chain(failure)),
            None if reading.error.is_some() => reading.error.clone(),
            None if !head.status.is_success() => Some(format!("the upstream answered {}", head.status)),
            None if !reading.complete && stream => Some(UpstreamFailure::Cut.to_string()),
            None if !reading.complete => Some("the upstream's response does not have the format of its API".to_owned()),
            None => None,
        };
        let response = ReceivedResponse {
            body: body.into(),
            stream,
            reading,
            time_to_first_byte: time_to_first_byte.unwrap_or(duration),
            upstream_call_id: head.upstream_call_id,
        };
        let status = head.status.as_u16();
        (call, CallEnd { status, response: Some(response), failure, reached_upstream: true, duration })
    }
}
