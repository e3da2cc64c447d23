//! The session API over HTTP: routes, event streams and access control.
//!
//! The wire format is that of an existing session API, with additions. A handler parses the request, calls one method
//! and builds the response. Every failed call returns a problem document. Streams are read from the journal: live and
//! reconnecting clients run the same code.
//!
//! Not here: session logic (`session`), reading the configuration (`cli`).

mod access;
mod agent_list;
mod audit;
mod config;
mod cors;
mod drain;
mod error;
mod event_filter;
mod event_page;
mod event_stream;
mod extract;
mod host_guard;
mod idempotency;
mod inspector;
mod mcp_endpoint;
mod openapi;
mod pagination;
mod peer;
mod query_guard;
mod request_id;
mod router;
mod routes;
mod serve;
mod session_query;
mod spool;
mod state;
mod task_registry;
mod tls;
mod wire;

pub use access::{AccessToken, AuthMode, TokenScope};
pub use config::{AgentInstaller, InstallAgent, RemoteStop, ServerConfig, ServerListeners, StopSession};
pub use event_filter::EventFilter;
pub use mcp_endpoint::McpEndpoint;
pub use router::app;
pub use serve::{ServeError, serve};
pub use task_registry::{RunTask, TaskRun, TaskRunner};
pub use tls::{TlsConfig, TlsError};
