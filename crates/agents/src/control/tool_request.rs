//! `can_use_tool`: a permission, a question to a person, or the end of planning.

use protocol::{PermissionId, PermissionReply, QuestionId};
use serde_json::{Value, json};

use super::ControlDialogue;
use crate::mode::NOT_WHILE_PLANNING;
use crate::{pattern, questions};

/// Tools that change nothing by themselves; whatever a sub-agent does is asked for again.
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

/// A request of the program that waits for our answer.
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
            // Left unanswered it would wait for ever.
            self.refuse(&request_id, "not supported");
            return self.transcript.record_unknown(value);
        }
        let tool = request["tool_name"].as_str().unwrap_or_default().to_owned();
        let suggestions = request["permission_suggestions"].as_array().cloned().unwrap_or_default();
        let asked = ToolUseRequest { request_id, tool, input: request["input"].clone(), suggestions };
        match asked.tool.as_str() {
            "AskUserQuestion" | "ask_user_question" => self.ask_question(asked),
            "ExitPlanMode" | "exit_plan_mode" => self.ask_plan(asked, &request["tool_use_id"]),
            // The program lets a person allow in plan mode what the mode is there to prevent.
            tool if self.planning && !READ_ONLY_TOOLS.contains(&tool) => {
                self.respond(&asked.request_id, &deny(NOT_WHILE_PLANNING));
            }
            _ => self.ask_permission(asked, request),
        }
    }

    fn ask_permission(&mut self, asked: ToolUseRequest, request: &Value) {
        let mut metadata = json!({ "tool": asked.tool, "input": asked.input, "call_id": request["tool_use_id"] });
        for name in ["description", "blocked_path"] {
            if let Some(text) = request[name].as_str() {
                metadata[name] = json!(text);
            }
        }
        if let Some(pattern) = pattern::pattern_of_call(&asked.tool, &asked.input) {
            metadata["pattern"] = pattern;
        }
        let id = self.transcript.request_permission(&asked.tool, metadata);
        self.permissions.insert(id, asked);
    }

    fn ask_question(&mut self, asked: ToolUseRequest) {
        let list = asked.input["questions"].as_array().cloned().unwrap_or_default();
        let id = questions::ask(&mut self.transcript, &list);
        self.questions.insert(id, asked);
    }

    fn ask_plan(&mut self, asked: ToolUseRequest, call: &Value) {
        let options = vec!["yes".to_owned(), "no".to_owned()];
        // The request comes without the plan; the call has it.
        let plan = self.transcript.call_arguments(call.as_str().unwrap_or_default());
        let metadata = json!({ "tool": asked.tool, "input": plan.unwrap_or(&asked.input) });
        let id = self.transcript.request_question("Carry out this plan?", options, Some(metadata));
        self.questions.insert(id, asked);
    }

    pub(super) fn resolve_permission(&mut self, id: &PermissionId, reply: PermissionReply) {
        let Some(asked) = self.permissions.remove(id).filter(|_| self.transcript.take_permission(id)) else {
            return;
        };
        let response = match reply {
            PermissionReply::Reject => deny("the person said no"),
            PermissionReply::Once => allow(&asked.input),
            PermissionReply::Always => {
                let mut response = allow(&asked.input);
                let rules = asked.rules();
                if !rules.is_empty() {
                    response["updatedPermissions"] = Value::Array(rules);
                }
                response
            }
        };
        self.respond(&asked.request_id, &response);
    }

    pub(super) fn resolve_question(&mut self, id: &QuestionId, answers: Option<&[Vec<String>]>) {
        let Some(asked) = self.questions.remove(id).filter(|_| self.transcript.take_question(id)) else {
            return;
        };
        let response = match answers {
            None => deny("the person did not answer"),
            Some(answers) if asked.input["questions"].is_array() => {
                let mut input = asked.input.clone();
                input["answers"] = self.by_question(&asked.input["questions"], answers);
                allow(&input)
            }
            Some(answers) => match answers.concat().join(", ") {
                word if word == "yes" => {
                    self.planning = false;
                    allow(&asked.input)
                }
                word => deny(&format!("the person answered: {word}")),
            },
        };
        self.respond(&asked.request_id, &response);
    }

    /// Each answer under the name of its question, as the tool wants them.
    fn by_question(&self, questions: &Value, answers: &[Vec<String>]) -> Value {
        let texts = questions.as_array().into_iter().flatten().map(|question| question["question"].as_str());
        let given = texts.zip(answers).enumerate();
        given
            .filter_map(|(place, (text, answer))| {
                Some(((self.variant.answer_key)(text?, place), json!(answer.join(", "))))
            })
            .collect()
    }

    pub(super) fn control_cancel(&mut self, value: &Value) {
        let request_id = value["request_id"].as_str().unwrap_or_default();
        let permission = self.permissions.iter().find(|(_, asked)| asked.request_id == request_id);
        if let Some(id) = permission.map(|(id, _)| id.clone()) {
            self.permissions.remove(&id);
            return self.transcript.withdraw_permission(&id);
        }
        let question = self.questions.iter().find(|(_, asked)| asked.request_id == request_id);
        if let Some(id) = question.map(|(id, _)| id.clone()) {
            self.questions.remove(&id);
            self.transcript.withdraw_question(&id);
        }
    }
}

impl ToolUseRequest {
    /// What "always" may grant: the rules that name exactly this, for this session. A change of mode or
    /// of the directories would grant far more than the person was shown.
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
