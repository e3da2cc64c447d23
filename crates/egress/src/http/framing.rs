//! How long a body is, told in exactly one way.

use super::head::{Header, values};

/// Where a body ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Framing {
    /// After so many bytes.
    Length(u64),
    /// After the chunk of length zero.
    Chunked,
    /// Where the peer closes; answers only.
    UntilClose,
}

/// What the headers say about the length of a body; none: nothing.
///
/// Two readers that see different lengths see different requests, so whatever can be read in two ways is an error.
pub(crate) fn told(headers: &[Header], minor_version: u8) -> Result<Option<Framing>, &'static str> {
    let lengths: Vec<&[u8]> = values(headers, "content-length").collect();
    let codings: Vec<&[u8]> = values(headers, "transfer-encoding").collect();
    match (lengths.as_slice(), codings.as_slice()) {
        ([], []) => Ok(None),
        ([length], []) => parse_length(length).map(|length| Some(Framing::Length(length))),
        ([], [coding]) if !coding.eq_ignore_ascii_case(b"chunked") => {
            Err("the only transfer-encoding taken is `chunked`, once")
        }
        ([], [_]) if minor_version == 0 => Err("HTTP/1.0 has no transfer-encoding"),
        ([], [_]) => Ok(Some(Framing::Chunked)),
        ([], _) => Err("transfer-encoding is given twice"),
        (_, []) => Err("content-length is given twice"),
        _ => Err("content-length and transfer-encoding are given both"),
    }
}

fn parse_length(text: &[u8]) -> Result<u64, &'static str> {
    let wrong = "content-length is not a number";
    // `+5` and ` 5` are numbers to some readers.
    if text.is_empty() || !text.iter().all(u8::is_ascii_digit) {
        return Err(wrong);
    }
    std::str::from_utf8(text).ok().and_then(|digits| digits.parse().ok()).ok_or(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(lines: &[(&str, &str)], expected: Result<Option<Framing>, ()>) {
        let line = |(name, value): &(&str, &str)| Header { name: (*name).into(), value: value.as_bytes().to_vec() };
        let headers: Vec<Header> = lines.iter().map(line).collect();
        assert_eq!(told(&headers, 1).map_err(drop), expected, "{lines:?}");
    }

    #[test]
    fn one_length_told_once_is_taken() {
        check(&[], Ok(None));
        check(&[("content-length", "17")], Ok(Some(Framing::Length(17))));
        check(&[("transfer-encoding", "Chunked")], Ok(Some(Framing::Chunked)));
    }

    #[test]
    fn a_length_that_can_be_read_in_two_ways_is_refused() {
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
        assert!(told(&chunked, 0).is_err());
    }
}
