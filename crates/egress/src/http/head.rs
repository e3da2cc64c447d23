//! Header lines, and the list of hop-by-hop headers that are not forwarded.

use crate::refusal::Refusal;

/// Headers about one connection, which are never forwarded.
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
    /// The name in lower case.
    pub(crate) name: String,
    pub(crate) value: Vec<u8>,
}

/// Returns the parser's header lines with names in lower case.
pub(crate) fn headers(parsed: &[httparse::Header<'_>]) -> Vec<Header> {
    let lines = parsed.iter().map(|line| Header { name: line.name.to_ascii_lowercase(), value: line.value.to_vec() });
    lines.collect()
}

/// Refuses line ends other than CR LF, which parsers treat differently.
pub(crate) fn check_line_ends(head: &[u8]) -> Result<(), Refusal> {
    let bare_feed = head.iter().enumerate().any(|(at, byte)| *byte == b'\n' && (at == 0 || head[at - 1] != b'\r'));
    let bare_return = head.iter().enumerate().any(|(at, byte)| *byte == b'\r' && head.get(at + 1) != Some(&b'\n'));
    if bare_feed || bare_return {
        return Err(Refusal::Malformed("a line does not end in CR LF".to_owned()));
    }
    Ok(())
}

/// Returns the unchanged values of a header.
pub(crate) fn values<'a>(headers: &'a [Header], name: &'a str) -> impl Iterator<Item = &'a [u8]> {
    headers.iter().filter(move |header| header.name == name).map(|header| header.value.as_slice())
}

/// Returns the comma-separated words of a header in lower case.
pub(crate) fn words(headers: &[Header], name: &str) -> Vec<String> {
    let text = values(headers, name).map(String::from_utf8_lossy).collect::<Vec<_>>().join(",");
    text.split(',').map(|word| word.trim().to_ascii_lowercase()).filter(|word| !word.is_empty()).collect()
}

/// Returns the headers to forward: all except hop-by-hop headers and those that `Connection` names.
pub(crate) fn end_to_end(headers: &[Header]) -> impl Iterator<Item = &Header> {
    let named = words(headers, "connection");
    headers.iter().filter(move |header| !HOP_BY_HOP.contains(&header.name.as_str()) && !named.contains(&header.name))
}

/// Appends header lines to `into`.
pub(crate) fn write<'a>(into: &mut Vec<u8>, headers: impl Iterator<Item = &'a Header>) {
    for header in headers {
        into.extend_from_slice(header.name.as_bytes());
        into.extend_from_slice(b": ");
        into.extend_from_slice(&header.value);
        into.extend_from_slice(b"\r\n");
    }
}
