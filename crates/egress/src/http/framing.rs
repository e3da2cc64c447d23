//! The length of a body. Headers must state it in exactly one way.

use super::head::{Header, values};

/// The way to find the end of a body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyFraming {
    /// After this number of bytes.
    Length(u64),
    /// After the chunk of length zero.
    Chunked,
    /// When the peer closes; responses only.
    UntilClose,
}

/// Returns the framing that the headers state; `None` if they state none.
///
/// Two parsers that see different lengths see different requests (request smuggling), so anything ambiguous is an error.
pub(crate) fn from_headers(headers: &[Header], minor_version: u8) -> Result<Option<BodyFraming>, &'static str> {
    let lengths: Vec<&[u8]> = values(headers, "content-length").collect();
    let codings: Vec<&[u8]> = values(headers, "transfer-encoding").collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(None),
        ([length], []) => parse_length(length).map(|length| Some(BodyFraming::Length(length))),
        ([], [coding]) if !coding.eq_ignore_ascii_case(b"chunked") => {
            Err("the only supported transfer-encoding is `chunked`, once")
        }
        ([], [_]) if minor_version == 0 => Err("HTTP/1.0 has no transfer-encoding"),
        ([], [_]) => Ok(Some(BodyFraming::Chunked)),
        ([], _) => Err("transfer-encoding is given twice"),
        (_, []) => Err("content-length is given twice"),
        _ => Err("content-length and transfer-encoding are both given"),
    }
}

fn parse_length(text: &[u8]) -> Result<u64, &'static str> {
    let wrong = "content-length is not a number";
    // Some parsers accept `+5` and ` 5`.
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(wrong);
    }
    std::str::from_utf8(text).ok().and_then(|digits| digits.parse().ok()).ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[(&str, &str)], expected: Result<Option<BodyFraming>, ()>) {
        let line = |(name, value): &(&str, &str)| Header { name: (*name).into(), value: value.as_bytes().to_vec() };
        let headers: Vec<Header> = lines.iter().map(line).collect();
        assert_eq!(from_headers(&headers, 1).map_err(drop), expected, "{lines:?}");
    }

    #[test]
    fn single_length_is_accepted() {
        check(&[], Ok(None));
        check(&[("content-length", "17")], Ok(Some(BodyFraming::Length(17))));
        check(&[("transfer-encoding", "Chunked")], Ok(Some(BodyFraming::Chunked)));
    }

    #[test]
    fn ambiguous_length_is_refused() {
        for length in ["", "+1", "-1", "1 ", "0x10", "1,1", "1_0", "99999999999999999999999"] {
            check(&[("content-length", length)], Err(()));
        }
        for coding in ["", "gzip, chunked", "chunked, chunked", "xchunked", "identity", "chunked;q=1", "\x0bchunked"] {
            check(&[("transfer-encoding", coding)], Err(()));
        }
        check(&[("content-length", "1"), ("content-length", "1")], Err(()));
        check(&[("transfer-encoding", "chunked"), ("transfer-encoding", "chunked")], Err(()));
        check(&[("content-length", "1"), ("transfer-encoding", "chunked")], Err(()));
        let chunked = [Header { name: "transfer-encoding".into(), value: b"chunked".to_vec() }];
        assert!(from_headers(&chunked, 0).is_err());
    }
}
