//! Encoding of request heads and parsing of response heads.

use std::mem::MaybeUninit;

use bytes::{Buf, BytesMut};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};

use super::body_decoder::BodyDecoder;
use crate::upstream::UpstreamFailure;

const MAX_HEAD_BYTES: usize = 64 << 10;
const MAX_HEADERS: usize = 128;

/// Method, path and headers of a request.
#[derive(Debug)]
pub(crate) struct RequestHead<'a> {
    pub(crate) method: &'a http::Method,
    pub(crate) path_and_query: &'a str,
    pub(crate) host: &'a str,
    pub(crate) headers: &'a HeaderMap,
}

impl RequestHead<'_> {
    /// Returns the encoded head for a body of `length` bytes.
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

/// Status, headers and body framing of a response.
#[derive(Debug)]
pub(super) struct ResponseHead {
    pub(super) status: StatusCode,
    pub(super) headers: HeaderMap,
    pub(super) decoder: BodyDecoder,
    /// Whether the connection can be reused after the body.
    pub(super) keep_alive: bool,
}

impl ResponseHead {
    /// Takes a head from `buffer`; `None` if it is incomplete. Interim (1xx) responses are skipped.
    pub(super) fn parse(buffer: &mut BytesMut) -> Result<Option<Self>, UpstreamFailure> {
        loop {
            let mut lines = [const { MaybeUninit::uninit() }; MAX_HEADERS];
            let mut response = httparse::Response::new(&mut []);
            let parsed = httparse::ParserConfig::default()
                .parse_response_with_uninit_headers(&mut response, buffer, &mut lines)
                .map_err(|error| invalid(&error.to_string()))?;
            let httparse::Status::Complete(length) = parsed else {
                return if buffer.len() > MAX_HEAD_BYTES {
                    Err(invalid("the response head is too long"))
                } else {
                    Ok(None)
                };
            };
            let head = Self::from_parsed(&response)?;
            buffer.advance(length);
            if !head.status.is_informational() {
                return Ok(Some(head));
            }
            if head.status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(invalid("unexpected status 101"));
            }
        }
    }

    fn from_parsed(response: &httparse::Response<'_, '_>) -> Result<Self, UpstreamFailure> {
        let status = response.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or_else(|| invalid("invalid status code"))?;
        let mut headers = HeaderMap::with_capacity(response.headers.len());
        for line in response.headers.iter() {
            let name = HeaderName::from_bytes(line.name.as_bytes()).map_err(|_| invalid("invalid header name"))?;
            let value = HeaderValue::from_bytes(line.value).map_err(|_| invalid("invalid header value"))?;
            headers.append(name, value);
        }
        let decoder = body_decoder(status, &headers)?;
        let keep_alive = response.version == Some(1) && !has_token(&headers, header::CONNECTION, "close");
        let keep_alive = keep_alive && !matches!(decoder, BodyDecoder::UntilClose);
        Ok(Self { status, headers, decoder, keep_alive })
    }
}

/// Returns the decoder for the framing of the body (RFC 9112 §6.3).
fn body_decoder(status: StatusCode, headers: &HeaderMap) -> Result<BodyDecoder, UpstreamFailure> {
    if matches!(status.as_u16(), 204 | 304) || status.is_informational() {
        return Ok(BodyDecoder::with_length(0));
    }
    if headers.contains_key(header::TRANSFER_ENCODING) {
        return if has_token(headers, header::TRANSFER_ENCODING, "chunked") {
            Ok(BodyDecoder::chunked())
        } else {
            Err(invalid("unsupported transfer-encoding"))
        };
    }
    let mut lengths = headers.get_all(header::CONTENT_LENGTH).iter();
    let Some(first) = lengths.next() else { return Ok(BodyDecoder::UntilClose) };
    let length = first.to_str().ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let length = length.and_then(|text| text.parse().ok()).ok_or_else(|| invalid("content-length is not a number"))?;
    if lengths.any(|other| other != first) {
        return Err(invalid("conflicting content-length headers"));
    }
    Ok(BodyDecoder::with_length(length))
}

fn has_token(headers: &HeaderMap, name: HeaderName, word: &str) -> bool {
    let values = headers.get_all(name);
    let words = values.iter().filter_map(|value| value.to_str().ok()).flat_map(|value| value.split(','));
    words.into_iter().any(|other| other.trim().eq_ignore_ascii_case(word))
}

fn invalid(problem: &str) -> UpstreamFailure {
    UpstreamFailure::InvalidResponse(problem.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Option<ResponseHead>, UpstreamFailure> {
        ResponseHead::parse(&mut BytesMut::from(text))
    }

    #[test]
    fn head_is_parsed_when_it_is_complete() {
        assert!(parse("HTTP/1.1 200 OK\r\ncontent-le").unwrap().is_none());
        let head = parse("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nabc").unwrap().unwrap();
        assert_eq!((head.status, head.keep_alive), (StatusCode::OK, true));
    }

    #[test]
    fn interim_response_is_skipped() {
        let head = parse("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 201 Created\r\ncontent-length: 0\r\n\r\n");
        assert_eq!(head.unwrap().unwrap().status, StatusCode::CREATED);
    }

    #[test]
    fn connection_is_reused_only_if_the_body_has_a_known_end() {
        let keep_alive = |lines: &str| parse(&format!("HTTP/1.1 200 OK\r\n{lines}\r\n")).unwrap().unwrap().keep_alive;
        assert!(keep_alive("transfer-encoding: chunked\r\n"));
        assert!(!keep_alive("transfer-encoding: chunked\r\nConnection: keep-alive, Close\r\n"));
        assert!(!keep_alive(""));
        assert!(!parse("HTTP/1.0 200 OK\r\ncontent-length: 1\r\n\r\n").unwrap().unwrap().keep_alive);
    }

    #[test]
    fn invalid_head_is_rejected() {
        for text in [
            "SSH-2.0-x\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: +1\r\n\r\n",
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
            "HTTP/1.1 101 Switching\r\n\r\n",
        ] {
            assert!(matches!(parse(text), Err(UpstreamFailure::InvalidResponse(_))), "`{text}` was accepted");
        }
        assert!(parse(&format!("HTTP/1.1 200 OK\r\nx: {}", "y".repeat(MAX_HEAD_BYTES))).is_err());
    }
}
