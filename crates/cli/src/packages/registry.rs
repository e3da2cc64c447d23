//! A registry: the host of a URL, and the credential that the host's tool uses for it.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use secret::Secret;

/// A package registry of this host.
#[derive(Debug, Clone)]
pub(super) struct Registry {
    pub(super) tls: bool,
    host: String,
    port: u16,
    /// The path with a slash at its start.
    path: String,
    /// The tool and the place of its configuration.
    pub(super) origin: String,
    pub(super) credential: Option<RegistryCredential>,
}

/// A credential in the `Authorization` header. Only the proxy gets it.
#[derive(Debug, Clone)]
pub(super) struct RegistryCredential {
    scheme: &'static str,
    pub(super) secret: Secret,
}

impl RegistryCredential {
    pub(super) fn bearer(token: &str) -> Self {
        Self { scheme: "Bearer", secret: Secret::new(token) }
    }

    /// Returns a credential from text that is encoded already.
    pub(super) fn basic(encoded: &str) -> Self {
        Self { scheme: "Basic", secret: Secret::new(encoded) }
    }

    /// Returns the entry of `net.inject` after the host.
    pub(super) fn header(&self, name: &str) -> String {
        format!("Authorization={} {{{name}}}", self.scheme)
    }
}

impl Registry {
    /// Parses a URL; its user name and password become the credential.
    pub(super) fn parse(url: &str, origin: &str) -> Result<Self, String> {
        let (scheme, rest) = url.split_once("://").ok_or("the registry is not a URL of a web server")?;
        let tls = match scheme {
            "https" => true,
            "http" => false,
            other => return Err(format!("a registry with `{other}:` cannot be opened, only http and https")),
        };
        let (authority, path) = rest.find('/').map_or((rest, "/"), |slash| rest.split_at(slash));
        let (user, host) = authority.rsplit_once('@').map_or((None, authority), |(user, host)| (Some(user), host));
        let endpoint: policy::Endpoint = if policy_port(host) { host.to_owned() } else { with_port(host, tls) }
            .parse()
            .map_err(|error| format!("the registry's host is invalid: {error}"))?;
        let credential = user.map(|user| RegistryCredential::basic(&BASE64_STANDARD.encode(decode(user))));
        let (host, port) = (endpoint.host.to_string(), endpoint.port);
        Ok(Self { tls, host, port, path: path.to_owned(), origin: origin.to_owned(), credential })
    }

    /// Returns `host:port`.
    pub(super) fn endpoint(&self) -> String {
        format!("{}:{}", self.host, self.port)
    }

    /// Returns whether the port is the usual one of the scheme.
    fn is_usual_port(&self) -> bool {
        self.port == if self.tls { 443 } else { 80 }
    }

    /// Returns `//host[:port]/path`, without user name and password.
    pub(super) fn location(&self) -> String {
        let port = if self.is_usual_port() { String::new() } else { format!(":{}", self.port) };
        format!("//{}{port}{}", self.host, self.path)
    }

    /// Returns the URL without user name and password.
    pub(super) fn url(&self) -> String {
        format!("{}:{}", if self.tls { "https" } else { "http" }, self.location())
    }

    pub(super) fn host(&self) -> &str {
        &self.host
    }
}

fn policy_port(host: &str) -> bool {
    host.rfind(':').is_some_and(|colon| host.rfind(']').is_none_or(|end| end < colon))
}

fn with_port(host: &str, tls: bool) -> String {
    format!("{host}:{}", if tls { 443 } else { 80 })
}

/// Decodes percent-encoded characters.
fn decode(text: &str) -> Vec<u8> {
    let mut decoded = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.bytes().next() {
        let code = rest.get(1..3).filter(|_| first == b'%').and_then(|digits| u8::from_str_radix(digits, 16).ok());
        decoded.push(code.unwrap_or(first));
        let length = if code.is_some() { 3 } else { 1 };
        // Only bytes are pushed, so a longer character is taken apart and put together again.
        match rest.get(length..) {
            Some(next) => rest = next,
            None => return text.as_bytes().to_vec(),
        }
    }
    decoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_split_into_host_path_and_credential() {
        let found = Registry::parse("https://me:s%40t@mirror.example.com/npm/", "npm").unwrap();
        assert_eq!(
            (found.endpoint().as_str(), found.url().as_str()),
            ("mirror.example.com:443", "https://mirror.example.com/npm/")
        );
        assert_eq!(found.credential.unwrap().secret, Secret::new(BASE64_STANDARD.encode("me:s@t")));
        let found = Registry::parse("http://mirror.example.com:8081", "pip").unwrap();
        assert_eq!(
            (found.endpoint().as_str(), found.url().as_str()),
            ("mirror.example.com:8081", "http://mirror.example.com:8081/")
        );
        for bad in ["git@example.com:x", "file:///x", "https://", "https://a b/", "ssh://git@example.com/x"] {
            assert!(Registry::parse(bad, "cargo").is_err(), "{bad}");
        }
    }
}
