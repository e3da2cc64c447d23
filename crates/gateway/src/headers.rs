//! Which headers may leave, and which may come back.
//!
//! Outward everything passes but credentials, cookies, accounting headers of other proxies and what
//! belongs to the connection: a vendor's beta headers must arrive untouched. Inward only a list passes.

use http::{HeaderMap, HeaderName, header};

/// Under which name a LiteLLM proxy keeps a call in its own accounts.
pub(crate) const CALL_ID: HeaderName = HeaderName::from_static("x-litellm-call-id");

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// The headers of a request that may leave.
pub(crate) fn for_upstream(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    let may_leave = |name: &HeaderName| {
        may_leave(name.as_str()) && !named.iter().any(|other| other.eq_ignore_ascii_case(name.as_str()))
    };
    pick(headers, may_leave)
}

/// The headers of an answer that the agent may see.
pub(crate) fn for_client(headers: &HeaderMap) -> HeaderMap {
    pick(headers, |name| may_come_back(name.as_str()))
}

fn pick(headers: &HeaderMap, wanted: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let mut picked = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter().filter(|(name, _)| wanted(name)) {
        picked.append(name.clone(), value.clone());
    }
    picked
}

/// The tokens a request carries, wherever its client puts them; some send the same one twice.
pub(crate) fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    bearer.into_iter().chain(text(API_KEY)).chain(text(GOOG_API_KEY))
}

fn may_leave(name: &str) -> bool {
    let credential = matches!(name, "authorization" | "x-api-key" | "x-goog-api-key" | "cookie" | "api-key");
    let of_the_connection = matches!(
        name,
        "connection"
            | "keep-alive"
            | "te"
            | "trailer"
            | "transfer-encoding"
            | "upgrade"
            | "host"
            | "content-length"
            | "expect"
    );
    // A compressed answer could not be metered on its way, so none is asked for.
    let of_the_answer = name == "accept-encoding";
    let of_a_proxy = name.starts_with("proxy-") || name.starts_with("x-litellm-");
    !(credential || of_the_connection || of_the_answer || of_a_proxy)
}

fn may_come_back(name: &str) -> bool {
    match name {
        "content-type" | "retry-after" | "retry-after-ms" | "request-id" | "x-request-id" | "x-should-retry"
        | "cf-ray" => true,
        _ => ["anthropic-", "openai-", "x-ratelimit-", "x-goog-"].iter().any(|family| name.starts_with(family)),
    }
}

/// Headers that the client declared to belong to its connection (RFC 9110 §7.6.1).
fn named_by_connection(headers: &HeaderMap) -> Vec<&str> {
    headers
        .get_all(header::CONNECTION)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(',').map(str::trim))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        lines.iter().map(|(name, value)| (HeaderName::from_static(name), value.parse().unwrap())).collect()
    }

    #[test]
    fn credentials_and_connection_headers_stay() {
        let sent = headers(&[
            ("authorization", "Bearer t"),
            ("x-api-key", "t"),
            ("x-goog-api-key", "t"),
            ("cookie", "c"),
            ("proxy-authorization", "p"),
            ("x-litellm-end-user-id", "someone-else"),
            ("connection", "close, x-hop"),
            ("x-hop", "1"),
            ("accept-encoding", "zstd"),
            ("host", "h"),
            ("anthropic-beta", "a-1,b-2"),
            ("anthropic-version", "2023-06-01"),
            ("x-stainless-lang", "js"),
        ]);
        let mut left: Vec<_> = for_upstream(&sent).into_iter().filter_map(|(name, _)| name).collect();
        left.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        assert_eq!(left, ["anthropic-beta", "anthropic-version", "x-stainless-lang"]);
    }

    #[test]
    fn an_answer_brings_only_what_is_listed() {
        let came = headers(&[
            ("content-type", "application/json"),
            ("set-cookie", "a=b"),
            ("anthropic-ratelimit-tokens-remaining", "5"),
            ("x-internal", "secret"),
            ("transfer-encoding", "chunked"),
        ]);
        let names: Vec<_> = for_client(&came).keys().map(|name| name.as_str().to_owned()).collect();
        assert_eq!(names.len(), 2);
        assert!(names.contains(&"anthropic-ratelimit-tokens-remaining".to_owned()));
    }

    #[test]
    fn the_token_is_found_in_each_of_its_places() {
        let found = |lines| tokens(&headers(lines)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(found(&[("authorization", "bearer  t1 "), ("x-api-key", "t2")]), ["t1", "t2"]);
        assert_eq!(found(&[("x-goog-api-key", "t3")]), ["t3"]);
        assert!(found(&[("authorization", "Basic abc")]).is_empty() && found(&[]).is_empty());
    }
}
