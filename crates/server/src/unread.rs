//! What could not be read as a request at all is refused with a problem document, too.
//!
//! Such a refusal is made below every layer of ours, without a body. All that is answered from here up has a request id,
//! so that what has none is known by that, and told in our words.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll, ready};

use http::StatusCode;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use uuid::Uuid;

use crate::error::refused_by_framework;
use crate::request_id;

/// A connection on which refusals without a body are told as problem documents.
pub(crate) struct Told<S> {
    stream: S,
    /// What is to be written in the place of a refusal, and how much of it was.
    refusal: Vec<u8>,
    written: usize,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Told<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, refusal: Vec::new(), written: 0 }
    }

    /// Takes `bytes` for a refusal that has no body; whether it is one.
    fn replace(&mut self, bytes: &[u8]) -> bool {
        let Some(refusal) = in_our_words(bytes) else { return false };
        (self.refusal, self.written) = (refusal, 0);
        true
    }

    fn poll_refusal(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        while self.written < self.refusal.len() {
            let rest = &self.refusal[self.written..];
            match ready!(Pin::new(&mut self.stream).poll_write(context, rest))? {
                0 => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                count => self.written += count,
            }
        }
        Poll::Ready(Ok(()))
    }
}

/// The same refusal as a problem document, if `bytes` are one that is not ours.
fn in_our_words(bytes: &[u8]) -> Option<Vec<u8>> {
    let status = bytes.strip_prefix(b"HTTP/1.1 ").filter(|rest| rest.starts_with(b"4"))?.get(..3)?;
    let head = bytes.strip_suffix(b"\r\n\r\n")?;
    let named = request_id::HEADER;
    if head.windows(named.as_str().len()).any(|part| part == named.as_str().as_bytes()) {
        return None;
    }
    let status = StatusCode::from_bytes(status).ok()?;
    let mut problem = refused_by_framework(status);
    let id = Uuid::now_v7().to_string();
    problem.request_id = Some(id.clone());
    let body = serde_json::to_vec(&problem).ok()?;
    let mut answer = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n{}: {id}\r\n\
         connection: close\r\n\r\n",
        body.len(),
        request_id::HEADER,
    )
    .into_bytes();
    answer.extend(body);
    Some(answer)
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncRead for Told<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, buffer)
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> AsyncWrite for Told<S> {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        ready!(self.poll_refusal(context))?;
        if self.replace(bytes) {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_refusal(context))?;
        if let [bytes] = slices
            && self.replace(bytes)
        {
            return Poll::Ready(Ok(bytes.len()));
        }
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_refusal(context))?;
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.poll_refusal(context))?;
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_refusal_that_is_not_ours_is_told_again() {
        let theirs = b"HTTP/1.1 431 Request Header Fields Too Large\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
        let told = String::from_utf8(in_our_words(theirs).unwrap()).unwrap();
        let (head, body) = told.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 431 Request Header Fields Too Large\r\n"), "{head}");
        assert!(head.contains(&format!("content-length: {}\r\n", body.len())), "{head}");
        let problem: protocol::Problem = serde_json::from_str(body).unwrap();
        assert_eq!((problem.status, problem.code.as_str()), (431, "invalid_request"));
        for ours in [
            &b"HTTP/1.1 404 Not Found\r\nx-request-id: 7\r\ncontent-length: 0\r\n\r\n"[..],
            b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n",
            b"data: HTTP/1.1 400 Bad Request\r\n\r\n",
            b"HTTP/1.1 4",
        ] {
            assert_eq!(in_our_words(ours), None);
        }
    }
}
