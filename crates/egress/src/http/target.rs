//! What a request asks for: the two forms a proxy is spoken to in.

use policy::{Endpoint, Host};

/// The target of a request, its host as it was written: reading it strictly is part of the decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// `CONNECT host:port`.
    Tunnel { host: String, port: u16 },
    /// `GET http://host[:port]/path`, or `GET /path` in TLS that was opened.
    Resource { scheme: Scheme, host: String, port: u16, path: String },
}

/// How a resource is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// In the clear.
    Http,
    /// In TLS that was opened.
    Https,
}

impl Scheme {
    /// The port that is meant where none is named.
    pub(crate) fn usual_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl Target {
    /// Reads a target; the error says what is wrong with it.
    pub(crate) fn parse(method: &str, text: &str) -> Result<Self, String> {
        check_characters(text)?;
        if method == "CONNECT" {
            let (host, port) = split_authority(text)?;
            let port = port.ok_or("CONNECT needs host and port")?;
            return Ok(Self::Tunnel { host: host.to_owned(), port });
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("this is a proxy: it takes `CONNECT host:port` and `http://` targets".to_owned());
        };
        if !scheme.eq_ignore_ascii_case("http") {
            return Err("only `http://` targets are fetched; for HTTPS use CONNECT".to_owned());
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, port) = split_authority(&rest[..end])?;
        let path = if rest[end..].starts_with('/') { rest[end..].to_owned() } else { format!("/{}", &rest[end..]) };
        Ok(Self::Resource { scheme: Scheme::Http, host: host.to_owned(), port: port.unwrap_or(80), path })
    }

    /// Reads the target of a request in a tunnel to `endpoint` that was opened: a path, and nothing else.
    pub(crate) fn parse_inside(method: &str, text: &str, endpoint: &Endpoint) -> Result<Self, String> {
        check_characters(text)?;
        if method == "CONNECT" || !text.starts_with('/') {
            return Err("in a tunnel that was opened a target is a path, as in `GET /path`".to_owned());
        }
        let (host, path) = (endpoint.host.to_string(), text.to_owned());
        Ok(Self::Resource { scheme: Scheme::Https, host, port: endpoint.port, path })
    }

    pub(crate) fn host(&self) -> &str {
        match self {
            Self::Tunnel { host, .. } | Self::Resource { host, .. } => host,
        }
    }

    pub(crate) fn port(&self) -> u16 {
        match self {
            Self::Tunnel { port, .. } | Self::Resource { port, .. } => *port,
        }
    }

    /// Whether a `Host` header names this target. Where it names no port, it means the usual one.
    pub(crate) fn is_named_by(&self, header: &str) -> bool {
        let Ok((host, port)) = split_authority(header) else { return false };
        let usual = match self {
            Self::Tunnel { port, .. } => *port,
            Self::Resource { scheme, .. } => scheme.usual_port(),
        };
        let same_host = match (host.parse::<Host>(), self.host().parse::<Host>()) {
            (Ok(named), Ok(asked)) => named == asked,
            // A host that cannot be read is denied by the policy, in its words.
            _ => host == self.host(),
        };
        same_host && port.unwrap_or(usual) == self.port()
    }
}

fn check_characters(text: &str) -> Result<(), String> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("a target is made of printable ASCII characters".to_owned());
    }
    if text.contains('#') {
        return Err("a target has no fragment".to_owned());
    }
    Ok(())
}

/// Cuts `host[:port]`. The host may still be none; the port is one.
fn split_authority(text: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = match text.strip_prefix('[').and_then(|_| text.find(']')) {
        Some(end) if text[end + 1..].is_empty() => (text, None),
        Some(end) => (&text[..=end], Some(text[end + 1..].strip_prefix(':').ok_or("`]` ends a host")?)),
        None if text.matches(':').count() > 1 => return Err("an IPv6 address stands in brackets".to_owned()),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err("the target names no host".to_owned());
    }
    Ok((host, port.map(parse_port).transpose()?))
}

fn parse_port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.then(|| text.parse().ok()).flatten().filter(|port| *port > 0);
    port.ok_or_else(|| "a port is a number from 1 to 65535".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, text: &str, expected: Option<(&str, u16, &str)>) {
        let parsed = Target::parse(method, text).ok();
        let parts = parsed.as_ref().map(|target| match target {
            Target::Tunnel { host, port } => (host.as_str(), *port, ""),
            Target::Resource { host, port, path, .. } => (host.as_str(), *port, path.as_str()),
        });
        assert_eq!(parts, expected, "{method} {text}");
    }

    #[test]
    fn targets_are_cut_where_every_reader_cuts_them() {
        check("CONNECT", "a.example.com:443", Some(("a.example.com", 443, "")));
        check("CONNECT", "[2001:db8::1]:443", Some(("[2001:db8::1]", 443, "")));
        check("GET", "http://a.example.com", Some(("a.example.com", 80, "/")));
        check("GET", "HTTP://a.example.com:8080/x?y=//z", Some(("a.example.com", 8080, "/x?y=//z")));
        check("GET", "http://a.example.com?y", Some(("a.example.com", 80, "/?y")));
        // What is left in the host is refused by the policy's own reader.
        check("GET", "http://u@a.example.com/", Some(("u@a.example.com", 80, "/")));
        check("GET", "http://a.example.com\\@b.example/", Some(("a.example.com\\@b.example", 80, "/")));
    }

    #[test]
    fn what_is_no_target_of_a_proxy_is_refused() {
        for text in ["a.example.com", "a.example.com:", "a.example.com:0", "a.example.com:65536", ":443", "::1:443"] {
            check("CONNECT", text, None);
        }
        for text in ["a.example.com:+443", "http://a.example.com:443", "[::1]443", "a.example.com:443/", "a:1:2"] {
            check("CONNECT", text, None);
        }
        for text in ["/", "*", "https://a.example.com/", "ftp://a/", "http:///x", "http://a/#f", "http://ä.example/"] {
            check("GET", text, None);
        }
    }
}
