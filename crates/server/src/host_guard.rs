//! Which names this server answers to.
//!
//! A page in a browser can make any name point at 127.0.0.1 and call us; it cannot choose the `Host` and
//! `Origin` the browser sends. So a name or an origin that nobody listed is refused.

use axum::extract::{Request, State};
use axum::middleware::Next;
use axum::response::Response;
use http::header::{HOST, ORIGIN};
use http::{HeaderMap, HeaderName};
use protocol::Code;

use crate::config::ServerConfig;
use crate::error::ApiError;
use crate::peer::Peer;
use crate::state::AppState;

const LOOPBACK: [&str; 3] = ["localhost", "127.0.0.1", "[::1]"];

/// Lets through what was sent to us on purpose.
pub(crate) async fn known_host(
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
    let refuse =
        |what: &str| Err(ApiError::new(Code::HostNotAllowed, format!("`{what}` is not a name of this server")));
    let Some(host) = text(headers, HOST) else { return refuse("") };
    let name = without_port(host);
    let known = LOOPBACK.iter().any(|own| own.eq_ignore_ascii_case(name))
        || config.hosts.iter().any(|own| own.eq_ignore_ascii_case(name));
    if !known {
        return refuse(host);
    }
    match text(headers, ORIGIN) {
        Some(origin) if !is_ours(config, origin, host) => refuse(origin),
        _ => Ok(()),
    }
}

/// An origin is ours when it was listed, or when it is the very server that is called.
fn is_ours(config: &ServerConfig, origin: &str, host: &str) -> bool {
    let listed = config.origins.iter().any(|own| own.eq_ignore_ascii_case(origin));
    let same = origin.split_once("://").is_some_and(|(_, authority)| authority.eq_ignore_ascii_case(host));
    listed || same
}

fn text(headers: &HeaderMap, name: HeaderName) -> Option<&str> {
    headers.get(name)?.to_str().ok()
}

fn without_port(host: &str) -> &str {
    match host.rsplit_once(':') {
        Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
        _ => host,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::access::Auth;

    #[track_caller]
    fn check_headers(pairs: &[(HeaderName, &str)]) -> bool {
        let mut config = ServerConfig::new(Auth::None);
        config.hosts = vec!["viv.example.com".to_owned()];
        config.origins = vec!["https://ui.example.com".to_owned()];
        let headers = pairs.iter().map(|(name, value)| (name.clone(), value.parse().unwrap())).collect();
        check(&config, &headers).is_ok()
    }

    #[test]
    fn names_of_ours_pass_with_any_port() {
        for host in ["127.0.0.1:2468", "localhost", "LOCALHOST:1", "[::1]:2468", "viv.example.com"] {
            assert!(check_headers(&[(HOST, host)]), "{host}");
        }
    }

    #[test]
    fn other_names_do_not() {
        for host in ["evil.example.org", "127.0.0.1.evil.example.org", "localhost.evil.example.org:2468", "", "[::2]"] {
            assert!(!check_headers(&[(HOST, host)]), "{host}");
        }
        assert!(!check_headers(&[]));
    }

    #[test]
    fn a_page_from_elsewhere_is_refused() {
        let from = |origin| check_headers(&[(HOST, "localhost:2468"), (ORIGIN, origin)]);
        assert!(from("http://localhost:2468"));
        assert!(from("https://ui.example.com"));
        for origin in
            ["http://localhost:9999", "https://evil.example.org", "null", "http://localhost:2468.evil.example.org"]
        {
            assert!(!from(origin), "{origin}");
        }
    }
}
