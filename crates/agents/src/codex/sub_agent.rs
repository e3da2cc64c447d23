//! Sub-agents: additional threads, each started by a call on the main thread or on another sub-agent's thread.
//!
//! Items of such a thread are below the call that started it. The turns and failures of a sub-agent do not end the main
//! turn, but the main turn ends only after all sub-agents have finished.

use std::collections::BTreeMap;

use protocol::{ItemId, TurnOutcome};
use serde_json::{Value, json};

use super::{CodexDialogue, CodexRequest};

/// Sub-agent threads by id.
pub(super) type SubAgents = BTreeMap<String, SubAgent>;

/// A sub-agent thread.
#[derive(Debug, Default)]
pub(super) struct SubAgent {
    /// The call that started the thread.
    call: Option<ItemId>,
    /// The current turn.
    turn: Option<String>,
}

impl CodexDialogue {
    /// Returns the thread of a message if it is not the main thread.
    pub(super) fn other_thread(&self, params: &Value) -> Option<String> {
        let thread =
            params["threadId"].as_str().filter(|thread| self.thread.as_deref().is_some_and(|ours| ours != *thread));
        thread.map(str::to_owned)
    }

    /// Returns the parent item for items of a thread.
    pub(super) fn parent_item(&self, params: &Value) -> Option<ItemId> {
        let agent = self.sub_agents.get(params["threadId"].as_str()?)?;
        agent.call.clone()
    }

    /// Handles a notification of a sub-agent thread. Returns `false` if the caller must handle it.
    pub(super) fn handle_sub_agent(&mut self, method: &str, thread: &str, params: &Value) -> bool {
        match method {
            "turn/started" => {
                let turn = params["turn"]["id"].as_str().map(str::to_owned);
                self.sub_agents.entry(thread.to_owned()).or_default().turn = turn;
                if self.interrupt_requested {
                    self.stop_sub_agents();
                }
            }
            "turn/completed" | "thread/closed" => self.sub_agent_finished(thread),
            "error" => {
                let label = if params["willRetry"] == true { "Retrying" } else { "Sub-agent failed" };
                let detail = params["error"]["message"].as_str().map(str::to_owned);
                self.transcript.push_status_under(self.parent_item(params), label, detail, Vec::new());
            }
            _ => return false,
        }
        true
    }

    /// Links the threads that a call names to its item, unless an earlier call started them.
    pub(super) fn link_sub_agents(&mut self, call: &str, item_value: &Value) {
        let item = self.transcript.call_item(call);
        let threads =
            item_value["receiverThreadIds"].as_array().into_iter().flatten().chain([&item_value["agentThreadId"]]);
        for thread in threads.filter_map(Value::as_str) {
            let agent = self.sub_agents.entry(thread.to_owned()).or_default();
            agent.call = agent.call.take().or_else(|| item.clone());
        }
    }

    /// Interrupts all sub-agents.
    pub(super) fn stop_sub_agents(&mut self) {
        let working = self.sub_agents.iter().filter_map(|(thread, agent)| Some((thread, agent.turn.as_ref()?)));
        let targets: Vec<_> = working.map(|(thread, turn)| json!({ "threadId": thread, "turnId": turn })).collect();
        for target in targets {
            self.request(CodexRequest::InterruptSubAgent, "turn/interrupt", &target);
        }
    }

    fn sub_agent_finished(&mut self, thread: &str) {
        self.sub_agents.entry(thread.to_owned()).or_default().turn = None;
        if let Some(outcome) = self.pending_outcome.take() {
            self.end_turn(outcome);
        }
    }

    /// Ends the turn, or delays its end until all sub-agents have finished.
    pub(super) fn end_turn(&mut self, outcome: TurnOutcome) {
        if self.sub_agents.values().any(|agent| agent.turn.is_some()) {
            self.pending_outcome = Some(outcome);
            return;
        }
        self.permissions.clear();
        self.questions.clear();
        self.error_reported = false;
        self.transcript.end_turn(outcome);
    }
}
