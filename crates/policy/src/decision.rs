//! What may be asked, and the answer with the rule that gave it.

use std::fmt;
use std::path::PathBuf;

use serde::Serialize;

use crate::pattern::{DEFAULT_PORT, HostError, parse_port, split_port};
use crate::rule::RuleRef;

/// The port of plain HTTP.
const HTTP_PORT: u16 = 80;

/// Something an agent wants to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Connect to a host, as the request names it.
    Net {
        /// Name or address, unparsed: reading it strictly is part of the decision.
        host: String,
        /// Port.
        port: u16,
    },
    /// Send a host anything at all, through a tunnel that nobody looks into.
    Raw {
        /// Name or address, unparsed.
        host: String,
        /// Port.
        port: u16,
    },
    /// Ask a host for something where the request is seen: plain HTTP, or TLS that is opened.
    Http {
        /// Name or address, unparsed.
        host: String,
        /// Port.
        port: u16,
        /// Method, in capital letters.
        method: String,
        /// Path, as it was written; a query is no part of the decision.
        path: String,
    },
    /// Ask a host for something over TLS. The request is seen where the policy has TLS opened; else it is a connection.
    Https {
        /// Name or address, unparsed.
        host: String,
        /// Port.
        port: u16,
        /// Method, in capital letters.
        method: String,
        /// Path, as it was written.
        path: String,
    },
    /// Read a path as seen inside; a relative one is in the workspace.
    Read(PathBuf),
    /// Change, make or delete a path as seen inside.
    Write(PathBuf),
    /// Run a command by the agent's shell tool.
    Exec(Vec<String>),
    /// Call a tool.
    Tool {
        /// Its name.
        name: String,
        /// What the argument patterns are matched against: the command, the path.
        argument: String,
    },
    /// Call a model.
    Model(String),
}

impl Action {
    /// A connection as `HOST:PORT`; without a port, 443. The host is read strictly only when it is decided on, so
    /// that a strange one is answered like any other: no, and why.
    pub fn net(text: &str) -> Result<Self, HostError> {
        let (host, port) = place(text)?;
        Ok(Self::Net { host, port })
    }

    /// A tunnel for anything as `HOST:PORT`; without a port, 443.
    pub fn raw(text: &str) -> Result<Self, HostError> {
        let (host, port) = place(text)?;
        Ok(Self::Raw { host, port })
    }

    /// A request as `METHOD` and `http[s]://HOST[:PORT]/PATH`; without a port, the usual one. Path and host are read
    /// when they are decided on.
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

/// A host, not read yet, and its port.
fn place(text: &str) -> Result<(String, u16), HostError> {
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

/// The answer, strictest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// No.
    Deny,
    /// A person decides.
    Ask,
    /// Yes.
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

/// An answer and the rule that gave it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Decision {
    /// The answer.
    pub allowed: Verdict,
    /// The rule that decided.
    pub rule: RuleRef,
    /// What would have to be written for another answer, where a policy can give one.
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

    /// Whether the answer is yes, without asking anyone.
    pub fn is_allowed(&self) -> bool {
        self.allowed == Verdict::Allow
    }
}
