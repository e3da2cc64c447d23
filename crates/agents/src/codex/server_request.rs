//! Requests of the server: approvals and questions.

use protocol::{PermissionId, PermissionReply, QuestionId};
use serde_json::{Map, Value, json};

use super::CodexDialogue;
use crate::transcript::{PermissionDetails, ToolOutcome};
use crate::{PermissionMode, pattern, questions};

/// A request of the server that waits for an answer.
#[derive(Debug)]
pub(super) struct ServerRequest {
    /// The request id of the server.
    id: Value,
    params: Value,
}

impl CodexDialogue {
    pub(super) fn server_request(&mut self, method: &str, id: &Value, value: Value) {
        let params = &value["params"];
        match method {
            // Codex asks only for actions that may change something, so plan mode declines all of them.
            "item/commandExecution/requestApproval" | "item/fileChange/requestApproval"
                if self.mode == PermissionMode::Plan =>
            {
                self.reply(id, &json!({ "decision": "decline" }));
            }
            "mcpServer/elicitation/request" if self.mode == PermissionMode::Plan => {
                self.reply(id, &json!({ "action": "decline" }));
            }
            "item/fileChange/requestApproval" if self.mode == PermissionMode::AcceptEdits => {
                self.reply(id, &json!({ "decision": "accept" }));
            }
            "item/commandExecution/requestApproval" => self.ask_permission("exec_command", id, params),
            "item/fileChange/requestApproval" => self.ask_permission("apply_patch", id, params),
            "item/tool/requestUserInput" => self.ask_question(id, params),
            // Codex requests approval of an MCP tool as an elicitation of the server.
            "mcpServer/elicitation/request" if params["_meta"]["codex_approval_kind"] == "mcp_tool_call" => {
                self.ask_mcp_tool(id, params);
            }
            _ => {
                // Codex would wait for an answer forever.
                let error = json!({ "code": -32601, "message": "not supported" });
                self.transcript.send(&json!({ "id": id, "error": error }));
                self.transcript.record_unknown(value);
            }
        }
    }

    fn ask_permission(&mut self, action: &str, id: &Value, params: &Value) {
        let input = self.transcript.call_arguments(params["itemId"].as_str().unwrap_or_default());
        let text = |name: &str| params[name].as_str().map(str::to_owned);
        let mut details = PermissionDetails {
            tool: action.to_owned(),
            input: input.cloned().unwrap_or_default(),
            call_id: Some(params["itemId"].clone()),
            command: text("command"),
            cwd: text("cwd"),
            reason: text("reason").map(Value::String),
            ..PermissionDetails::default()
        };
        details.pattern = pattern_of(&details);
        let permission = self.transcript.request_permission(action, &details);
        self.permissions.insert(permission, ServerRequest { id: id.clone(), params: params.clone() });
    }

    fn ask_mcp_tool(&mut self, id: &Value, params: &Value) {
        let (server, meta) = (params["serverName"].as_str().unwrap_or_default(), &params["_meta"]);
        let action = format!("mcp__{server}");
        let input = meta.get("tool_params").cloned().unwrap_or_default();
        // The name of the tool is only in the message of the request.
        let pattern = json!({ "tool": action, "message": params["message"], "input": input });
        let details = PermissionDetails {
            tool: action.clone(),
            input,
            reason: Some(params["message"].clone()),
            pattern: Some(pattern),
            ..PermissionDetails::default()
        };
        let permission = self.transcript.request_permission(&action, &details);
        self.permissions.insert(permission, ServerRequest { id: id.clone(), params: params.clone() });
    }

    /// Asks a question inside a tool call. Codex reports no item for the call, so it is created here.
    fn ask_question(&mut self, id: &Value, params: &Value) {
        let list = params["questions"].as_array().cloned().unwrap_or_default();
        let call = params["itemId"].as_str().unwrap_or_default();
        self.transcript.start_call(call, "request_user_input", &json!({ "questions": list }), self.parent_item(params));
        let question = questions::ask(&mut self.transcript, &list);
        self.questions.insert(question, ServerRequest { id: id.clone(), params: params.clone() });
    }

    pub(super) fn resolve_permission(&mut self, id: &PermissionId, reply: PermissionReply) {
        let Some(request) = self.permissions.remove(id).filter(|_| self.transcript.take_permission(id)) else {
            return;
        };
        let answer = match (request.params["serverName"].is_string(), reply) {
            (true, PermissionReply::Once) => json!({ "action": "accept", "content": {} }),
            (true, PermissionReply::Always) => {
                json!({ "action": "accept", "content": {}, "_meta": { "persist": "session" } })
            }
            (true, PermissionReply::Reject) => json!({ "action": "decline" }),
            (false, PermissionReply::Once) => json!({ "decision": "accept" }),
            (false, PermissionReply::Always) => json!({ "decision": request.lasting_decision() }),
            (false, PermissionReply::Reject) => json!({ "decision": "decline" }),
        };
        self.reply(&request.id, &answer);
    }

    pub(super) fn resolve_question(&mut self, id: &QuestionId, answers: Option<&[Vec<String>]>) {
        let Some(request) = self.questions.remove(id).filter(|_| self.transcript.take_question(id)) else {
            return;
        };
        let ids =
            request.params["questions"].as_array().into_iter().flatten().filter_map(|question| question["id"].as_str());
        let by_id: Map<String, Value> = ids
            .zip(answers.unwrap_or_default())
            .map(|(id, answer)| (id.to_owned(), json!({ "answers": answer })))
            .collect();
        self.reply(&request.id, &json!({ "answers": by_id }));
        let output = answers.map(|answers| answers.concat().join(", "));
        let failed = output.is_none();
        let output = output.unwrap_or_else(|| "no answer from the user".to_owned());
        let call = request.params["itemId"].as_str().unwrap_or_default();
        self.transcript.finish_call(call, ToolOutcome { output, failed, parts: Vec::new() });
    }

    /// Withdraws a request that the server has closed.
    pub(super) fn request_resolved(&mut self, id: &Value) {
        if let Some(permission) =
            self.permissions.iter().find(|(_, request)| request.id == *id).map(|(id, _)| id.clone())
        {
            self.permissions.remove(&permission);
            self.transcript.withdraw_permission(&permission);
        }
        if let Some(question) = self.questions.iter().find(|(_, request)| request.id == *id).map(|(id, _)| id.clone()) {
            self.questions.remove(&question);
            self.transcript.withdraw_question(&question);
        }
    }

    fn reply(&mut self, id: &Value, result: &Value) {
        self.transcript.send(&json!({ "id": id, "result": result }));
    }
}

/// Returns the pattern of a permission: the files of a patch, or a command with its directory.
fn pattern_of(details: &PermissionDetails) -> Option<Value> {
    let PermissionDetails { tool, input, .. } = details;
    match input["changes"].as_array() {
        Some(changes) => {
            let mut paths: Vec<&str> = changes.iter().filter_map(|change| change["path"].as_str()).collect();
            paths.sort_unstable();
            (!paths.is_empty()).then(|| json!({ "tool": tool, "paths": paths }))
        }
        None if input.is_object() => pattern::pattern_of_call(tool, input),
        None => {
            let command = details.command.as_ref()?;
            Some(json!({ "tool": tool, "input": { "command": command, "cwd": details.cwd } }))
        }
    }
}

impl ServerRequest {
    /// Returns the rule that the server proposed, or a decision for the rest of the session.
    fn lasting_decision(&self) -> Value {
        let decisions = self.params["availableDecisions"].as_array().into_iter().flatten();
        let mut amendments = decisions.filter(|decision| decision["acceptWithExecpolicyAmendment"].is_object());
        amendments.next().cloned().unwrap_or_else(|| json!("acceptForSession"))
    }
}
