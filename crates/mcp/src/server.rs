//! The MCP server of one connection: answers requests of the protocol and dispatches tool calls.

use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::Arc;

use http::request::Parts;
use rmcp::model::{
    CallToolRequestParams, CallToolResponse, CallToolResult, Implementation, ListToolsResult, PaginatedRequestParams,
    ProtocolVersion, ServerCapabilities, ServerConfig, Tool,
};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use session::SessionOptions;

use crate::call::ToolCall;
use crate::connection::Connection;
use crate::failure::ToolFailure;
use crate::host::{Caller, McpHost};
use crate::tools::{SERVER_NAME, tools};

/// The request header that names the workspace on the host.
const WORKSPACE_HEADER: &str = "viv-workspace";

/// The server of one connection.
pub struct McpServer {
    host: McpHost,
    connection: Arc<Connection>,
    is_http: bool,
}

impl McpServer {
    /// Returns the server of a connection over standard input and output.
    pub(crate) fn for_process(host: McpHost) -> Self {
        Self { host, connection: Arc::default(), is_http: false }
    }

    /// Returns the server of an HTTP connection, or of one request of a version without connections.
    pub(crate) fn for_http(host: McpHost) -> Self {
        Self { host, connection: Arc::default(), is_http: true }
    }

    /// Returns the caller of a request. Over HTTP, its rights come with each request.
    fn caller(&self, context: &RequestContext<RoleServer>) -> Result<Caller, ToolFailure> {
        let client = context.client_info().map(|client| client.name).unwrap_or_default();
        let settings = self.host.settings();
        if !self.is_http {
            let (options, workspace) = (settings.options.clone(), settings.workspace.clone());
            return Ok(Caller { options, workspace, client, is_detached: false });
        }
        let no_rights = || ToolFailure::invalid("the request has no caller", "use the route /mcp of `viv serve`");
        let parts = context.extensions.get::<Parts>().ok_or_else(no_rights)?;
        let options = parts.extensions.get::<SessionOptions>().ok_or_else(no_rights)?.clone();
        if !self.connection.belongs_to(options.token.as_deref()) {
            return Err(ToolFailure::invalid("another token opened this MCP session", "connect again"));
        }
        let workspace = match parts.headers.get(WORKSPACE_HEADER).map(http::HeaderValue::to_str) {
            None => settings.workspace.clone(),
            Some(Ok(path)) => {
                let path = PathBuf::from(path);
                Some(settings.sessions.check_directory(&path, &options.workspaces)?)
            }
            Some(Err(_)) => {
                return Err(ToolFailure::invalid(
                    format!("the header `{WORKSPACE_HEADER}` is not text"),
                    "use a path of ASCII characters",
                ));
            }
        };
        // Since this version, HTTP has no connections.
        let is_detached = context
            .protocol_version()
            .is_some_and(|version| version.as_str() >= ProtocolVersion::V_2026_07_28.as_str());
        Ok(Caller { options, workspace, client, is_detached })
    }
}

impl ServerHandler for McpServer {
    fn get_info(&self) -> ServerConfig {
        let mut info = ServerConfig::new(ServerCapabilities::builder().enable_tools().build());
        info.server_info = Implementation::new(SERVER_NAME, env!("CARGO_PKG_VERSION"));
        info.instructions = Some(
            "Run code and commands with the tool `run`. It works on a copy of the user's project at /workspace, in a \
             sandbox without network unless the user's policy allows hosts. Results name each rule that refused \
             something."
                .to_owned(),
        );
        info
    }

    async fn list_tools(
        &self,
        _request: Option<PaginatedRequestParams>,
        _context: RequestContext<RoleServer>,
    ) -> Result<ListToolsResult, ErrorData> {
        Ok(ListToolsResult::with_all_items(tools().to_vec()))
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        tools().iter().find(|tool| tool.name == name).cloned()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS)
    }

    async fn call_tool(
        &self,
        request: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        if self.get_tool(&request.name).is_none() {
            return Err(ErrorData::invalid_params(format!("unknown tool `{}`", request.name), None));
        }
        let caller = match self.caller(&context) {
            Ok(caller) => caller,
            Err(failure) => return Ok(failure.into_result().into()),
        };
        let call = ToolCall::new(self.host.clone(), self.connection.clone(), caller, &context);
        let result: Result<CallToolResult, ToolFailure> = tokio::select! {
            result = call.carry_out(&request.name, request.arguments) => result,
            () = context.ct.cancelled() => Err(ToolFailure::Cancelled),
        };
        Ok(result.unwrap_or_else(ToolFailure::into_result).into())
    }
}
