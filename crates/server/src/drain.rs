//! Draining of request bodies that a handler did not read.
//!
//! Closing a connection with unread bytes resets it, and the client could lose the response that says why the body was
//! refused. So the rest of a body is read and discarded, within limits.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};
use tokio_util::task::TaskTracker;

/// More than any client sends before it reads the response.
const MAX_DRAINED_BYTES: usize = 64 << 20;
const DRAIN_TIMEOUT: Duration = Duration::from_secs(2);

/// Wraps the body of every request in a [`DrainedBody`], whose draining task belongs to `tasks`.
pub(crate) async fn drain_bodies(State(tasks): State<TaskTracker>, request: Request, next: Next) -> Response {
    next.run(request.map(|body| Body::new(DrainedBody { body: Some(body), tasks }))).await
}

/// A body whose unread rest is drained when it is dropped.
struct DrainedBody {
    body: Option<Body>,
    tasks: TaskTracker,
}

impl HttpBody for DrainedBody {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.body.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.body.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.body.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for DrainedBody {
    fn drop(&mut self) {
        if let Some(body) = self.body.take()
            && !body.is_end_stream()
            && let Ok(runtime) = tokio::runtime::Handle::try_current()
        {
            self.tasks.spawn_on(tokio::time::timeout(DRAIN_TIMEOUT, discard(body)), &runtime);
        }
    }
}

async fn discard(mut body: Body) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > MAX_DRAINED_BYTES {
            return;
        }
    }
}
