//! Sessions over HTTP: the routes, the event streams, and who may use them.
//!
//! The wire contract is that of the session API we are compatible with; we only add. A handler parses,
//! calls one method and shapes the answer. Every failure, also those of the framework, leaves as a problem
//! document. Streams are read from the journal: a live client and one that reconnects run the same code.
//!
//! Not here: what a session does (`session`), where configuration comes from (`cli`).

mod access;
mod agent_list;
mod audit;
mod config;
mod cors;
mod error;
mod extract;
mod feed_stream;
mod host_guard;
mod idempotency;
mod drain;
mod pagination;
mod openapi;
mod event_page;
mod peer;
mod request_id;
mod router;
mod routes;
mod serve;
mod spool;
mod state;
mod event_stream;
mod task_registry;
mod tls;
mod unread;
mod event_filter;
mod wire;

pub use access::{AccessToken, AuthMode, TokenScope};
pub use config::{AgentInstaller, InstallAgent, RemoteStop, ServerConfig, ServerListeners, StopSession};
pub use router::app;
pub use serve::{ServeError, serve};
pub use task_registry::{RunTask, TaskRun, TaskRunner};
pub use tls::{TlsConfig, TlsError};
pub use event_filter::EventFilter;
