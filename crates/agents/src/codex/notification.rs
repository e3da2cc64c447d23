//! What the server tells without being asked.

use protocol::{ItemStatus, TurnOutcome};
use serde_json::{Value, json};

use super::CodexDialogue;
use crate::transcript::Speech;

/// Notifications that say nothing a reader of the session needs: other events have it, or it is not ours.
const OF_NO_INTEREST: &[&str] = &[
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
            && self.of_sub_agent(method, &thread, params)
        {
            return;
        }
        match method {
            "turn/started" => self.name_turn(&params["turn"]),
            "turn/completed" => self.turn_completed(&params["turn"]),
            "turn/plan/updated" => {
                let steps = params["plan"].as_array().into_iter().flatten();
                let steps =
                    steps.map(|step| json!({ "text": step["step"], "status": status(&step["status"]) })).collect();
                self.transcript.plan_called(self.below(params), "update_plan", steps);
            }
            "item/started" => self.item_started(&params["item"], self.below(params)),
            "item/completed" => self.item_completed(&params["item"], self.below(params)),
            "item/agentMessage/delta" => self.say(params, Speech::Message),
            "item/reasoning/summaryTextDelta" | "item/reasoning/textDelta" => self.say(params, Speech::Thought),
            "serverRequest/resolved" => self.request_resolved(&params["requestId"]),
            "error" => self.error(params),
            "warning" => {
                let detail = params["message"].as_str().map(str::to_owned);
                self.transcript.status_in(self.below(params), "Warning", detail, Vec::new());
            }
            _ if OF_NO_INTEREST.iter().any(|known| method.starts_with(known)) => {}
            _ => self.transcript.unknown(value),
        }
    }

    fn say(&mut self, params: &Value, speech: Speech) {
        let item = params["itemId"].as_str().unwrap_or_default();
        let words = params["delta"].as_str().unwrap_or_default();
        self.transcript.say(item, speech, self.below(params), words);
    }

    fn error(&mut self, params: &Value) {
        let error = &params["error"];
        let message = error["message"].as_str().unwrap_or("the model failed");
        if params["willRetry"] == true {
            return self.transcript.status("Retrying", Some(message.to_owned()), Vec::new());
        }
        self.tell_error(message, error);
    }

    fn tell_error(&mut self, message: &str, error: &Value) {
        if !self.told_error {
            self.told_error = true;
            self.transcript.error(message, Some("upstream_error"), Some(error["codexErrorInfo"].clone()));
        }
    }

    fn turn_completed(&mut self, turn: &Value) {
        let outcome = match turn["status"].as_str() {
            Some("completed") => TurnOutcome::Completed,
            Some("interrupted") => TurnOutcome::Interrupted,
            _ => {
                let message = turn["error"]["message"].as_str().unwrap_or("the turn failed");
                self.tell_error(message, &turn["error"]);
                TurnOutcome::Failed
            }
        };
        if outcome != TurnOutcome::Completed {
            self.transcript.finish_speech_in(None, ItemStatus::Failed);
        }
        self.turn = None;
        self.end_turn(outcome);
    }
}

/// A step's status as all agents tell it; the protocol spells it as it spells fields.
fn status(word: &Value) -> &str {
    match word.as_str().unwrap_or_default() {
        "inProgress" => "in_progress",
        other => other,
    }
}
