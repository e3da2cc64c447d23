//! Actions, and decisions with the rule that decided.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::pattern::{DEFAULT_PORT, HostError, parse_port, split_port};
use crate::rule::RuleRef;

/// Default port of plain HTTP.
const HTTP_PORT: u16 = 80;

/// An action that an agent wants to perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Open a TLS connection to a host.
    Net {
        /// Name or address, not yet parsed: strict parsing is part of the decision.
        host: String,
        /// Port.
        port: u16,
    },
    /// Open a tunnel to a host that may carry any protocol.
    Raw {
        /// Name or address, not yet parsed.
        host: String,
        /// Port.
        port: u16,
    },
    /// Send a request that the proxy can read: plain HTTP, or intercepted TLS.
    Http {
        /// Name or address, not yet parsed.
        host: String,
        /// Port.
        port: u16,
        /// Method, in upper case.
        method: String,
        /// Path as written. The query is not part of the decision.
        path: String,
    },
    /// Send a request over TLS. If the policy does not intercept the host, this is decided as a connection.
    Https {
        /// Name or address, not yet parsed.
        host: String,
        /// Port.
        port: u16,
        /// Method, in upper case.
        method: String,
        /// Path as written.
        path: String,
    },
    /// Read a path inside the sandbox. A relative path is in the workspace.
    Read(PathBuf),
    /// Create, change or delete a path inside the sandbox.
    Write(PathBuf),
    /// Run a command with the agent's shell tool.
    Exec(Vec<String>),
    /// Call a tool.
    Tool {
        /// Name of the tool.
        name: String,
        /// Text that argument patterns match: the command or the path.
        argument: String,
    },
    /// Call a model.
    Model(String),
}

impl Action {
    /// Returns a connection to `HOST[:PORT]`; the default port is 443. The host is parsed when the action is decided,
    /// so that an invalid host gets a decision as well.
    pub fn net(text: &str) -> Result<Self, HostError> {
        let (host, port) = split_endpoint(text)?;
        Ok(Self::Net { host, port })
    }

    /// Returns a raw tunnel to `HOST[:PORT]`; the default port is 443.
    pub fn raw(text: &str) -> Result<Self, HostError> {
        let (host, port) = split_endpoint(text)?;
        Ok(Self::Raw { host, port })
    }

    /// Returns a request with `method` to `http[s]://HOST[:PORT]/PATH`. Host and path are parsed when the action is
    /// decided.
    pub fn http(method: &str, url: &str) -> Result<Self, HostError> {
        let (usual, rest) = match (url.strip_prefix("http://"), url.strip_prefix("https://")) {
            (Some(rest), _) => (HTTP_PORT, rest),
            (None, Some(rest)) => (DEFAULT_PORT, rest),
            (None, None) => return Err(HostError::Character),
        };
        let end = rest.find(['/', '?']).unwrap_or(rest.len());
        let (host, port) = split_port(&rest[..end]);
        let port = port.map_or(Ok(usual), parse_port)?;
        let path = if rest[end..].starts_with('/') { rest[end..].to_owned() } else { format!("/{}", &rest[end..]) };
        let (host, method) = (host.to_owned(), method.to_owned());
        Ok(if url.starts_with("https") {
            Self::Https { host, port, method, path }
        } else {
            Self::Http { host, port, method, path }
        })
    }
}

/// Splits a host, not yet parsed, from its port.
fn split_endpoint(text: &str) -> Result<(String, u16), HostError> {
    let (host, port) = split_port(text);
    Ok((host.to_owned(), port.map_or(Ok(DEFAULT_PORT), parse_port)?))
}

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Net { host, port } => write!(f, "net {host}:{port}"),
            Self::Raw { host, port } => write!(f, "raw {host}:{port}"),
            Self::Http { host, port, method, path } => write!(f, "http {method} {host}:{port}{path}"),
            Self::Https { host, port, method, path } => write!(f, "https {method} {host}:{port}{path}"),
            Self::Read(path) => write!(f, "read {}", path.display()),
            Self::Write(path) => write!(f, "write {}", path.display()),
            Self::Exec(argv) => write!(f, "exec {}", argv.join(" ")),
            Self::Tool { name, argument } => write!(f, "tool {name}({argument})"),
            Self::Model(name) => write!(f, "model {name}"),
        }
    }
}

/// The answer to an action, strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// Denied.
    Deny,
    /// A person is asked.
    Ask,
    /// Allowed.
    Allow,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Deny => "DENY",
            Self::Ask => "ASK",
            Self::Allow => "ALLOW",
        })
    }
}

/// The answer to an action and the rule that decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The answer.
    pub allowed: Verdict,
    /// The rule that decided.
    pub rule: RuleRef,
    /// The change to the policy that would lead to another answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub help: Option<String>,
}

impl Decision {
    pub(crate) fn allow(rule: RuleRef) -> Self {
        Self { allowed: Verdict::Allow, rule, help: None }
    }

    pub(crate) fn deny(rule: RuleRef) -> Self {
        Self { allowed: Verdict::Deny, rule, help: None }
    }

    pub(crate) fn with_help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(help.into());
        self
    }

    /// Returns whether the action is allowed without asking a person.
    pub fn is_allowed(&self) -> bool {
        self.allowed == Verdict::Allow
    }
}
