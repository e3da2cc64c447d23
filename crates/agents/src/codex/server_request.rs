//! The server's own requests: approvals and questions.

use protocol::{PermissionId, PermissionReply, QuestionId};
use serde_json::{Map, Value, json};

use super::CodexDialogue;
use crate::transcript::ToolOutcome;
use crate::{PermissionMode, pattern, questions};

/// A request of the server that waits for our answer.
#[derive(Debug)]
pub(super) struct ServerRequest {
    /// In the server's own space of ids.
    id: Value,
    params: Value,
}

impl CodexDialogue {
    pub(super) fn server_request(&mut self, method: &str, id: &Value, value: Value) {
        let params = &value["params"];
        match method {
            // What it knows to change nothing it does not ask for; its plan is words, and another session's to carry out.
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
            // It asks for a tool of an MCP server as if the server wanted something.
            "mcpServer/elicitation/request" if params["_meta"]["codex_approval_kind"] == "mcp_tool_call" => {
                self.ask_mcp_tool(id, params);
            }
            _ => {
                // Left unanswered it would wait for ever.
                let error = json!({ "code": -32601, "message": "not supported" });
                self.transcript.send(&json!({ "id": id, "error": error }));
                self.transcript.record_unknown(value);
            }
        }
    }

    fn ask_permission(&mut self, action: &str, id: &Value, params: &Value) {
        let input = self.transcript.call_arguments(params["itemId"].as_str().unwrap_or_default());
        let mut metadata = json!({ "tool": action, "input": input, "call_id": params["itemId"] });
        for name in ["command", "cwd", "reason"] {
            if let Some(text) = params[name].as_str() {
                metadata[name] = json!(text);
            }
        }
        if let Some(pattern) = pattern_of(action, &metadata) {
            metadata["pattern"] = pattern;
        }
        let permission = self.transcript.request_permission(action, metadata);
        self.permissions.insert(permission, ServerRequest { id: id.clone(), params: params.clone() });
    }

    fn ask_mcp_tool(&mut self, id: &Value, params: &Value) {
        let (server, meta) = (params["serverName"].as_str().unwrap_or_default(), &params["_meta"]);
        let action = format!("mcp__{server}");
        let input = meta.get("tool_params").cloned().unwrap_or_default();
        // The tool itself is named nowhere but in the words of the request.
        let pattern = json!({ "tool": action, "message": params["message"], "input": input });
        let metadata = json!({ "tool": action, "input": input, "reason": params["message"], "pattern": pattern });
        let permission = self.transcript.request_permission(&action, metadata);
        self.permissions.insert(permission, ServerRequest { id: id.clone(), params: params.clone() });
    }

    /// The tool is not told of as an item, so it is made one: a question is always inside a call.
    fn ask_question(&mut self, id: &Value, params: &Value) {
        let list = params["questions"].as_array().cloned().unwrap_or_default();
        let call = params["itemId"].as_str().unwrap_or_default();
        self.transcript.start_call(call, "request_user_input", &json!({ "questions": list }), self.parent_item(params));
        let question = questions::ask(&mut self.transcript, &list);
        self.questions.insert(question, ServerRequest { id: id.clone(), params: params.clone() });
    }

    pub(super) fn resolve_permission(&mut self, id: &PermissionId, reply: PermissionReply) {
        let Some(asked) = self.permissions.remove(id).filter(|_| self.transcript.take_permission(id)) else {
            return;
        };
        let answer = match (asked.params["serverName"].is_string(), reply) {
            (true, PermissionReply::Once) => json!({ "action": "accept", "content": {} }),
            (true, PermissionReply::Always) => {
                json!({ "action": "accept", "content": {}, "_meta": { "persist": "session" } })
            }
            (true, PermissionReply::Reject) => json!({ "action": "decline" }),
            (false, PermissionReply::Once) => json!({ "decision": "accept" }),
            (false, PermissionReply::Always) => json!({ "decision": asked.lasting_decision() }),
            (false, PermissionReply::Reject) => json!({ "decision": "decline" }),
        };
        self.reply(&asked.id, &answer);
    }

    pub(super) fn resolve_question(&mut self, id: &QuestionId, answers: Option<&[Vec<String>]>) {
        let Some(asked) = self.questions.remove(id).filter(|_| self.transcript.take_question(id)) else {
            return;
        };
        let ids = asked.params["questions"].as_array().into_iter().flatten().filter_map(|asked| asked["id"].as_str());
        let by_id: Map<String, Value> = ids
            .zip(answers.unwrap_or_default())
            .map(|(id, answer)| (id.to_owned(), json!({ "answers": answer })))
            .collect();
        self.reply(&asked.id, &json!({ "answers": by_id }));
        let output = answers.map(|answers| answers.concat().join(", "));
        let failed = output.is_none();
        let output = output.unwrap_or_else(|| "the person did not answer".to_owned());
        let call = asked.params["itemId"].as_str().unwrap_or_default();
        self.transcript.finish_call(call, ToolOutcome { output, failed, parts: Vec::new() });
    }

    /// The server no longer waits: somebody answered, or the turn is over.
    pub(super) fn request_resolved(&mut self, id: &Value) {
        if let Some(permission) = self.permissions.iter().find(|(_, asked)| asked.id == *id).map(|(id, _)| id.clone()) {
            self.permissions.remove(&permission);
            self.transcript.withdraw_permission(&permission);
        }
        if let Some(question) = self.questions.iter().find(|(_, asked)| asked.id == *id).map(|(id, _)| id.clone()) {
            self.questions.remove(&question);
            self.transcript.withdraw_question(&question);
        }
    }

    fn reply(&mut self, id: &Value, result: &Value) {
        self.transcript.send(&json!({ "id": id, "result": result }));
    }
}

/// A patch is covered by the files it changes, a command by what is run and where.
fn pattern_of(action: &str, metadata: &Value) -> Option<Value> {
    let input = &metadata["input"];
    match input["changes"].as_array() {
        Some(changes) => {
            let mut paths: Vec<&str> = changes.iter().filter_map(|change| change["path"].as_str()).collect();
            paths.sort_unstable();
            (!paths.is_empty()).then(|| json!({ "tool": action, "paths": paths }))
        }
        None if input.is_object() => pattern::pattern_of_call(action, input),
        None => {
            let command = metadata["command"].as_str()?;
            Some(json!({ "tool": action, "input": { "command": command, "cwd": metadata["cwd"] } }))
        }
    }
}

impl ServerRequest {
    /// The rule that the server itself proposed, or else the same thing for the rest of the session.
    fn lasting_decision(&self) -> Value {
        let decisions = self.params["availableDecisions"].as_array().into_iter().flatten();
        let mut amendments = decisions.filter(|decision| decision["acceptWithExecpolicyAmendment"].is_object());
        amendments.next().cloned().unwrap_or_else(|| json!("acceptForSession"))
    }
}
