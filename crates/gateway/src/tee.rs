//! An answer on its way to the agent, metered and kept as it passes.
//!
//! A frame is handed on the moment it comes; a slow reader slows its own upstream, nothing is queued.
//! When the agent leaves, the rest is still read, so that the call is metered to its end.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io, mem,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt, stream::Peekable};
use http::StatusCode;
use http_body::{Body, Frame, SizeHint};
use tokio::sync::oneshot;

use crate::{
    conceal::UsageFilter,
    endpoint::ApiDialect,
    meter::Meter,
    record::{Answer, CallRecord, Ending, describe},
    refusal::error_event,
    tasks::Tasks,
    upstream::{ResponseStream, UpstreamFailure},
};

/// An answer that has been coming for so long is marked in the ledger. Most are over before, and cost one wait for
/// the disk less.
const MARKED_AFTER: Duration = Duration::from_secs(1);

/// Bytes of an answer that room is made for before they come.
const STREAM_ROOM: usize = 32 << 10;

/// A document of so many bytes is taken whole before any of it is handed on: nobody can use a part of it, and one that
/// breaks off can still become an error.
const WHOLE_BYTES: usize = 4 << 20;

/// What there is to know about an answer before its first byte.
pub(crate) struct Head {
    pub(crate) dialect: ApiDialect,
    pub(crate) status: StatusCode,
    pub(crate) stream: bool,
    /// Bytes to come, where the upstream said so.
    pub(crate) length: Option<u64>,
    pub(crate) hide_usage: bool,
    /// What a proxy behind us calls it.
    pub(crate) upstream_call_id: Option<String>,
}

/// How much of an answer is taken.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Allowance {
    pub(crate) bytes: usize,
    pub(crate) drain: Duration,
}

/// The body of an answer.
pub(crate) struct Tee {
    state: State,
    tasks: Tasks,
    length: Option<u64>,
}

enum State {
    Passing(Box<Passage>),
    /// All of it has come; the rest follows when the record is written.
    Settling {
        /// Comes to an end, one way or the other, when the record is written.
        written: oneshot::Receiver<()>,
        rest: Rest,
    },
    Leaving(Rest),
}

/// What the agent has not got yet of an answer that is over.
#[derive(Default)]
struct Rest {
    bytes: VecDeque<Bytes>,
    /// The connection ends with an error.
    broken: bool,
}

/// An answer whose bytes are still coming.
struct Passage {
    frames: Peekable<ResponseStream>,
    head: Head,
    allowance: Allowance,
    meter: Meter,
    filter: Option<UsageFilter>,
    body: Vec<u8>,
    /// What was taken and not handed on yet.
    held: VecDeque<Bytes>,
    ttft: Option<Duration>,
    /// Whether all of it was taken.
    whole: bool,
    /// Whether the ledger knows that it has begun.
    marked: bool,
    record: CallRecord,
}

impl Tee {
    pub(crate) fn new(
        head: Head,
        frames: ResponseStream,
        allowance: Allowance,
        record: CallRecord,
        tasks: Tasks,
    ) -> Self {
        let meter = Meter::new(head.dialect, head.stream);
        let filter = (head.hide_usage && head.stream).then(UsageFilter::default);
        // What is taken out on the way would make the length a lie.
        let length = head.length.filter(|_| filter.is_none());
        // Room for most answers, so that what has come is not moved again and again.
        let room = length.map_or(STREAM_ROOM, |length| usize::try_from(length).unwrap_or(usize::MAX));
        let passage = Passage {
            frames: frames.peekable(),
            head,
            allowance,
            meter,
            filter,
            body: Vec::with_capacity(room.min(STREAM_ROOM)),
            held: VecDeque::new(),
            ttft: None,
            whole: false,
            marked: false,
            record,
        };
        Self { state: State::Passing(Box::new(passage)), tasks, length }
    }

    /// Takes a document whole, as far as it is not too long, and of a stream what has come already. An error means that
    /// a document broke off, which is recorded.
    pub(crate) async fn gather(mut self) -> Result<Self, UpstreamFailure> {
        let State::Passing(passage) = &mut self.state else { return Ok(self) };
        if passage.head.stream {
            let over = poll_fn(|context| Poll::Ready(passage.take_ready(context))).await;
            // All of a short one leaves in one write, with its head.
            if !matches!(over, Ok(false)) {
                self.settle(over.err());
                poll_fn(|context| self.poll_written(context)).await;
            }
            return Ok(self);
        }
        let gathered = self.tasks.abort.run_until_cancelled(passage.gather()).await;
        let Err(failure) = gathered.unwrap_or(Err(UpstreamFailure::SessionEnded)) else { return Ok(self) };
        if let Some(passage) = self.leave() {
            passage.settle(Some(&failure)).await;
        }
        Err(failure)
    }

    /// What is still coming, if anything is: nothing more is handed on of it.
    fn leave(&mut self) -> Option<Box<Passage>> {
        match mem::replace(&mut self.state, State::Leaving(Rest::default())) {
            State::Passing(passage) => Some(passage),
            State::Settling { .. } | State::Leaving(_) => None,
        }
    }

    /// Ready when the record of an answer that is over is written.
    fn poll_written(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if let State::Settling { written, rest } = &mut self.state {
            let _ = ready!(Pin::new(written).poll(context));
            self.state = State::Leaving(mem::take(rest));
        }
        Poll::Ready(())
    }

    /// The upstream has ended: records it, and gives the agent what it has not got, and an error event where the
    /// upstream broke off.
    fn settle(&mut self, failure: Option<UpstreamFailure>) {
        let Some(mut passage) = self.leave() else { return };
        let (dialect, stream) = (passage.head.dialect, passage.head.stream);
        let last_word = match &failure {
            Some(failure) if stream => Some(error_event(dialect, &failure.to_string())),
            Some(_) => None,
            None => passage.filter.as_mut().and_then(UsageFilter::finish),
        };
        let mut bytes = mem::take(&mut passage.held);
        bytes.extend(last_word);
        // A long document that broke off has no other way to say so than a broken connection.
        let rest = Rest { bytes, broken: failure.is_some() && !stream };
        let (done, written) = oneshot::channel();
        passage.end(&self.tasks, failure, Some(done));
        self.state = State::Settling { written, rest };
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
                State::Passing(passage) => match ready!(passage.poll_next(context)) {
                    Ok(Some(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                    Ok(None) => self.settle(None),
                    Err(failure) => self.settle(Some(failure)),
                },
                State::Settling { .. } => ready!(self.poll_written(context)),
                State::Leaving(rest) => {
                    if let Some(bytes) = rest.bytes.pop_front() {
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
        let Some(passage) = self.leave() else { return };
        if passage.whole {
            return passage.end(&self.tasks, None, None);
        }
        let tasks = self.tasks.clone();
        self.tasks.spawn(async move { passage.drain(tasks).await });
    }
}

impl Passage {
    /// The next bytes that the agent gets before the record is written; none: the rest it gets after that.
    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Result<Option<Bytes>, UpstreamFailure>> {
        loop {
            // What came with the end of a stream leaves with it, in one write.
            if self.head.stream && self.is_over(context) {
                return Poll::Ready(Ok(None));
            }
            if let Some(bytes) = self.held.pop_front() {
                return Poll::Ready(Ok(Some(bytes)));
            }
            if self.whole {
                return Poll::Ready(Ok(None));
            }
            let Some(bytes) = ready!(self.frames.poll_next_unpin(context)) else { return Poll::Ready(Ok(None)) };
            self.keep(bytes?)?;
        }
    }

    /// Takes what is there; says whether that was all of it.
    fn take_ready(&mut self, context: &mut Context<'_>) -> Result<bool, UpstreamFailure> {
        while self.body.len() < STREAM_ROOM {
            match self.frames.poll_next_unpin(context) {
                Poll::Ready(Some(bytes)) => self.keep(bytes?)?,
                Poll::Ready(None) => return Ok(true),
                Poll::Pending => break,
            }
        }
        Ok(false)
    }

    /// Meters and keeps the next bytes, and holds them for the agent.
    fn keep(&mut self, bytes: Bytes) -> Result<(), UpstreamFailure> {
        self.take(&bytes)?;
        let shown = self.show(bytes);
        self.held.extend(shown);
        Ok(())
    }

    /// Whether nothing comes any more, as far as can be told without waiting.
    fn is_over(&mut self, context: &mut Context<'_>) -> bool {
        matches!(Pin::new(&mut self.frames).poll_peek(context), Poll::Ready(None))
    }

    /// Meters and keeps the next bytes.
    fn take(&mut self, bytes: &Bytes) -> Result<(), UpstreamFailure> {
        let elapsed = self.record.elapsed();
        let begun = *self.ttft.get_or_insert(elapsed);
        if !self.marked && elapsed.saturating_sub(begun) > MARKED_AFTER {
            self.marked = true;
            self.record.streaming();
        }
        let limit = self.allowance.bytes;
        if self.body.len() + bytes.len() > limit {
            return Err(UpstreamFailure::TooLong { limit });
        }
        self.body.extend_from_slice(bytes);
        self.meter.pass(bytes)
    }

    /// What the agent may see of the bytes.
    fn show(&mut self, bytes: Bytes) -> Option<Bytes> {
        match &mut self.filter {
            Some(filter) => filter.pass(&bytes),
            None => Some(bytes),
        }
    }

    /// Reads what is left for a client that is gone.
    async fn drain(mut self, tasks: Tasks) {
        let drain = self.allowance.drain;
        let failure = tokio::select! {
            biased;
            () = tasks.abort.cancelled() => Some(UpstreamFailure::SessionEnded),
            ended = tokio::time::timeout(drain, self.read_out()) => match ended {
                Ok(result) => result.err(),
                Err(_) => Some(UpstreamFailure::Abandoned),
            },
        };
        self.settle(failure.as_ref()).await;
    }

    async fn gather(&mut self) -> Result<(), UpstreamFailure> {
        while self.body.len() <= WHOLE_BYTES {
            let Some(bytes) = self.frames.next().await else {
                self.whole = true;
                return Ok(());
            };
            let bytes = bytes?;
            self.take(&bytes)?;
            self.held.push_back(bytes);
        }
        Ok(())
    }

    async fn read_out(&mut self) -> Result<(), UpstreamFailure> {
        while let Some(bytes) = self.frames.next().await {
            self.take(&bytes?)?;
        }
        Ok(())
    }

    /// Records how it ended, and settles the call: once what came is on its way. `done` is told when it is written.
    fn end(self: Box<Self>, tasks: &Tasks, failure: Option<UpstreamFailure>, done: Option<oneshot::Sender<()>>) {
        let duration = self.record.elapsed();
        if self.record.keeps_here(self.body.len()) {
            return tasks.end(Box::new(move || {
                let (record, ending) = self.ending(failure.as_ref(), duration);
                record.closing(ending, done)
            }));
        }
        tasks.spawn(async move {
            self.settle(failure.as_ref()).await;
            if let Some(done) = done {
                // Who no longer waits has left.
                let _ = done.send(());
            }
        });
    }

    /// The same, and returns when it is written.
    async fn settle(self, failure: Option<&UpstreamFailure>) {
        let duration = self.record.elapsed();
        let (record, ending) = self.ending(failure, duration);
        record.end(ending).await;
    }

    fn ending(self, failure: Option<&UpstreamFailure>, duration: Duration) -> (CallRecord, Ending) {
        let Self { head, meter, body, ttft, record, .. } = self;
        let stream = meter.is_stream();
        let reading = meter.finish(&body);
        let failure = match failure {
            Some(failure) => Some(describe(failure)),
            None if reading.error.is_some() => reading.error.clone(),
            None if !head.status.is_success() => Some(format!("the upstream answered {}", head.status)),
            None if !reading.complete && stream => Some(UpstreamFailure::Cut.to_string()),
            None if !reading.complete => Some("the upstream's answer is not of its API".to_owned()),
            None => None,
        };
        let ttft = ttft.unwrap_or(duration);
        let answer = Answer { body: body.into(), stream, reading, ttft, upstream_call_id: head.upstream_call_id };
        let status = head.status.as_u16();
        (record, Ending { status, answer: Some(answer), failure, reached: true, duration })
    }
}
