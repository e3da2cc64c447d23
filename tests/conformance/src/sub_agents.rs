//! Sub-agents: their items are below their call, and their end does not end the turn.

use protocol::{Event, EventBody, Item, ItemKind, TurnOutcome};

use crate::model_script::{SUB_AGENT_ANSWER, prompts};
use crate::scenario_session::{Scenario, TurnEvents, UserReply};

pub(crate) async fn sub_agent_items_are_below_its_call(scenario: Scenario) {
    if scenario.agent.sub_agent_call().is_none() {
        return;
    }
    let session = scenario.open().await;
    let turn = session.turn(prompts::SUB_AGENT, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    let call = completed(&turn).find(|item| item.kind == ItemKind::ToolCall && item.parent_id.is_none());
    let call = &call.unwrap_or_else(|| panic!("no sub-agent was started: {turn:?}")).item_id;
    // Agents report either the messages of a sub-agent or its prompt.
    let inner = |item: &&Item| item.parent_id.as_ref() == Some(call) && item.kind != ItemKind::ToolResult;
    assert!(completed(&turn).any(|item| inner(&item)), "nothing is reported below the call: {turn:?}");
    let is_sub_agent_message = |item: &&Item| item.kind == ItemKind::Message && text(item).contains(SUB_AGENT_ANSWER);
    assert!(
        completed(&turn).filter(is_sub_agent_message).all(|item| inner(&item)),
        "a message of the sub-agent is not below its call: {turn:?}"
    );
    let own = completed(&turn).filter(|item| item.kind == ItemKind::Message && item.parent_id.is_none());
    assert!(own.map(text).any(|words| words.ends_with("That is all.")), "the agent was cut short: {turn:?}");
    let next = session.turn("hello", UserReply::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    let ends = |event: &Event| matches!(event.draft.body, EventBody::TurnEnded(_));
    assert_eq!(session.events().iter().filter(|event| ends(event)).count(), 2, "{next:?}");
    session.close().await;
}

fn completed(turn: &TurnEvents) -> impl Iterator<Item = &Item> {
    turn.events.iter().filter_map(|event| match &event.draft.body {
        EventBody::ItemCompleted(completed) => Some(&completed.item),
        _ => None,
    })
}

fn text(item: &Item) -> String {
    let texts = item.content.iter().filter_map(|part| match part {
        protocol::ContentPart::Text { text } => Some(text.as_str()),
        _ => None,
    });
    texts.collect()
}
