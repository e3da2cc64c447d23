//! The MCP server `sandboxed_code`: its tool `run` runs code in a sandbox for agents on the host.
//!
//! A connection has one sandbox. It is an ordinary session on record: other clients list it, stop it, and review its
//! changes. A call can only narrow the policy. When a call is cancelled or its client is gone, its processes are killed.
//!
//! Not here: who may connect over HTTP (`server`), and the configuration files of clients (`cli`).

mod approve;
mod arguments;
mod call;
mod connection;
mod execution;
mod failure;
mod files;
mod host;
mod http;
mod report;
mod sandbox_handle;
mod server;
mod stdio;
mod tools;

pub use approve::{ToolDecision, decide_tool};
pub use host::{McpHost, McpSettings};
pub use http::http_service;
pub use stdio::serve_stdio;
pub use tools::SERVER_NAME;
