//! The response of a turn.

use protocol::{ContentPart, Event, EventBody, ItemKind, ItemRole, SessionId, TurnOutcome, Usage, WorkspaceChanged};

/// The response of a turn: its text, events, usage and changes.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentResponse {
    /// The outcome that the agent reported.
    pub outcome: TurnOutcome,
    /// The agent's last message.
    pub text: String,
    /// The events of the turn, in order.
    pub events: Vec<Event>,
    /// Tokens of all model calls.
    pub usage: Usage,
    /// Cost of all model calls, in pico-dollars (10⁻¹² USD).
    pub cost_picos: i64,
    /// Number of model calls whose price is not known. Their cost is not in `cost_picos`, and not zero either.
    pub unpriced_calls: u64,
    /// Paths of the workspace that differ from the host. The host itself is unchanged.
    pub changes: WorkspaceChanged,
    /// The id of the session, as in `viv sessions` and `viv usage`.
    pub session: SessionId,
    /// Number of the attempt, from 1.
    pub attempt: u32,
}

impl AgentResponse {
    /// Returns the response of a turn with these events.
    pub(super) fn of(session: SessionId, outcome: TurnOutcome, events: Vec<Event>) -> Self {
        let (mut usage, mut cost_picos, mut unpriced_calls) = (Usage::default(), 0, 0);
        let (mut text, mut changes) = (String::new(), WorkspaceChanged::default());
        for event in &events {
            match &event.draft.body {
                EventBody::LlmCall(call) => {
                    usage += call.usage;
                    cost_picos += call.cost_picos;
                    unpriced_calls += u64::from(call.unpriced.is_some());
                }
                EventBody::WorkspaceChanged(latest) => changes = latest.clone(),
                EventBody::ItemCompleted(completed) => text = message_text(&completed.item).unwrap_or(text),
                _ => {}
            }
        }
        Self { outcome, text, events, usage, cost_picos, unpriced_calls, changes, session, attempt: 1 }
    }

    /// Returns whether the agent reported success.
    pub fn is_success(&self) -> bool {
        self.outcome == TurnOutcome::Completed
    }

    /// Returns the cost in dollars with six decimals, rounded up so that a small cost is not shown as zero.
    pub fn cost_usd(&self) -> String {
        const MICRO: i64 = 1_000_000;
        let micros = self.cost_picos.div_euclid(MICRO) + i64::from(self.cost_picos.rem_euclid(MICRO) != 0);
        format!("{}.{:06}", micros / MICRO, micros % MICRO)
    }

    /// Returns whether the turn did something that a retry would repeat.
    pub(super) fn has_side_effects(&self) -> bool {
        self.events.iter().any(|event| match &event.draft.body {
            EventBody::ItemStarted(started) => {
                matches!(started.item.kind, ItemKind::ToolCall | ItemKind::ToolResult)
            }
            EventBody::PermissionRequested(_)
            | EventBody::WorkspaceChanged(_)
            | EventBody::EgressAllowed(_)
            | EventBody::ExecStarted(_) => true,
            _ => false,
        })
    }
}

/// Returns the text of an item; `None` unless it is a message of the main agent, not of a subagent.
fn message_text(item: &protocol::Item) -> Option<String> {
    if item.kind != ItemKind::Message || item.role != Some(ItemRole::Assistant) || item.parent_id.is_some() {
        return None;
    }
    let parts = item.content.iter().filter_map(|part| match part {
        ContentPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    Some(parts.collect::<Vec<_>>().join("\n")).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cost_is_rounded_up() {
        let cost = |cost_picos| {
            let session = SessionId::new("s").unwrap();
            AgentResponse { cost_picos, ..AgentResponse::of(session, TurnOutcome::Completed, Vec::new()) }.cost_usd()
        };
        assert_eq!(cost(0), "0.000000");
        assert_eq!(cost(1), "0.000001");
        assert_eq!(cost(2_500_000_000_000), "2.500000");
    }
}
