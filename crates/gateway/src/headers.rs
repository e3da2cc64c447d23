//! Filters for the headers of requests and responses.
//!
//! A request and a response keep only listed headers. The vendor's version and beta headers are listed, so they arrive
//! unchanged; the beta header is recorded with the request.

use http::{HeaderMap, HeaderName, header};

/// The header in which an Anthropic client asks for features that are not released.
pub(crate) const BETA: HeaderName = HeaderName::from_static("anthropic-beta");
/// The header in which a LiteLLM proxy returns its id of a call.
pub(crate) const CALL_ID: HeaderName = HeaderName::from_static("x-litellm-call-id");

const API_KEY: HeaderName = HeaderName::from_static("x-api-key");
const GOOG_API_KEY: HeaderName = HeaderName::from_static("x-goog-api-key");

/// Returns the headers of a request that may be sent upstream.
pub(crate) fn for_upstream(headers: &HeaderMap) -> HeaderMap {
    let named = named_by_connection(headers);
    let is_allowed = |name: &HeaderName| {
        may_be_sent(name.as_str()) && !named.iter().any(|other| other.eq_ignore_ascii_case(name.as_str()))
    };
    pick(headers, is_allowed)
}

/// Returns the headers of a response that the client may see.
pub(crate) fn for_client(headers: &HeaderMap) -> HeaderMap {
    pick(headers, |name| may_be_returned(name.as_str()))
}

fn pick(headers: &HeaderMap, wanted: impl Fn(&HeaderName) -> bool) -> HeaderMap {
    let mut picked = HeaderMap::with_capacity(headers.len());
    for (name, value) in headers.iter().filter(|(name, _)| wanted(name)) {
        picked.append(name.clone(), value.clone());
    }
    picked
}

/// Returns the tokens of a request from all headers in which clients send them. Some clients send one token twice.
pub(crate) fn tokens(headers: &HeaderMap) -> impl Iterator<Item = &str> {
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let bearer = text(header::AUTHORIZATION).and_then(|value| {
        let (scheme, token) = value.split_once(' ')?;
        scheme.eq_ignore_ascii_case("bearer").then_some(token.trim())
    });
    bearer.into_iter().chain(text(API_KEY)).chain(text(GOOG_API_KEY))
}

/// The headers of a request that are sent upstream. Every other header stays here: beside the host's key, a header such
/// as `x-portkey-custom-host` or `openai-organization` would let the sandbox choose who serves or pays for the call.
const SENT: [&str; 20] = [
    "accept",
    "accept-language",
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "anthropic-version",
    "content-type",
    "conversation_id",
    "idempotency-key",
    "openai-beta",
    "originator",
    "session_id",
    "traceparent",
    "tracestate",
    "user-agent",
    "version",
    "x-app",
    "x-claude-code-agent-id",
    "x-claude-code-parent-agent-id",
    "x-claude-code-session-id",
    "x-client-request-id",
];
/// The family of headers in which the vendors' SDKs describe themselves.
const SENT_FAMILY: &str = "x-stainless-";

fn may_be_sent(name: &str) -> bool {
    SENT.contains(&name) || name.starts_with(SENT_FAMILY)
}

fn may_be_returned(name: &str) -> bool {
    match name {
        "content-type" | "retry-after" | "retry-after-ms" | "request-id" | "x-request-id" | "x-should-retry"
        | "cf-ray" => true,
        _ => ["anthropic-", "openai-", "x-ratelimit-", "x-goog-"].iter().any(|family| name.starts_with(family)),
    }
}

/// Returns the headers that the client listed in `Connection` (RFC 9110 §7.6.1).
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
    fn only_listed_headers_are_sent_upstream() {
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
            ("forwarded", "host=evil.example.com"),
            ("x-forwarded-host", "evil.example.com"),
            ("x-forwarded-for", "192.0.2.1"),
            ("x-portkey-custom-host", "https://evil.example.com"),
            ("x-portkey-config", "{}"),
            ("helicone-target-url", "https://evil.example.com"),
            ("helicone-auth", "Bearer t"),
            ("x-goog-user-project", "other"),
            ("x-goog-request-params", "model=other"),
            ("openai-organization", "org-other"),
            ("openai-project", "proj-other"),
            ("anthropic-organization-id", "other"),
            ("x-http-method-override", "DELETE"),
            ("x-original-url", "/v1/files"),
            ("x-unknown", "1"),
        ]);
        let mut sent: Vec<_> = for_upstream(&sent).into_iter().filter_map(|(name, _)| name).collect();
        sent.sort_by(|a, b| a.as_str().cmp(b.as_str()));
        assert_eq!(sent, ["anthropic-beta", "anthropic-version", "x-stainless-lang"]);
    }

    #[test]
    fn response_keeps_only_listed_headers() {
        let received = headers(&[
            ("content-type", "application/json"),
            ("set-cookie", "a=b"),
            ("anthropic-ratelimit-tokens-remaining", "5"),
            ("x-internal", "secret"),
            ("transfer-encoding", "chunked"),
        ]);
        let names: Vec<_> = for_client(&received).keys().map(|name| name.as_str().to_owned()).collect();
        assert_eq!(names.len(), 2);
        assert!(names.contains(&"anthropic-ratelimit-tokens-remaining".to_owned()));
    }

    #[test]
    fn token_is_found_in_each_header() {
        let found = |lines| tokens(&headers(lines)).map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(found(&[("authorization", "bearer  t1 "), ("x-api-key", "t2")]), ["t1", "t2"]);
        assert_eq!(found(&[("x-goog-api-key", "t3")]), ["t3"]);
        assert!(found(&[("authorization", "Basic abc")]).is_empty() && found(&[]).is_empty());
    }
}
