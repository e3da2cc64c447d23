//! One tool call: finds its sandbox and runs it there.

use std::sync::Arc;

use policy::PolicyKey;
use rmcp::RoleServer;
use rmcp::model::{CallToolResult, ContentBlock, JsonObject, ProgressToken};
use rmcp::service::{Peer, RequestContext};
use serde_json::{Value, json};

use crate::approve::decide_tool;
use crate::arguments::{
    ApproveArguments, ChangesArguments, ListArguments, ReadArguments, RunArguments, WriteArguments, cut, parse,
};
use crate::connection::Connection;
use crate::execution::{Execution, ProgressReporter};
use crate::failure::ToolFailure;
use crate::files;
use crate::host::{Caller, McpHost};
use crate::sandbox_handle::SandboxHandle;

/// A call with its caller.
pub(crate) struct ToolCall {
    host: McpHost,
    connection: Arc<Connection>,
    caller: Caller,
    peer: Peer<RoleServer>,
    progress: Option<ProgressToken>,
}

impl ToolCall {
    pub(crate) fn new(
        host: McpHost,
        connection: Arc<Connection>,
        caller: Caller,
        context: &RequestContext<RoleServer>,
    ) -> Self {
        let (peer, progress) = (context.peer.clone(), context.meta.get_progress_token());
        Self { host, connection, caller, peer, progress }
    }

    /// Runs the tool `name`.
    pub(crate) async fn carry_out(
        &self,
        name: &str,
        arguments: Option<JsonObject>,
    ) -> Result<CallToolResult, ToolFailure> {
        match name {
            "run" => self.run(parse(arguments)?).await,
            "read_file" => {
                let arguments: ReadArguments = parse(arguments)?;
                let sandbox = self.sandbox(arguments.session.as_deref()).await?;
                Ok(structured(sandbox.perform(|session| Box::pin(files::read(session, arguments))).await??))
            }
            "write_files" => {
                let arguments: WriteArguments = parse(arguments)?;
                let sandbox = self.sandbox(arguments.session.as_deref()).await?;
                Ok(structured(sandbox.perform(|session| Box::pin(files::write(session, arguments.files))).await??))
            }
            "list_files" => {
                let arguments: ListArguments = parse(arguments)?;
                let sandbox = self.sandbox(arguments.session.as_deref()).await?;
                let path = arguments.path.unwrap_or_else(|| ".".to_owned());
                Ok(structured(sandbox.perform(|session| Box::pin(files::list(session, path))).await??))
            }
            "changes" => self.changes(parse(arguments)?).await,
            _ => self.approve(parse(arguments)?),
        }
    }

    async fn sandbox(&self, named: Option<&str>) -> Result<SandboxHandle, ToolFailure> {
        self.connection.sandbox(&self.host, &self.caller, named).await
    }

    async fn run(&self, arguments: RunArguments) -> Result<CallToolResult, ToolFailure> {
        if arguments.fresh {
            self.connection.release();
            if let Some(sandbox) = arguments.session.as_deref().and_then(|id| self.host.find_detached(&self.caller, id))
            {
                self.host.remove_detached(sandbox.id());
            }
        }
        let named = arguments.session.as_deref().filter(|_| !arguments.fresh);
        let layer = arguments.policy.as_ref().map(crate::arguments::PolicyArgument::layer).transpose()?;
        // These two are enforced for each command; the others are built into a sandbox.
        let is_per_command = |key: PolicyKey| matches!(key, PolicyKey::ProcTimeout | PolicyKey::ProcOutput);
        let Some(layer) = layer else {
            let sandbox = self.sandbox(named).await?;
            let policy = sandbox.policy().clone();
            return self.execute(&sandbox, Execution::prepare(arguments, policy)?).await;
        };
        if layer.keys().all(is_per_command) {
            let sandbox = self.sandbox(named).await?;
            let policy = Arc::new(sandbox.policy().narrowed(&[layer])?);
            return self.execute(&sandbox, Execution::prepare(arguments, policy)?).await;
        }
        // Checked before anything starts.
        let policy = Arc::new(self.host.policy(&self.caller)?.narrowed(&[layer])?);
        let from = if arguments.fresh { None } else { Some(self.sandbox(named).await?) };
        let execution = Execution::prepare(arguments, policy.clone())?;
        let sandbox = self.host.open(&Caller { is_detached: false, ..self.caller.clone() }, Some(policy)).await?;
        let result = async {
            if let Some(from) = from {
                copy_changes(&from, &sandbox).await?;
            }
            self.execute(&sandbox, execution).await
        };
        let result = result.await;
        sandbox.end().await;
        result
    }

    async fn execute(&self, sandbox: &SandboxHandle, execution: Execution) -> Result<CallToolResult, ToolFailure> {
        let progress = self.progress.clone().map(|token| ProgressReporter::new(self.peer.clone(), token));
        let report = sandbox.perform(move |session| Box::pin(execution.carry_out(session, progress))).await??;
        Ok(report.into_result())
    }

    async fn changes(&self, arguments: ChangesArguments) -> Result<CallToolResult, ToolFailure> {
        let sandbox = self.sandbox(arguments.session.as_deref()).await?;
        sandbox.perform(|session| Box::pin(session.save_changes())).await??;
        let patch = self.host.settings().sessions.changes_as_patch(sandbox.id(), None).await?.shown;
        let limit = crate::arguments::output_limit(None, sandbox.policy().limits().output_bytes);
        let shown = cut(&patch, limit);
        Ok(structured(json!({"session": sandbox.id(), "patch": shown, "truncated": shown.len() < patch.len()})))
    }

    fn approve(&self, arguments: ApproveArguments) -> Result<CallToolResult, ToolFailure> {
        let policy = self.host.policy(&self.caller)?;
        let decision = decide_tool(&policy, &arguments.tool_name, &arguments.input);
        let directory = self.host.settings().sessions.directory();
        let answer = match decision.record(directory, "mcp approve", &store::SystemClock) {
            Ok(()) if decision.is_allowed => json!({"behavior": "allow", "updatedInput": arguments.input}),
            Ok(()) => json!({"behavior": "deny", "message": decision.message()}),
            // A decision that is not on record does not count.
            Err(error) => {
                json!({"behavior": "deny", "message": format!("cannot record the decision: {error}")})
            }
        };
        Ok(CallToolResult::success(vec![ContentBlock::text(answer.to_string())]))
    }
}

/// Copies the changes of one sandbox into another, which has just started.
async fn copy_changes(from: &SandboxHandle, to: &SandboxHandle) -> Result<(), ToolFailure> {
    from.perform(|session| Box::pin(session.save_changes())).await??;
    let from = from.id().clone();
    to.perform(move |session| Box::pin(async move { session.restore_changes_of(&from).await })).await?.map_err(
        |error| {
            let what =
                format!("cannot copy the changed files into the sandbox of this call: {}", base::error_chain(&error));
            ToolFailure::invalid(what, "call with `fresh: true` to start from the user's files")
        },
    )
}

/// Returns a result with structured content, and the same as text.
fn structured(value: Value) -> CallToolResult {
    CallToolResult::structured(value)
}
