//! MCP over Streamable HTTP: a service for the route `/mcp`.
//!
//! Not here: tokens, and the checks of `Host` and `Origin`. The `server` crate makes them for every route, and passes the
//! caller's rights as an extension of the request.

use std::sync::Arc;
use std::time::Duration;

use rmcp::transport::streamable_http_server::session::local::LocalSessionManager;
use rmcp::transport::streamable_http_server::{StreamableHttpServerConfig, StreamableHttpService};

use crate::host::McpHost;
use crate::server::McpServer;

/// How long a connection without a request keeps its sandbox.
const KEEP_ALIVE: Duration = Duration::from_secs(3600);
/// The largest request, in bytes.
const MAX_BODY: usize = 8 << 20;

/// Returns the service of the route `/mcp`.
pub fn http_service(host: McpHost) -> StreamableHttpService<McpServer, LocalSessionManager> {
    let mut manager = LocalSessionManager::default();
    manager.session_config.keep_alive = Some(KEEP_ALIVE);
    let config = StreamableHttpServerConfig::default()
        .with_cancellation_token(host.closing().child_token())
        .with_max_request_body_bytes(MAX_BODY)
        // The routes of this server have their own guard, with the names of `--allow-host`.
        .disable_allowed_hosts();
    StreamableHttpService::new(move || Ok(McpServer::for_http(host.clone())), Arc::new(manager), config)
}
