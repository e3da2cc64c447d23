//! Header lines, and which of them are meant for the next hop alone.

use crate::refusal::Refusal;

/// Lines that speak about one connection and are never passed on.
const HOP_BY_HOP: [&str; 10] = [
    "connection",
    "keep-alive",
    "proxy-authenticate",
    "proxy-authentication-info",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// One header line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Header {
    /// In lower case.
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
}

/// Copies header lines from the parser, names in lower case.
pub(crate) fn headers(parsed: &[httparse::Header<'_>]) -> Vec<Header> {
    let lines = parsed.iter().map(|line| Header { name: line.name.to_ascii_lowercase(), value: line.value.to_vec() });
    lines.collect()
}

/// Refuses line ends that some readers take for the end of a line and others do not.
pub(crate) fn check_line_ends(head: &[u8]) -> Result<(), Refusal> {
    let bare_feed = head.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || head[at - 1] != b'\r'));
    let bare_return = head.iter().enumerate().any(|(at, byte)| *byte == b'\r' && head.get(at + 1) != Some(&b'\n'));
    if bare_feed || bare_return {
        return Err(Refusal::Malformed("a line ends in CR LF and nothing else".to_owned()));
    }
    Ok(())
}

/// The values of a header, each as it came.
pub(crate) fn values<'a>(headers: &'a [Header], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |header| header.name == name).map(|header| header.value.as_slice())
}

/// The comma-separated words of a header, in lower case.
pub(crate) fn words(headers: &[Header], name: &str) -> Vec<String> {
    let text = values(headers, name).map(String::from_utf8_lossy).collect::<Vec<_>>().join(",");
    text.split(',').map(|word| word.trim().to_ascii_lowercase()).filter(|word| !word.is_empty()).collect()
}

/// What may be passed on: everything that is not for this connection alone.
pub(crate) fn end_to_end(headers: &[Header]) -> impl Iterator<Item = &Header> {
    let named = words(headers, "connection");
    headers.iter().filter(move |header| !HOP_BY_HOP.contains(&header.name.as_str()) && !named.contains(&header.name))
}

/// Writes header lines the way we write them.
pub(crate) fn write<'a>(into: &mut Vec<u8>, headers: impl Iterator<Item = &'a Header>) {
    for header in headers {
        into.extend_from_slice(header.name.as_bytes());
        into.extend_from_slice(b": ");
        into.extend_from_slice(&header.value);
        into.extend_from_slice(b"\r\n");
    }
}
