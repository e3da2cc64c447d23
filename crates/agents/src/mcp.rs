//! MCP servers of one session, in the words of each agent.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// The MCP servers of one session, by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct McpServers(BTreeMap<String, McpServer>);

/// One MCP server. What nothing here would keep is an error, never dropped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "lowercase", deny_unknown_fields)]
enum McpServer {
    /// A program that is started inside the sandbox.
    Local {
        command: Words,
        #[serde(default)]
        args: Vec<String>,
        #[serde(default)]
        env: BTreeMap<String, String>,
    },
    /// A server that is reached from inside, as far as the policy lets it.
    Remote {
        url: String,
        #[serde(default)]
        headers: BTreeMap<String, String>,
        #[serde(default)]
        transport: Transport,
    },
}

/// A program, or a program with its first arguments.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(untagged)]
enum Words {
    One(String),
    Many(Vec<String>),
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Transport {
    #[default]
    Http,
    Sse,
}

/// Why MCP servers cannot be used like this.
#[derive(Debug, thiserror::Error)]
pub enum McpError {
    /// The name would mean something else in an agent's configuration.
    #[error("`{0}` is no name of an MCP server: letters, digits, `-` and `_`")]
    Name(String),
    /// It is described otherwise than the API says.
    #[error("MCP server `{name}` is not described as one")]
    Shape {
        /// Its name.
        name: String,
        /// What is wrong.
        #[source]
        source: serde_json::Error,
    },
    /// There is nothing to start.
    #[error("MCP server `{0}` has no command")]
    NoCommand(String),
}

impl McpServers {
    /// Reads what a client wrote.
    pub fn read(servers: &BTreeMap<String, Value>) -> Result<Self, McpError> {
        let read = servers.iter().map(|(name, value)| {
            let plain = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '-' | '_');
            if name.is_empty() || !name.chars().all(plain) {
                return Err(McpError::Name(name.clone()));
            }
            let server: McpServer = serde_json::from_value(value.clone())
                .map_err(|source| McpError::Shape { name: name.clone(), source })?;
            if matches!(&server, McpServer::Local { command, args, .. } if command.with(args).is_empty()) {
                return Err(McpError::NoCommand(name.clone()));
            }
            Ok((name.clone(), server))
        });
        Ok(Self(read.collect::<Result<_, _>>()?))
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// `mcpServers`, as most agents write it.
    pub(crate) fn standard(&self) -> Value {
        self.map(|server| match server {
            McpServer::Local { command, args, env } => {
                let words = command.with(args);
                json!({ "command": words.first(), "args": words.get(1..).unwrap_or_default(), "env": env })
            }
            McpServer::Remote { url, headers, transport } => {
                json!({ "type": transport, "url": url, "headers": headers })
            }
        })
    }

    /// The same as Gemini writes it: the transport is told by the name of the address.
    pub(crate) fn for_gemini(&self) -> Value {
        self.map(|server| match server {
            McpServer::Remote { url, headers, transport: Transport::Http } => {
                json!({ "httpUrl": url, "headers": headers })
            }
            McpServer::Remote { url, headers, transport: Transport::Sse } => json!({ "url": url, "headers": headers }),
            McpServer::Local { command, args, env } => {
                let words = command.with(args);
                json!({ "command": words.first(), "args": words.get(1..).unwrap_or_default(), "env": env })
            }
        })
    }

    /// `mcp`, as `OpenCode` writes it.
    pub(crate) fn for_opencode(&self) -> Value {
        self.map(|server| match server {
            McpServer::Local { command, args, env } => {
                json!({ "type": "local", "command": command.with(args), "environment": env, "enabled": true })
            }
            McpServer::Remote { url, headers, .. } => {
                json!({ "type": "remote", "url": url, "headers": headers, "enabled": true })
            }
        })
    }

    /// Settings of Codex, one a server. A string of JSON is one of TOML as well.
    pub(crate) fn for_codex(&self) -> Vec<String> {
        let quoted = |text: &str| Value::String(text.to_owned()).to_string();
        let table = |pairs: &BTreeMap<String, String>| {
            let pairs = pairs.iter().map(|(name, value)| format!("{}={}", quoted(name), quoted(value)));
            format!("{{{}}}", pairs.collect::<Vec<_>>().join(","))
        };
        let settings = self.0.iter().map(|(name, server)| match server {
            McpServer::Local { command, args, env } => {
                let words: Vec<String> = command.with(args).iter().map(|word| quoted(word)).collect();
                let (program, rest) =
                    words.split_first().map(|(first, rest)| (first.as_str(), rest)).unwrap_or_default();
                let rest = rest.join(",");
                format!("mcp_servers.{name}={{command={program},args=[{rest}],env={}}}", table(env))
            }
            McpServer::Remote { url, headers, .. } => {
                format!("mcp_servers.{name}={{url={},http_headers={}}}", quoted(url), table(headers))
            }
        });
        settings.collect()
    }

    fn map(&self, shape: impl Fn(&McpServer) -> Value) -> Value {
        Value::Object(self.0.iter().map(|(name, server)| (name.clone(), shape(server))).collect::<Map<_, _>>())
    }
}

impl Words {
    /// All words: the command's own, and its arguments.
    fn with(&self, args: &[String]) -> Vec<String> {
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
    fn every_agent_is_told_in_its_own_words() {
        insta::assert_snapshot!(both().standard().to_string(), @r#"{"here":{"args":["x.py","\"q\""],"command":"python3","env":{"A":"1"}},"there":{"headers":{"X":"y"},"type":"http","url":"https://mcp.example.com"}}"#);
        insta::assert_snapshot!(both().for_opencode().to_string(), @r#"{"here":{"command":["python3","x.py","\"q\""],"enabled":true,"environment":{"A":"1"},"type":"local"},"there":{"enabled":true,"headers":{"X":"y"},"type":"remote","url":"https://mcp.example.com"}}"#);
        insta::assert_snapshot!(both().for_codex().join("\n"), @r#"
        mcp_servers.here={command="python3",args=["x.py","\"q\""],env={"A"="1"}}
        mcp_servers.there={url="https://mcp.example.com",http_headers={"X"="y"}}
        "#);
    }

    #[test]
    fn what_nothing_would_keep_is_refused() {
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
