//! The head of a request, written; the head of an answer, read.

use std::mem::MaybeUninit;

use bytes::{Buf, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::body::Decoder;
use crate::upstream::UpstreamFailure;

const HEAD_BYTES: usize = 64 << 10;
const HEADERS: usize = 128;

/// What is asked of a server, before the body.
#[derive(Debug)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a http::Method,
    pub(crate) path_and_query: &'a str,
    pub(crate) host: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

impl RequestHead<'_> {
    /// The head as it goes out, for a body of `length` bytes.
    pub(crate) fn encode(&self, length: usize) -> Vec<u8> {
        let mut head = Vec::with_capacity(1 << 10);
        let mut put = |parts: &[&[u8]]| parts.iter().for_each(|part| head.extend_from_slice(part));
        let (method, path, host) = (self.method.as_str(), self.path_and_query, self.host);
        put(&[method.as_bytes(), b" ", path.as_bytes(), b" HTTP/1.1\r\nhost: ", host.as_bytes()]);
        put(&[b"\r\ncontent-length: ", itoa::Buffer::new().format(length).as_bytes(), b"\r\n"]);
        for (name, value) in self.headers {
            put(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\r\n"]);
        }
        put(&[b"\r\n"]);
        head
    }
}

/// What a server said before the body.
#[derive(Debug)]
pub(super) struct AnswerHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) decoder: Decoder,
    /// Whether the connection can be used again once the body has come.
    pub(super) keep_alive: bool,
}

impl AnswerHead {
    /// Takes a head from the front of `buffer`; none: it has not all come. Interim answers are skipped.
    pub(super) fn take(buffer: &mut BytesMut) -> Result<Option<Self>, UpstreamFailure> {
        loop {
            let mut lines = [const { MaybeUninit::uninit() }; HEADERS];
            let mut answer = httparse::Response::new(&mut []);
            let parsed = httparse::ParserConfig::default()
                .parse_response_with_uninit_headers(&mut answer, buffer, &mut lines)
                .map_err(|error| garbage(&error.to_string()))?;
            let httparse::Status::Complete(length) = parsed else {
                return if buffer.len() > HEAD_BYTES { Err(garbage("its head never ends")) } else { Ok(None) };
            };
            let head = Self::read(&answer)?;
            buffer.advance(length);
            if !head.status.is_informational() {
                return Ok(Some(head));
            }
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(garbage("it switched protocols unasked"));
            }
        }
    }

    fn read(answer: &httparse::Response<'_, '_>) -> Result<Self, UpstreamFailure> {
        let status = answer.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or_else(|| garbage("it has no status"))?;
        let mut headers = HeaderMap::with_capacity(answer.headers.len());
        for line in answer.headers.iter() {
            let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| garbage("a header has no name"))?;
            let value = HeaderValue::from_bytes(line.value).map_err(|_| garbage("a header has no value"))?;
            headers.append(name, value);
        }
        let decoder = framing(status, &headers)?;
        let keep_alive = answer.version == Some(1) && !mentions(&headers, header::CONNECTION, "close");
        let keep_alive = keep_alive && !matches!(decoder, Decoder::UntilClose);
        Ok(Self { status, headers, decoder, keep_alive })
    }
}

/// How the end of the body is told (RFC 9112 §6.3).
fn framing(status: StatusCode, headers: &HeaderMap) -> Result<Decoder, UpstreamFailure> {
    if matches!(status.as_u16(), 204 | 304) || status.is_informational() {
        return Ok(Decoder::length(0));
    }
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return if mentions(headers, header::TRANSFER_ENCODING, "chunked") {
            Ok(Decoder::chunked())
        } else {
            Err(garbage("its transfer encoding is unknown"))
        };
    }
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(Decoder::UntilClose) };
    let length = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = length.and_then(|text| text.parse().ok()).ok_or_else(|| garbage("its length is no number"))?;
    if lengths.any(|other| other != first) {
        return Err(garbage("it has two lengths"));
    }
    Ok(Decoder::length(length))
}

fn mentions(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name);
    let words = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    words.into_iter().any(|other| other.trim().eq_ignore_ascii_case(word))
}

fn garbage(problem: &str) -> UpstreamFailure {
    UpstreamFailure::InvalidResponse(problem.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn take(text: &str) -> Result<Option<AnswerHead>, UpstreamFailure> {
        AnswerHead::take(&mut BytesMut::from(text))
    }

    #[test]
    fn a_head_is_read_once_it_is_whole() {
        assert!(take("HTTP/1.1 200 OK\r\ncontent-le").unwrap().is_none());
        let head = take("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc").unwrap().unwrap();
        assert_eq!((head.status, head.keep_alive), (StatusCode::OK, true));
    }

    #[test]
    fn an_interim_answer_is_skipped() {
        let head = take("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(head.unwrap().unwrap().status, StatusCode::CREATED);
    }

    #[test]
    fn a_connection_is_kept_only_where_the_end_of_the_body_is_told() {
        let kept = |lines: &str| take(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n")).unwrap().unwrap().keep_alive;
        assert!(kept("transfer-encoding: chunked\r\n"));
        assert!(!kept("transfer-encoding: chunked\r\nConnection: keep-alive, Close\r\n"));
        assert!(!kept(""));
        assert!(!take("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n").unwrap().unwrap().keep_alive);
    }

    #[test]
    fn a_head_that_makes_no_sense_is_refused() {
        for text in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
            "HTTP/1.1 101 Switching\r\n\r\n",
        ] {
            assert!(matches!(take(text), Err(UpstreamFailure::InvalidResponse(_))), "`{text}` was accepted");
        }
        assert!(take(&format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(HEAD_BYTES))).is_err());
    }
}
