//! Removal of credentials from the query of a request.
//!
//! Some clients send their token in the query. The other parameters belong to the vendor and keep their bytes.

/// Parameter names under which some vendor accepts a credential.
const CREDENTIALS: [&str; 6] = ["key", "api_key", "apikey", "access_token", "oauth_token", "token"];

/// Returns a path and its query without credentials.
pub(crate) fn without_credentials(path_and_query: &str) -> String {
    let Some((path, query)) = path_and_query.split_once('?') else { return path_and_query.to_owned() };
    // Some parsers split a query at semicolons as well.
    let pairs: Vec<&str> = query.split_inclusive(['&', ';']).collect();
    if !pairs.iter().any(|pair| is_credential(pair)) {
        return path_and_query.to_owned();
    }
    let mut remaining: String = pairs.iter().copied().filter(|pair| !is_credential(pair)).collect();
    if pairs.last().is_some_and(|last| is_credential(last)) {
        remaining.pop();
    }
    if remaining.is_empty() { path.to_owned() } else { format!("{path}?{remaining}") }
}

fn is_credential(pair: &str) -> bool {
    let name = pair.split(['=', '&', ';']).next().unwrap_or_default();
    // A plus in a query is a space.
    let name = percent_decoded(&name.replace('+', " "));
    CREDENTIALS.iter().any(|credential| name.trim_ascii().eq_ignore_ascii_case(credential))
}

/// Returns a part of a URL with its percent escapes decoded.
pub(crate) fn percent_decoded(text: &str) -> String {
    let mut rest = text.as_bytes();
    let mut decoded = Vec::with_capacity(rest.len());
    while let Some((first, behind)) = rest.split_first() {
        let escaped = behind.first_chunk::<2>().filter(|_| *first == b'%').and_then(|digits| hex(*digits));
        decoded.push(escaped.unwrap_or(*first));
        rest = if escaped.is_some() { &behind[2..] } else { behind };
    }
    String::from_utf8_lossy(&decoded).into_owned()
}

fn hex(digits: [u8; 2]) -> Option<u8> {
    let [high, low] = digits.map(|digit| char::from(digit).to_digit(16));
    u8::try_from(high? * 16 + low?).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(received: &str, expected: &str) {
        assert_eq!(without_credentials(received), expected);
    }

    #[test]
    fn credentials_are_removed_from_the_query() {
        check("/m:generateContent?key=secret", "/m:generateContent");
        check("/m?alt=sse&key=secret&x=1", "/m?alt=sse&x=1");
        check("/m?%6bey=A&access_token=B", "/m");
        check("/m?KEY=A&alt=sse&Api_Key=B&apikey&oauth_token=&%74oken=C", "/m?alt=sse");
        check("/m?alt=sse;key=A", "/m?alt=sse");
        check("/m?+key=A&key+=B&%6B%65%79%20=C&b=1", "/m?b=1");
    }

    #[test]
    fn other_parameters_keep_their_bytes() {
        for path in
            ["/v1/messages", "/v1/messages?", "/v1/messages?beta=true", "/m?a=%6b&&b=;+x=%zz%", "/m?keys=1&tokens=%6"]
        {
            check(path, path);
        }
        check("/m?a=%6b&&key=A&b=;x=%zz", "/m?a=%6b&&b=;x=%zz");
    }
}
