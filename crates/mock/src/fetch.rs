//! A real network request, which must fail in a sandbox without network.

use std::io::{Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::time::Duration;

use ureq::http::Uri;

use crate::tool::CallResult;

const TIMEOUT: Duration = Duration::from_secs(5);
/// Bytes of a response that are kept.
const MAX_BYTES: u64 = 64 * 1024;

/// Fetches `url` directly, or through `proxy` if that fails. For `https` it only connects, because the mock has no TLS.
pub(crate) fn get(url: &str, proxy: Option<&str>) -> CallResult {
    let Ok(uri) = url.parse::<Uri>() else { return CallResult::failed(format!("invalid URL `{url}`")) };
    let Some(host) = uri.host() else { return CallResult::failed(format!("URL `{url}` has no host")) };
    let encrypted = uri.scheme_str() == Some("https");
    let port = uri.port_u16().unwrap_or(if encrypted { 443 } else { 80 });
    if let Err(error) = dial(host, port) {
        return match proxy {
            Some(proxy) => get_through_proxy(proxy, &uri, host, port),
            None => CallResult::failed(format!("connection to {host}:{port} failed: {error}")),
        };
    }
    if encrypted {
        return CallResult::done(format!("connected to {host}:{port}"));
    }
    read(url).map_or_else(|error| CallResult::failed(format!("cannot read {url}: {error}")), CallResult::done)
}

fn dial(host: &str, port: u16) -> std::io::Result<()> {
    // An IPv6 address has brackets in a URL, but not in a socket address.
    let host = host.trim_start_matches('[').trim_end_matches(']');
    let mut last = std::io::Error::other("the name has no address");
    for address in (host, port).to_socket_addrs()? {
        match TcpStream::connect_timeout(&address, TIMEOUT) {
            Ok(_) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

/// Sends the request through the proxy. A refusal has a reason in its body.
fn get_through_proxy(proxy: &str, uri: &Uri, host: &str, port: u16) -> CallResult {
    let request = if uri.scheme_str() == Some("https") {
        format!("CONNECT {host}:{port} HTTP/1.1\r\nHost: {host}:{port}\r\n\r\n")
    } else {
        format!("GET {uri} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
    };
    match ask_proxy(proxy, &request) {
        Ok(answer) => {
            let (head, body) = answer.split_once("\r\n\r\n").unwrap_or((&answer, ""));
            let accepted = head.split(' ').nth(1).is_some_and(|status| status.starts_with('2'));
            if accepted { CallResult::done(body.to_owned()) } else { CallResult::failed(body.trim().to_owned()) }
        }
        Err(error) => CallResult::failed(format!("connection to {host}:{port} failed: {error}")),
    }
}

fn ask_proxy(proxy: &str, request: &str) -> std::io::Result<String> {
    let address = proxy.trim_start_matches("http://").trim_end_matches('/');
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    stream.write_all(request.as_bytes())?;
    let mut answer = Vec::new();
    stream.take(MAX_BYTES).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

fn read(url: &str) -> Result<String, ureq::Error> {
    let config = ureq::Agent::config_builder().timeout_global(Some(TIMEOUT)).proxy(None).build();
    let mut response = ureq::Agent::new_with_config(config).get(url).call()?;
    response.body_mut().with_config().limit(MAX_BYTES).lossy_utf8(true).read_to_string()
}
