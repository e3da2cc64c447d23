//! Notifications of the server.

use protocol::{ItemStatus, TurnOutcome};
use serde_json::Value;

use super::CodexDialogue;
use crate::transcript::{PlanStep, TextKind};

/// Notifications without relevant information for a session.
const IGNORED_NOTIFICATIONS: &[&str] = &[
    "account/",
    "app/",
    "configWarning",
    "deprecationNotice",
    "fs/",
    "item/commandExecution/outputDelta",
    "item/fileChange/",
    "item/reasoning/summaryPartAdded",
    "mcpServer/",
    "remoteControl/",
    "skills/",
    "thread/",
    "turn/diff/updated",
];

impl CodexDialogue {
    pub(super) fn notification(&mut self, method: &str, value: Value) {
        let params = &value["params"];
        if let Some(thread) = self.other_thread(params)
            && self.handle_sub_agent(method, &thread, params)
        {
            return;
        }
        match method {
            "turn/started" => self.set_turn(&params["turn"]),
            "turn/completed" => self.turn_completed(&params["turn"]),
            "turn/plan/updated" => {
                let steps = params["plan"].as_array().into_iter().flatten();
                let step = |step: &Value| PlanStep::new(step["step"].as_str(), Some(status(&step["status"])));
                let steps: Vec<PlanStep> = steps.map(step).collect();
                self.transcript.push_plan_with_call(self.parent_item(params), "update_plan", &steps);
            }
            "item/started" => self.item_started(&params["item"], self.parent_item(params)),
            "item/completed" => self.item_completed(&params["item"], self.parent_item(params)),
            "item/agentMessage/delta" => self.append_delta(params, TextKind::Message),
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => {
                self.append_delta(params, TextKind::Thought);
            }
            "serverRequest/resolved" => self.request_resolved(&params["requestId"]),
            "error" => self.error(params),
            "warning" => {
                let detail = params["message"].as_str().map(str::to_owned);
                self.transcript.push_status_under(self.parent_item(params), "Warning", detail, Vec::new());
            }
            _ if IGNORED_NOTIFICATIONS.iter().any(|known| method.starts_with(known)) => {}
            _ => self.transcript.record_unknown(value),
        }
    }

    fn append_delta(&mut self, params: &Value, kind: TextKind) {
        let item = params["itemId"].as_str().unwrap_or_default();
        let text = params["delta"].as_str().unwrap_or_default();
        self.transcript.append_text(item, kind, self.parent_item(params), text);
    }

    fn error(&mut self, params: &Value) {
        let error = &params["error"];
        let message = error["message"].as_str().unwrap_or("the model failed");
        if params["willRetry"] == true {
            return self.transcript.push_status("Retrying", Some(message.to_owned()), Vec::new());
        }
        self.report_error(message, error);
    }

    fn report_error(&mut self, message: &str, error: &Value) {
        if !self.error_reported {
            self.error_reported = true;
            self.transcript.push_error(message, Some("upstream_error"), Some(error["codexErrorInfo"].clone()));
        }
    }

    fn turn_completed(&mut self, turn: &Value) {
        let outcome = match turn["status"].as_str() {
            Some("completed") => TurnOutcome::Completed,
            Some("interrupted") => TurnOutcome::Interrupted,
            _ => {
                let message = turn["error"]["message"].as_str().unwrap_or("the turn failed");
                self.report_error(message, &turn["error"]);
                TurnOutcome::Failed
            }
        };
        if outcome != TurnOutcome::Completed {
            self.transcript.finish_texts_under(None, ItemStatus::Failed);
        }
        self.turn = None;
        self.end_turn(outcome);
    }
}

/// Converts the status of a step from camel case to snake case.
fn status(word: &Value) -> &str {
    match word.as_str().unwrap_or_default() {
        "inProgress" => "in_progress",
        other => other,
    }
}
