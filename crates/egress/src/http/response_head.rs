//! The head of a host's response: parsed strictly, and rewritten for the client.

use super::{
    framing::{self, BodyFraming},
    head::{self, Header},
};

/// The head of a response.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ResponseHead {
    pub(crate) status: u16,
    reason: String,
    minor_version: u8,
    headers: Vec<Header>,
}

impl ResponseHead {
    /// Parses a head that ends with its empty line; the error names the defect.
    pub(crate) fn parse(bytes: &[u8], header_lines: usize) -> Result<Self, String> {
        if head::check_line_ends(bytes).is_err() {
            return Err("a line does not end in CR LF".to_owned());
        }
        let mut lines = vec![httparse::EMPTY_HEADER; header_lines];
        let mut parsed = httparse::Response::new(&mut lines);
        match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(_) => return Err("the head is incomplete".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
        let (Some(status), Some(minor_version)) = (parsed.code, parsed.version) else {
            return Err("the status line is missing".to_owned());
        };
        let reason = parsed.reason.unwrap_or_default().to_owned();
        Ok(Self { status, reason, minor_version, headers: head::headers(parsed.headers) })
    }

    /// Returns whether another response follows this one.
    pub(crate) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    /// Returns the framing of the body in the response to a request with `method`.
    pub(crate) fn framing(&self, method: &str) -> Result<BodyFraming, &'static str> {
        let stated = framing::from_headers(&self.headers, self.minor_version)?;
        if method == "HEAD" || self.is_interim() || [204, 304].contains(&self.status) {
            return Ok(BodyFraming::Length(0));
        }
        Ok(stated.unwrap_or(BodyFraming::UntilClose))
    }

    /// Encodes the head for the client. The connection closes after the response.
    pub(crate) fn client_head(&self, in_chunks: bool) -> Vec<u8> {
        let mut bytes = format!("HTTP/1.1 {} {}\r\n", self.status, self.reason).into_bytes();
        head::write(&mut bytes, head::end_to_end(&self.headers));
        if in_chunks {
            bytes.extend_from_slice(b"transfer-encoding: chunked\r\n");
        }
        if !self.is_interim() {
            bytes.extend_from_slice(b"connection: close\r\n");
        }
        bytes.extend_from_slice(b"\r\n");
        bytes
    }
}
