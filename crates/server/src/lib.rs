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
mod feed;
mod host_guard;
mod idempotency;
mod linger;
mod list;
mod openapi;
mod page;
mod peer;
mod request_id;
mod router;
mod routes;
mod serve;
mod spool;
mod state;
mod stream;
mod tasks;
mod tls;
mod unread;
mod vocabulary;
mod wire;

pub use access::{AccessToken, AuthMode, TokenScope};
pub use config::{AgentInstaller, InstallAgent, RemoteStop, ServerConfig, ServerListeners, StopSession};
pub use router::app;
pub use serve::{ServeError, serve};
pub use tasks::{RunTask, TaskRun, TaskRunner};
pub use tls::{TlsConfig, TlsError};
pub use vocabulary::EventFilter;
