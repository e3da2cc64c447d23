//! Checks of the `Host` and `Origin` headers, against DNS rebinding.
//!
//! A web page can make any name point to 127.0.0.1 and call the server, but it cannot choose the `Host` and `Origin` that
//! the browser sends. So unlisted names and origins are refused.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName};
use protocol::ProblemCode;

use crate::config::ServerConfig;
use crate::error::ApiError;
use crate::peer::Peer;
use crate::state::AppState;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Refuses requests over TCP whose `Host` or `Origin` is not listed.
pub(crate) async fn require_known_host(
    State(state): State<AppState>,
    request: Request,
    next: Next,
) -> Result<Response, ApiError> {
    if request.extensions().get::<Peer>() != Some(&Peer::SameUser) {
        check(&state.config, request.headers())?;
    }
    Ok(next.run(request).await)
}

fn check(config: &ServerConfig, headers: &HeaderMap) -> Result<(), ApiError> {
    let refuse = |value: &str, flag: &str, named: &str| {
        let refusal = ApiError::new(ProblemCode::HostNotAllowed, format!("`{value}` is not a name of this server"));
        // The hint is a shell command, so it contains only plain names.
        let is_name = |letter: char| letter.is_ascii_alphanumeric() || ".-:/[]".contains(letter);
        let plain = !named.is_empty() && named.chars().all(is_name);
        Err(if plain { refusal.with_hint(&format!("viv serve --{flag}={named}")) } else { refusal })
    };
    let Ok(Some(host)) = single_header(headers, HOST) else { return refuse("", "allow-host", "") };
    let name = without_port(host);
    let known = LOOPBACK.iter().any(|own| own.eq_ignore_ascii_case(name))
        || config.hosts.iter().any(|own| own.eq_ignore_ascii_case(name));
    if !known {
        return refuse(host, "allow-host", name);
    }
    match single_header(headers, ORIGIN) {
        Ok(None) => Ok(()),
        Ok(Some(origin)) if is_allowed_origin(config, origin, host) => Ok(()),
        Ok(Some(origin)) => refuse(origin, "allow-origin", origin),
        Err(AmbiguousHeader) => refuse("an invalid or repeated origin", "allow-origin", ""),
    }
}

/// Returns whether an origin is listed, or is the called server itself.
fn is_allowed_origin(config: &ServerConfig, origin: &str, host: &str) -> bool {
    let listed = config.origins.iter().any(|own| own.eq_ignore_ascii_case(origin));
    let page = origin.strip_prefix("http://").or_else(|| origin.strip_prefix("https://"));
    listed || page.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
}

/// A header is repeated, or is not plain ASCII.
struct AmbiguousHeader;

/// Returns the value of the header; `None` if it is missing.
fn single_header(headers: &HeaderMap, name: HeaderName) -> Result<Option<&str>, AmbiguousHeader> {
    let mut all = headers.get_all(name).iter();
    match (all.next(), all.next()) {
        (None, _) => Ok(None),
        (Some(value), None) => value.to_str().map(Some).map_err(|_| AmbiguousHeader),
        (Some(_), Some(_)) => Err(AmbiguousHeader),
    }
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;
    use crate::access::AuthMode;

    #[track_caller]
    fn check_headers(pairs: &[(HeaderName, &str)]) -> bool {
        let mut config = ServerConfig::new(AuthMode::None);
        config.hosts = vec!["viv.example.com".to_owned()];
        config.origins = vec!["https://ui.example.com".to_owned()];
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            headers.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        check(&config, &headers).is_ok()
    }

    #[test]
    fn own_names_are_allowed_with_any_port() {
        for host in ["127.0.0.1:2468", "localhost", "LOCALHOST:1", "[::1]:2468", "viv.example.com"] {
            assert!(check_headers(&[(HOST, host)]), "{host}");
        }
    }

    #[test]
    fn other_names_are_refused() {
        for host in ["evil.example.org", "127.0.0.1.evil.example.org", "localhost.evil.example.org:2468", "", "[::2]"] {
            assert!(!check_headers(&[(HOST, host)]), "{host}");
        }
        assert!(!check_headers(&[]));
    }

    #[test]
    fn unlisted_origins_are_refused() {
        let from = |origin| check_headers(&[(HOST, "localhost:2468"), (ORIGIN, origin)]);
        assert!(from("http://localhost:2468"));
        assert!(from("https://ui.example.com"));
        for origin in [
            "http://localhost:9999",
            "https://evil.example.org",
            "null",
            "http://localhost:2468.evil.example.org",
            "chrome-extension://localhost:2468",
            "http://\u{e9}vil.example.org",
        ] {
            assert!(!from(origin), "{origin}");
        }
    }

    #[test]
    fn repeated_headers_are_refused() {
        let own = (ORIGIN, "http://localhost:2468");
        assert!(!check_headers(&[(HOST, "localhost:2468"), own.clone(), (ORIGIN, "https://evil.example.org")]));
        assert!(!check_headers(&[(HOST, "localhost:2468"), (HOST, "evil.example.org")]));
        assert!(check_headers(&[(HOST, "localhost:2468"), own]));
    }
}
