//! The head of a host's answer, read strictly and written for our client.

use super::{
    framing::{self, Framing},
    head::{self, Header},
};

/// The head of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    reason: String,
    minor_version: u8,
    headers: Vec<Header>,
}

impl Answer {
    /// Reads a head that ends with its empty line; the error says what is wrong with it.
    pub(crate) fn parse(bytes: &[u8], header_lines: usize) -> Result<Self, String> {
        if head::check_line_ends(bytes).is_err() {
            return Err("a line does not end in CR LF".to_owned());
        }
        let mut lines = vec![httparse::EMPTY_HEADER; header_lines];
        let mut parsed = httparse::Response::new(&mut lines);
        match parsed.parse(bytes) {
            Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
            Ok(_) => return Err("its head is cut".to_owned()),
            Err(error) => return Err(error.to_string()),
        }
        let (Some(status), Some(minor_version)) = (parsed.code, parsed.version) else {
            return Err("it has no status line".to_owned());
        };
        let reason = parsed.reason.unwrap_or_default().to_owned();
        Ok(Self { status, reason, minor_version, headers: head::headers(parsed.headers) })
    }

    /// Whether another answer follows this one.
    pub(crate) fn is_interim(&self) -> bool {
        (100..200).contains(&self.status)
    }

    /// How long the body is that answers a request of this method.
    pub(crate) fn framing(&self, method: &str) -> Result<Framing, &'static str> {
        let told = framing::told(&self.headers, self.minor_version)?;
        if method == "HEAD" || self.is_interim() || [204, 304].contains(&self.status) {
            return Ok(Framing::Length(0));
        }
        Ok(told.unwrap_or(Framing::UntilClose))
    }

    /// The head for the client. Nothing follows the answer on its connection.
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
