//! Sub-agents: threads beside ours, each made by a call on ours or on one of theirs.
//!
//! What happens on such a thread is told below that call. Its turns and its failures are its own: they never end
//! our turn. But our turn ends only when they are done: what is at work for a turn belongs to it.

use std::collections::BTreeMap;

use protocol::{ItemId, TurnOutcome};
use serde_json::{Value, json};

use super::{CodexDialogue, CodexRequest};

/// Threads that are not ours, by their ids.
pub(super) type SubAgents = BTreeMap<String, SubAgent>;

/// One thread that is not ours.
#[derive(Debug, Default)]
pub(super) struct SubAgent {
    /// The call that made it.
    call: Option<ItemId>,
    /// What it is at work on.
    turn: Option<String>,
}

impl CodexDialogue {
    /// The thread of a message, where it is not ours.
    pub(super) fn other_thread(&self, params: &Value) -> Option<String> {
        let thread =
            params["threadId"].as_str().filter(|thread| self.thread.as_deref().is_some_and(|ours| ours != *thread));
        thread.map(str::to_owned)
    }

    /// Below which item that stands which is told of a thread.
    pub(super) fn parent_item(&self, params: &Value) -> Option<ItemId> {
        let agent = self.sub_agents.get(params["threadId"].as_str()?)?;
        agent.call.clone()
    }

    /// What a thread of another is told to have done, if it is nothing that every thread does.
    ///
    /// False where it is to be read like anything that happens on ours.
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

    /// A call of ours, or of a sub-agent, that concerns other threads; the first such call has made them.
    pub(super) fn link_sub_agents(&mut self, call: &str, told: &Value) {
        let item = self.transcript.call_item(call);
        let threads = told["receiverThreadIds"].as_array().into_iter().flatten().chain([&told["agentThreadId"]]);
        for thread in threads.filter_map(Value::as_str) {
            let agent = self.sub_agents.entry(thread.to_owned()).or_default();
            agent.call = agent.call.take().or_else(|| item.clone());
        }
    }

    /// Asks every sub-agent to stop what it is at.
    pub(super) fn stop_sub_agents(&mut self) {
        let at_work = self.sub_agents.iter().filter_map(|(thread, agent)| Some((thread, agent.turn.as_ref()?)));
        let orders: Vec<_> = at_work.map(|(thread, turn)| json!({ "threadId": thread, "turnId": turn })).collect();
        for order in orders {
            self.request(CodexRequest::InterruptSubAgent, "turn/interrupt", &order);
        }
    }

    fn sub_agent_finished(&mut self, thread: &str) {
        self.sub_agents.entry(thread.to_owned()).or_default().turn = None;
        if let Some(outcome) = self.pending_outcome.take() {
            self.end_turn(outcome);
        }
    }

    /// Ends the turn, or lets it wait for those who are still at work for it.
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
