//! A response that is still arriving: it is metered and copied while it passes, and its hold grows ahead of it.

use std::{
    collections::VecDeque,
    future::poll_fn,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use base::error_chain;
use bytes::Bytes;
use futures_util::{FutureExt, StreamExt, future::BoxFuture, stream::Peekable};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use super::{
    CallEnd, ModelCall, ReceivedResponse,
    growth::HoldGrowth,
    tee::{ResponseHead, ResponseLimits},
};
use crate::{
    attachment::AttachmentTasks,
    meter::UsageMeter,
    upstream::{ResponseStream, UpstreamFailure},
    usage_filter::UsageFilter,
};

/// A response that has been arriving for longer than this is marked in the ledger. Most responses end earlier, and the
/// ledger is spared a write.
const MARK_STREAMING_AFTER: Duration = Duration::from_secs(1);

/// Bytes that are allocated for a response before it arrives.
pub(super) const INITIAL_CAPACITY: usize = 32 << 10;

/// A document up to this size is read completely before any of it is forwarded. A client cannot use a part of a
/// document, and a document that is cut off can still become an error.
const WHOLE_DOCUMENT_BYTES: usize = 4 << 20;

/// A response that is still arriving, with its meter and its copy.
pub(super) struct MeteredBody {
    pub(super) frames: Peekable<ResponseStream>,
    pub(super) head: ResponseHead,
    pub(super) limits: ResponseLimits,
    pub(super) meter: UsageMeter,
    pub(super) filter: Option<UsageFilter>,
    /// The copy of all bytes so far.
    pub(super) body: Vec<u8>,
    /// The end of the last frame, which the hold does not cover yet. It is neither metered nor forwarded.
    pub(super) uncovered: Bytes,
    /// Frames that were read and not forwarded yet.
    pub(super) unsent: VecDeque<Bytes>,
    pub(super) time_to_first_byte: Option<Duration>,
    /// Whether all of the response was read.
    pub(super) complete: bool,
    pub(super) growth: HoldGrowth,
    /// Ready when the turn was interrupted and the client did not end the call itself.
    pub(super) interrupted: BoxFuture<'static, ()>,
    /// Cancelled when the client disconnects, so that the frames no longer wait for room in memory.
    pub(super) client_left: CancellationToken,
    pub(super) call: ModelCall,
}

impl MeteredBody {
    /// Returns the next bytes for the client. `None` if the rest may be sent only after the call is settled.
    pub(super) fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, UpstreamFailure>> {
        loop {
            ready!(self.poll_growth(context))?;
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
            let next = match self.poll_covered(context) {
                Poll::Pending if self.interrupted.poll_unpin(context).is_ready() => {
                    return Poll::Ready(Err(UpstreamFailure::Interrupted));
                }
                next => ready!(next),
            };
            let Some(bytes) = next else { return Poll::Ready(Ok(None)) };
            self.take_frame(bytes?)?;
        }
    }

    /// Ready when the hold covers the response so far. Fails if it cannot grow any further.
    fn poll_growth(&mut self, context: &mut Context<'_>) -> Poll<Result<(), UpstreamFailure>> {
        if !self.head.stream {
            return Poll::Ready(Ok(()));
        }
        self.growth.poll(&mut self.call, self.head.endpoint.dialect(), &self.body, context)
    }

    /// Returns the next bytes of the response, not more than the hold covers. The caller has seen that it covers some.
    fn poll_covered(&mut self, context: &mut Context<'_>) -> Poll<Option<Result<Bytes, UpstreamFailure>>> {
        if self.uncovered.is_empty() {
            match ready!(self.frames.poll_next_unpin(context)) {
                Some(Ok(bytes)) => self.uncovered = bytes,
                end => return Poll::Ready(end),
            }
        }
        let covered = if self.head.stream {
            self.growth.allowance(&self.call, self.head.endpoint.dialect(), &self.body).max(1)
        } else {
            usize::MAX
        };
        let length = self.uncovered.len().min(covered);
        Poll::Ready(Some(Ok(self.uncovered.split_to(length))))
    }

    /// Reads the frames that have arrived, without waiting. Returns whether the response has ended.
    pub(super) fn read_available(&mut self, context: &mut Context<'_>) -> Result<bool, UpstreamFailure> {
        while self.body.len() < INITIAL_CAPACITY {
            match self.poll_growth(context) {
                Poll::Ready(covered) => covered?,
                Poll::Pending => break,
            }
            match self.poll_covered(context) {
                Poll::Ready(Some(bytes)) => self.take_frame(bytes?)?,
                Poll::Ready(None) => return Ok(true),
                Poll::Pending => break,
            }
        }
        Ok(false)
    }

    pub(super) async fn read_document(&mut self) -> Result<(), UpstreamFailure> {
        if self.head.status.is_success() {
            // A stream was requested, and its hold does not cover a document, which shows its tokens only at the end.
            self.growth.complete(&mut self.call).await?;
        }
        while self.body.len() <= WHOLE_DOCUMENT_BYTES {
            let next = tokio::select! {
                biased;
                next = self.frames.next() => next,
                () = &mut self.interrupted => return Err(UpstreamFailure::Interrupted),
            };
            let Some(bytes) = next else {
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
        self.uncovered.is_empty() && matches!(Pin::new(&mut self.frames).poll_peek(context), Poll::Ready(None))
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
        self.meter.push(bytes)?;
        if self.head.stream {
            self.growth.take_prompt(&mut self.call, &self.meter.reading().usage);
        }
        Ok(())
    }

    /// Reads the rest of the response for a client that has disconnected, then settles the call. After an interrupt
    /// nobody wants the rest, so the call is cancelled. It is also cancelled when the rest has no room in memory, so
    /// that it does not keep other calls waiting.
    pub(super) async fn drain(mut self: Box<Self>, tasks: AttachmentTasks) {
        self.client_left.cancel();
        self.unsent.clear();
        let (limit, interrupted) = (self.limits.drain, self.call.interrupt_token());
        let failure = tokio::select! {
            biased;
            () = tasks.abort().cancelled() => Some(UpstreamFailure::SessionEnded),
            () = interrupted.cancelled() => Some(UpstreamFailure::Interrupted),
            read = tokio::time::timeout(limit, self.read_rest()) => match read {
                Ok(result) => result.err(),
                Err(_) => Some(UpstreamFailure::Abandoned),
            },
        };
        self.settle(failure.as_ref()).await;
    }

    async fn read_rest(&mut self) -> Result<(), UpstreamFailure> {
        loop {
            poll_fn(|context| self.poll_growth(context)).await?;
            let Some(bytes) = poll_fn(|context| self.poll_covered(context)).await else { return Ok(()) };
            self.meter(&bytes?)?;
        }
    }

    /// Settles the call in a separate task, so that the forwarded bytes leave first.
    pub(super) fn spawn_settle(
        self: Box<Self>,
        tasks: &AttachmentTasks,
        failure: Option<UpstreamFailure>,
    ) -> JoinHandle<()> {
        let duration = self.call.elapsed();
        tasks.spawn(async move {
            let (call, end) = self.into_end(failure.as_ref(), duration);
            call.finish(end).await;
        })
    }

    /// Records the end of the call and settles it. Returns when both are written.
    pub(super) async fn settle(self: Box<Self>, failure: Option<&UpstreamFailure>) {
        let duration = self.call.elapsed();
        let (call, end) = self.into_end(failure, duration);
        call.finish(end).await;
    }

    fn into_end(self: Box<Self>, failure: Option<&UpstreamFailure>, duration: Duration) -> (ModelCall, CallEnd) {
        let Self { head, meter, body, time_to_first_byte, call, mut growth, .. } = *self;
        let stream = head.stream;
        let mut reading = meter.finish(&body);
        let cancelled = failure.is_some_and(UpstreamFailure::is_cancellation) && head.status.is_success();
        let estimate = cancelled.then(|| {
            let shown = if stream { growth.shown_tokens(head.endpoint.dialect(), &body, 0) } else { 0 };
            call.cancelled_usage(reading.usage, shown)
        });
        reading.usage = estimate.unwrap_or(reading.usage);
        let failure = match failure {
            Some(failure) => Some(error_chain(failure)),
            None if reading.error.is_some() => reading.error.clone(),
            None if !head.status.is_success() => Some(format!("the upstream answered {}", head.status)),
            None if !reading.complete && stream => Some(UpstreamFailure::Cut.to_string()),
            None if !reading.complete => Some("the upstream's response does not have the format of its API".to_owned()),
            None => call.bill.unpriced_model(&reading).map(|model| {
                format!(
                    "the model `{model}` answered, whose price is not known; set `[prices.\"{model}\"]` in viv.toml"
                )
            }),
        };
        let response = ReceivedResponse {
            body: body.into(),
            stream,
            reading,
            time_to_first_byte: time_to_first_byte.unwrap_or(duration),
            upstream_call_id: head.upstream_call_id,
        };
        let status = head.status.as_u16();
        (call, CallEnd { status, response: Some(response), failure, reached_upstream: true, estimate, duration })
    }
}
