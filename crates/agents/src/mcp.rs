//! MCP servers of one session, in the configuration format of each agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use crate::AgentError;

/// The MCP servers of one session, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct McpServers(BTreeMap<String, McpServer>);

/// One MCP server. Unknown fields are errors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum McpServer {
    /// A program that is started inside the sandbox.
    Local {
        command: McpCommand,
        #[serde(default)]
        args: Vec<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
    },
    /// A server that is reached from the sandbox, if the policy allows it.
    Remote {
        url: String,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default)]
        transport: McpTransport,
    },
}

/// A program, or a program with its first arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum McpCommand {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum McpTransport {
    #[default]
    Http,
    Sse,
}

/// The reason why an MCP server cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The name is not safe in an agent's configuration.
    #[error("invalid MCP server name `{0}`: use letters, digits, `-` and `_`")]
    Name(String),
    /// The description does not have the documented form.
    #[error("invalid description of MCP server `{name}`")]
    Shape {
        /// The name of the server.
        name: String,
        /// The parse error.
        #[source]
        source: serde_json::Error,
    },
    /// The command is empty.
    #[error("MCP server `{0}` has no command")]
    NoCommand(String),
}

impl McpServers {
    /// Parses the servers of an API request.
    pub fn read(servers: &BTreeMap<String, Value>) -> Result<Self, McpError> {
        let read = servers.iter().map(|(name, value)| {
            let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
            if name.is_empty() || !name.chars().all(plain) {
                return Err(McpError::Name(name.clone()));
            }
            let server: McpServer = serde_json::from_value(value.clone())
                .map_err(|source| McpError::Shape { name: name.clone(), source })?;
            if matches!(&server, McpServer::Local { command, args, .. } if command.with_arguments(args).is_empty()) {
                return Err(McpError::NoCommand(name.clone()));
            }
            Ok((name.clone(), server))
        });
        Ok(Self(read.collect::<Result<_, _>>()?))
    }

    /// Returns whether there are no servers.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns an argument with all servers in the most common format; `None` without servers.
    pub(crate) fn to_standard(&self) -> Option<String> {
        self.argument(McpServer::to_standard)
    }

    /// Returns the argument for Copilot, which also needs a list of allowed tools.
    pub(crate) fn for_copilot(&self) -> Option<String> {
        self.argument(|server| {
            let mut written = server.to_standard();
            written["tools"] = json!(["*"]);
            written
        })
    }

    /// Returns settings in TOML for Codex, one for each server.
    pub(crate) fn for_codex(&self, agent: &'static str) -> Result<Vec<String>, AgentError> {
        let setting = |(name, server): (&String, &McpServer)| {
            let settings = match server {
                McpServer::Local { .. } => server.to_standard(),
                McpServer::Remote { url, headers, transport: McpTransport::Http } => {
                    json!({ "url": url, "http_headers": headers })
                }
                McpServer::Remote { transport: McpTransport::Sse, .. } => {
                    return Err(AgentError::McpTransport { agent, server: name.clone(), transport: "sse" });
                }
            };
            Ok(format!("mcp_servers.{name}={}", toml(&settings)))
        };
        self.0.iter().map(setting).collect()
    }

    /// Returns the servers for Gemini, where the name of the URL field selects the transport.
    pub(crate) fn for_gemini(&self) -> Value {
        self.map(|server| match server {
            McpServer::Remote { url, headers, transport: McpTransport::Http } => {
                json!({ "httpUrl": url, "headers": headers })
            }
            McpServer::Remote { url, headers, transport: McpTransport::Sse } => {
                json!({ "url": url, "headers": headers })
            }
            McpServer::Local { .. } => server.to_standard(),
        })
    }

    /// Returns the value of `mcp` for `OpenCode`.
    pub(crate) fn for_opencode(&self) -> Value {
        self.map(|server| match server {
            McpServer::Local { command, args, env } => {
                json!({ "type": "local", "command": command.with_arguments(args), "environment": env, "enabled": true })
            }
            McpServer::Remote { url, headers, .. } => {
                json!({ "type": "remote", "url": url, "headers": headers, "enabled": true })
            }
        })
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    fn argument(&self, shape: impl Fn(&McpServer) -> Value) -> Option<String> {
        (!self.is_empty()).then(|| json!({ "mcpServers": self.map(shape) }).to_string())
    }

    fn map(&self, shape: impl Fn(&McpServer) -> Value) -> Value {
        Value::Object(self.0.iter().map(|(name, server)| (name.clone(), shape(server))).collect::<Map<_, _>>())
    }
}

impl McpServer {
    fn to_standard(&self) -> Value {
        match self {
            Self::Local { command, args, env } => {
                let words = command.with_arguments(args);
                json!({ "command": words.first(), "args": words.get(1..).unwrap_or_default(), "env": env })
            }
            Self::Remote { url, headers, transport } => json!({ "type": transport, "url": url, "headers": headers }),
        }
    }
}

/// Formats a value as TOML on one line. TOML escapes one more character than JSON.
fn toml(value: &Value) -> String {
    let quoted = |text: &str| Value::from(text).to_string().replace('\u{7f}', "\\u007F");
    match value {
        Value::Object(fields) => {
            let fields: Vec<_> =
                fields.iter().map(|(name, value)| format!("{} = {}", quoted(name), toml(value))).collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Value::Array(entries) => format!("[{}]", entries.iter().map(toml).collect::<Vec<_>>().join(", ")),
        Value::String(text) => quoted(text),
        other => other.to_string(),
    }
}

impl McpCommand {
    /// Returns the command followed by `args`.
    fn with_arguments(&self, args: &[String]) -> Vec<String> {
        let own = match self {
            Self::One(program) => std::slice::from_ref(program),
            Self::Many(words) => words,
        };
        own.iter().chain(args).cloned().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn servers(value: &Value) -> Result<McpServers, McpError> {
        McpServers::read(&serde_json::from_value(value.clone()).unwrap())
    }

    fn both() -> McpServers {
        let local = json!({"type": "local", "command": ["python3", "x.py"], "args": ["\"q\""], "env": {"A": "1"}});
        let remote = json!({"type": "remote", "url": "https://mcp.example.com", "headers": {"X": "y"}});
        servers(&json!({"here": local, "there": remote})).unwrap()
    }

    #[test]
    fn servers_are_formatted_for_each_agent() {
        insta::assert_snapshot!(both().to_standard().unwrap(), @r#"{"mcpServers":{"here":{"args":["x.py","\"q\""],"command":"python3","env":{"A":"1"}},"there":{"headers":{"X":"y"},"type":"http","url":"https://mcp.example.com"}}}"#);
        insta::assert_snapshot!(both().for_opencode().to_string(), @r#"{"here":{"command":["python3","x.py","\"q\""],"enabled":true,"environment":{"A":"1"},"type":"local"},"there":{"enabled":true,"headers":{"X":"y"},"type":"remote","url":"https://mcp.example.com"}}"#);
    }

    #[test]
    fn codex_gets_toml_and_rejects_unsupported_transports() {
        insta::assert_snapshot!(both().for_codex("codex").unwrap().join("\n"), @r#"
        mcp_servers.here={ "args" = ["x.py", "\"q\""], "command" = "python3", "env" = { "A" = "1" } }
        mcp_servers.there={ "http_headers" = { "X" = "y" }, "url" = "https://mcp.example.com" }
        "#);
        let sse = json!({"type": "remote", "url": "https://mcp.example.com", "transport": "sse"});
        let refused = servers(&json!({"old": sse})).unwrap().for_codex("codex");
        assert!(matches!(refused, Err(AgentError::McpTransport { server, .. }) if server == "old"));
        assert_eq!(toml(&json!("a\"b\\\u{7f}\n")), r#""a\"b\\\u007F\n""#);
    }

    #[test]
    fn invalid_servers_are_rejected() {
        assert!(matches!(servers(&json!({"a b": {"type": "local", "command": "x"}})), Err(McpError::Name(_))));
        assert!(matches!(servers(&json!({"a": {"type": "local", "command": []}})), Err(McpError::NoCommand(_))));
        for odd in [
            json!({"type": "local", "command": "x", "timeoutMs": 5}),
            json!({"type": "local"}),
            json!({"type": "remote", "url": "u", "oauth": {}}),
            json!({"command": "x"}),
        ] {
            assert!(matches!(servers(&json!({"a": odd})), Err(McpError::Shape { .. })), "{odd}");
        }
    }
}
