//! What came of a turn.

use protocol::{ContentPart, Event, EventBody, ItemKind, ItemRole, SessionId, TurnOutcome, Usage, WorkspaceChanged};

/// What came of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct AgentResponse {
    /// What the agent itself said of its turn.
    pub outcome: TurnOutcome,
    /// Its last message.
    pub text: String,
    /// Everything that happened, in order.
    pub events: Vec<Event>,
    /// Tokens of every model call it made.
    pub usage: Usage,
    /// What those calls cost, in pico-dollars (10⁻¹² USD).
    pub cost_picos: i64,
    /// What of the workspace differs from the host; of the host itself nothing does.
    pub changes: WorkspaceChanged,
    /// The session: `viv sessions` and `viv usage` know it by this name.
    pub session: SessionId,
    /// Which attempt this was, from 1.
    pub attempt: u32,
}

impl AgentResponse {
    /// Adds up what happened.
    pub(super) fn of(session: SessionId, outcome: TurnOutcome, events: Vec<Event>) -> Self {
        let (mut usage, mut cost_picos) = (Usage::default(), 0);
        let (mut text, mut changes) = (String::new(), WorkspaceChanged::default());
        for event in &events {
            match &event.draft.body {
                EventBody::LlmCall(call) => {
                    usage += call.usage;
                    cost_picos += call.cost_picos;
                }
                EventBody::WorkspaceChanged(told) => changes = told.clone(),
                EventBody::ItemCompleted(completed) => text = words(&completed.item).unwrap_or(text),
                _ => {}
            }
        }
        Self { outcome, text, events, usage, cost_picos, changes, session, attempt: 1 }
    }

    /// Whether the agent said that it was done.
    pub fn is_success(&self) -> bool {
        self.outcome == TurnOutcome::Completed
    }

    /// What it cost, in dollars with six places, rounded up so that nothing looks free that is not.
    pub fn cost_usd(&self) -> String {
        const MICRO: i64 = 1_000_000;
        let micros = self.cost_picos.div_euclid(MICRO) + i64::from(self.cost_picos.rem_euclid(MICRO) != 0);
        format!("{}.{:06}", micros / MICRO, micros % MICRO)
    }

    /// Whether anything was done that a second attempt would do twice.
    pub(super) fn acted(&self) -> bool {
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

/// The words of an item, if it is a message of the agent itself and not of one that it sent.
fn words(item: &protocol::Item) -> Option<String> {
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
    fn money_is_never_rounded_to_nothing() {
        let cost = |cost_picos| {
            let session = SessionId::new("s").unwrap();
            AgentResponse { cost_picos, ..AgentResponse::of(session, TurnOutcome::Completed, Vec::new()) }.cost_usd()
        };
        assert_eq!(cost(0), "0.000000");
        assert_eq!(cost(1), "0.000001");
        assert_eq!(cost(2_500_000_000_000), "2.500000");
    }
}
