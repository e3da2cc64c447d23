//! The route `/mcp`, whose service another crate provides.
//!
//! Access control is that of every other route: the service sees only callers with the scope `drive`. Their rights are an
//! extension of the request.

use axum::Router;
use axum::extract::{Request, State};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::Response;

use crate::access::{self, Caller};
use crate::error::ForeignErrors;
use crate::state::AppState;

/// The service of the route `/mcp`. It reads the caller's `SessionOptions` from the extensions of a request.
#[derive(Debug, Clone)]
pub struct McpEndpoint(pub Router);

impl McpEndpoint {
    /// Returns the route with access control.
    pub(crate) fn into_routes(self, state: &AppState) -> Router<AppState> {
        let guarded = self.0.layer(from_fn_with_state(state.clone(), pass_rights));
        guarded.layer(from_fn_with_state(state.clone(), access::require_drive)).with_state(())
    }
}

async fn pass_rights(State(state): State<AppState>, mut request: Request, next: Next) -> Response {
    if let Some(caller) = request.extensions().get::<Caller>() {
        let options = caller.options(&state.config.options);
        request.extensions_mut().insert(options);
    }
    let mut response = next.run(request).await;
    // Clients of MCP negotiate by the JSON-RPC errors in refusals.
    response.extensions_mut().insert(ForeignErrors);
    response
}
