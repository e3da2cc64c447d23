//! `can_use_tool`: a permission, a question, or the end of planning.

use protocol::{PermissionId, PermissionReply, QuestionId};
use serde_json::{Value, json};

use super::ControlDialogue;
use crate::mode::NOT_WHILE_PLANNING;
use crate::transcript::PermissionDetails;
use crate::{pattern, questions};

/// Tools that change nothing. Actions of a sub-agent are requested separately.
const READ_ONLY_TOOLS: &[&str] = &[
    "Agent",
    "Glob",
    "Grep",
    "LS",
    "Read",
    "Task",
    "ToolSearch",
    "WebFetch",
    "WebSearch",
    "agent",
    "glob",
    "grep_search",
    "list_directory",
    "read_file",
    "tool_search",
    "web_fetch",
    "web_search",
];

/// A request of the program that waits for an answer.
#[derive(Debug, Clone)]
pub(super) struct ToolUseRequest {
    request_id: String,
    tool: String,
    input: Value,
    suggestions: Vec<Value>,
}

impl ControlDialogue {
    pub(super) fn control_request(&mut self, value: Value) {
        let request_id = value["request_id"].as_str().unwrap_or_default().to_owned();
        let request = &value["request"];
        if request["subtype"] != "can_use_tool" {
            // The program would wait for an answer forever.
            self.refuse(&request_id, "not supported");
            return self.transcript.record_unknown(value);
        }
        let tool = request["tool_name"].as_str().unwrap_or_default().to_owned();
        let suggestions = request["permission_suggestions"].as_array().cloned().unwrap_or_default();
        let tool_use = ToolUseRequest { request_id, tool, input: request["input"].clone(), suggestions };
        match tool_use.tool.as_str() {
            "AskUserQuestion" | "ask_user_question" => self.ask_question(tool_use),
            "ExitPlanMode" | "exit_plan_mode" => self.ask_plan(tool_use, &request["tool_use_id"]),
            // The program would let a person allow changes in plan mode.
            tool if self.planning && !READ_ONLY_TOOLS.contains(&tool) => {
                self.respond(&tool_use.request_id, &deny(NOT_WHILE_PLANNING));
            }
            _ => self.ask_permission(tool_use, request),
        }
    }

    fn ask_permission(&mut self, tool_use: ToolUseRequest, request: &Value) {
        let text = |name: &str| request[name].as_str().map(str::to_owned);
        let details = PermissionDetails {
            tool: tool_use.tool.clone(),
            input: tool_use.input.clone(),
            call_id: Some(request["tool_use_id"].clone()),
            description: text("description"),
            blocked_path: text("blocked_path"),
            pattern: pattern::pattern_of_call(&tool_use.tool, &tool_use.input),
            ..PermissionDetails::default()
        };
        let id = self.transcript.request_permission(&tool_use.tool, &details);
        self.permissions.insert(id, tool_use);
    }

    fn ask_question(&mut self, tool_use: ToolUseRequest) {
        let list = tool_use.input["questions"].as_array().cloned().unwrap_or_default();
        let id = questions::ask(&mut self.transcript, &list);
        self.questions.insert(id, tool_use);
    }

    fn ask_plan(&mut self, tool_use: ToolUseRequest, call: &Value) {
        let options = vec!["yes".to_owned(), "no".to_owned()];
        // The request does not contain the plan; the call does.
        let plan = self.transcript.call_arguments(call.as_str().unwrap_or_default());
        let metadata = json!({ "tool": tool_use.tool, "input": plan.unwrap_or(&tool_use.input) });
        let id = self.transcript.request_question("Carry out this plan?", options, Some(metadata));
        self.questions.insert(id, tool_use);
    }

    pub(super) fn resolve_permission(&mut self, id: &PermissionId, reply: PermissionReply) {
        let Some(tool_use) = self.permissions.remove(id).filter(|_| self.transcript.take_permission(id)) else {
            return;
        };
        let response = match reply {
            PermissionReply::Reject => deny("permission denied by user"),
            PermissionReply::Once => allow(&tool_use.input),
            PermissionReply::Always => {
                let mut response = allow(&tool_use.input);
                let rules = tool_use.rules();
                if !rules.is_empty() {
                    response["updatedPermissions"] = Value::Array(rules);
                }
                response
            }
        };
        self.respond(&tool_use.request_id, &response);
    }

    pub(super) fn resolve_question(&mut self, id: &QuestionId, answers: Option<&[Vec<String>]>) {
        let Some(tool_use) = self.questions.remove(id).filter(|_| self.transcript.take_question(id)) else {
            return;
        };
        let response = match answers {
            None => deny("no answer from the user"),
            Some(answers) if tool_use.input["questions"].is_array() => {
                let mut input = tool_use.input.clone();
                input["answers"] = self.by_question(&tool_use.input["questions"], answers);
                allow(&input)
            }
            Some(answers) => match answers.concat().join(", ") {
                word if word == "yes" => {
                    self.planning = false;
                    allow(&tool_use.input)
                }
                word => deny(&format!("the user answered: {word}")),
            },
        };
        self.respond(&tool_use.request_id, &response);
    }

    /// Returns the answers by question, in the form that the tool expects.
    fn by_question(&self, questions: &Value, answers: &[Vec<String>]) -> Value {
        let texts = questions.as_array().into_iter().flatten().map(|question| question["question"].as_str());
        let given = texts.zip(answers).enumerate();
        given
            .filter_map(|(index, (text, answer))| {
                Some(((self.variant.answer_key)(text?, index), json!(answer.join(", "))))
            })
            .collect()
    }

    pub(super) fn control_cancel(&mut self, value: &Value) {
        let request_id = value["request_id"].as_str().unwrap_or_default();
        let permission = self.permissions.iter().find(|(_, tool_use)| tool_use.request_id == request_id);
        if let Some(id) = permission.map(|(id, _)| id.clone()) {
            self.permissions.remove(&id);
            return self.transcript.withdraw_permission(&id);
        }
        let question = self.questions.iter().find(|(_, tool_use)| tool_use.request_id == request_id);
        if let Some(id) = question.map(|(id, _)| id.clone()) {
            self.questions.remove(&id);
            self.transcript.withdraw_question(&id);
        }
    }
}

impl ToolUseRequest {
    /// Returns the rules that "always" grants for this session. Only rules for exactly this tool use are kept; a
    /// changed mode or directory would allow more than the person saw.
    fn rules(&self) -> Vec<Value> {
        let rules = self.suggestions.iter().filter(|suggestion| suggestion["type"] == "addRules");
        rules
            .cloned()
            .map(|mut rule| {
                rule["destination"] = json!("session");
                rule
            })
            .collect()
    }
}

fn allow(input: &Value) -> Value {
    json!({ "behavior": "allow", "updatedInput": input })
}

fn deny(message: &str) -> Value {
    json!({ "behavior": "deny", "message": message })
}
