//! MCP over standard input and output: one connection, which ends with the input.

use rmcp::service::QuitReason;
use rmcp::{ServiceExt, transport};
use tokio::task::JoinError;

use crate::host::McpHost;
use crate::server::McpServer;

/// Serves one client on standard input and output, until it closes the input or `stop` resolves. Returns when the
/// sandbox has ended.
pub async fn serve_stdio(host: McpHost, stop: impl Future<Output = ()>) -> std::io::Result<()> {
    let serving = async {
        let service = McpServer::for_process(host.clone()).serve(transport::io::stdio_pipes()).await;
        match service {
            Ok(service) => service.waiting().await.map_err(|error: JoinError| std::io::Error::other(error)),
            // A client that closes its end before it says a word is not an error.
            Err(error) => {
                tracing::debug!(%error, "the MCP connection was not opened");
                Ok(QuitReason::Closed)
            }
        }
    };
    let ended = tokio::select! {
        ended = serving => ended.map(drop),
        () = stop => Ok(()),
    };
    host.close().await;
    ended
}
