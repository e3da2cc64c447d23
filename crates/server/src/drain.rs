//! A body that is refused is still taken off the wire.
//!
//! Closing a connection with bytes unread resets it, and the client may lose the very answer that says why.
//! So what a handler leaves of a body is read and thrown away, within bounds.

use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::middleware::Next;
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

/// More than any client sends before it looks at the answer.
const MOST_BYTES: usize = 64 << 20;
const LONGEST: Duration = Duration::from_secs(2);

/// Lets every request through with a body that lingers.
pub(crate) async fn linger(request: Request, next: Next) -> Response {
    next.run(request.map(|body| Body::new(Lingering(Some(body))))).await
}

/// A body whose rest is read when it is dropped.
struct Lingering(Option<Body>);

impl HttpBody for Lingering {
    type Data = Bytes;
    type Error = axum::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, axum::Error>>> {
        self.0.as_mut().map_or(Poll::Ready(None), |body| Pin::new(body).poll_frame(context))
    }

    fn is_end_stream(&self) -> bool {
        self.0.as_ref().is_none_or(HttpBody::is_end_stream)
    }

    fn size_hint(&self) -> SizeHint {
        self.0.as_ref().map(HttpBody::size_hint).unwrap_or_default()
    }
}

impl Drop for Lingering {
    fn drop(&mut self) {
        if let Some(body) = self.0.take()
            && !body.is_end_stream()
            && tokio::runtime::Handle::try_current().is_ok()
        {
            tokio::spawn(tokio::time::timeout(LONGEST, discard(body)));
        }
    }
}

async fn discard(mut body: Body) {
    let mut read = 0;
    while let Some(Ok(frame)) = body.frame().await {
        read += frame.data_ref().map_or(0, Bytes::len);
        if read > MOST_BYTES {
            return;
        }
    }
}
