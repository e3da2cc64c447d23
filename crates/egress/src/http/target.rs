//! The target of a request, in the two forms that a proxy accepts.

use policy::{Endpoint, Host};

/// The target of a request. The host is unparsed text: the policy parses it when it decides.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum RequestTarget {
    /// `CONNECT host:port`.
    Tunnel { host: String, port: u16 },
    /// `GET http://host[:port]/path`, or `GET /path` inside intercepted TLS.
    Resource { scheme: Scheme, host: String, port: u16, path: String },
}

/// The scheme of a resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scheme {
    /// Plain HTTP.
    Http,
    /// Intercepted TLS.
    Https,
}

impl Scheme {
    /// Returns the port to use if none is given.
    pub(crate) fn default_port(self) -> u16 {
        match self {
            Self::Http => 80,
            Self::Https => 443,
        }
    }
}

impl RequestTarget {
    /// Parses a target; the error names the defect.
    pub(crate) fn parse(method: &str, text: &str) -> Result<Self, String> {
        check_characters(text)?;
        if method == "CONNECT" {
            let (host, port) = split_authority(text)?;
            let port = port.ok_or("CONNECT needs host and port")?;
            return Ok(Self::Tunnel { host: host.to_owned(), port });
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("the proxy accepts only `CONNECT host:port` and `http://` targets".to_owned());
        };
        if !scheme.eq_ignore_ascii_case("http") {
            return Err("only `http://` targets are supported; use CONNECT for HTTPS".to_owned());
        }
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, port) = split_authority(&rest[..end])?;
        let path = if rest[end..].starts_with('/') { rest[end..].to_owned() } else { format!("/{}", &rest[end..]) };
        Ok(Self::Resource { scheme: Scheme::Http, host: host.to_owned(), port: port.unwrap_or(80), path })
    }

    /// Parses the target of a request inside intercepted TLS to `endpoint`: it must be a path.
    pub(crate) fn parse_intercepted(method: &str, text: &str, endpoint: &Endpoint) -> Result<Self, String> {
        check_characters(text)?;
        if method == "CONNECT" || !text.starts_with('/') {
            return Err("inside intercepted TLS the target must be a path, as in `GET /path`".to_owned());
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

    /// Returns whether a `Host` header names this target. Without a port it means the default port.
    pub(crate) fn matches_host_header(&self, header: &str) -> bool {
        let Ok((host, port)) = split_authority(header) else { return false };
        let usual = match self {
            Self::Tunnel { port, .. } => *port,
            Self::Resource { scheme, .. } => scheme.default_port(),
        };
        let same_host = match (host.parse::<Host>(), self.host().parse::<Host>()) {
            (Ok(named), Ok(asked)) => named == asked,
            // The policy denies an invalid host with its own message.
            _ => host == self.host(),
        };
        same_host && port.unwrap_or(usual) == self.port()
    }
}

fn check_characters(text: &str) -> Result<(), String> {
    if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
        return Err("the target contains characters other than printable ASCII".to_owned());
    }
    if text.contains('#') {
        return Err("the target contains a fragment (`#`)".to_owned());
    }
    Ok(())
}

/// Splits `host[:port]`. The port is valid; the host is not checked.
fn split_authority(text: &str) -> Result<(&str, Option<u16>), String> {
    let (host, port) = match text.strip_prefix('[').and_then(|_| text.find(']')) {
        Some(end) if text[end + 1..].is_empty() => (text, None),
        Some(end) => {
            let port = text[end + 1..].strip_prefix(':').ok_or("unexpected characters after `]`")?;
            (&text[..=end], Some(port))
        }
        None if text.matches(':').count() > 1 => return Err("an IPv6 address must be in brackets".to_owned()),
        None => text.split_once(':').map_or((text, None), |(host, port)| (host, Some(port))),
    };
    if host.is_empty() {
        return Err("the target has no host".to_owned());
    }
    Ok((host, port.map(parse_port).transpose()?))
}

fn parse_port(text: &str) -> Result<u16, String> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let port = digits.then(|| text.parse().ok()).flatten().filter(|port| *port > 0);
    port.ok_or_else(|| format!("invalid port `{text}`: expected a number from 1 to 65535"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(method: &str, text: &str, expected: Option<(&str, u16, &str)>) {
        let parsed = RequestTarget::parse(method, text).ok();
        let parts = parsed.as_ref().map(|target| match target {
            RequestTarget::Tunnel { host, port } => (host.as_str(), *port, ""),
            RequestTarget::Resource { host, port, path, .. } => (host.as_str(), *port, path.as_str()),
        });
        assert_eq!(parts, expected, "{method} {text}");
    }

    #[test]
    fn targets_are_split_into_host_port_and_path() {
        check("CONNECT", "a.example.com:443", Some(("a.example.com", 443, "")));
        check("CONNECT", "[2001:db8::1]:443", Some(("[2001:db8::1]", 443, "")));
        check("GET", "http://a.example.com", Some(("a.example.com", 80, "/")));
        check("GET", "HTTP://a.example.com:8080/x?y=//z", Some(("a.example.com", 8080, "/x?y=//z")));
        check("GET", "http://a.example.com?y", Some(("a.example.com", 80, "/?y")));
        // The policy's parser refuses these hosts.
        check("GET", "http://u@a.example.com/", Some(("u@a.example.com", 80, "/")));
        check("GET", "http://a.example.com\\@b.example/", Some(("a.example.com\\@b.example", 80, "/")));
    }

    #[test]
    fn invalid_targets_are_refused() {
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
