//! Plans: plan mode changes nothing, and plans are reported.

use protocol::{ContentPart, EventBody, ItemKind, TurnOutcome};
use serde_json::json;
use session::SessionTimeouts;

use crate::model_script::{COMMAND_OUTPUT, prompts};
use crate::observed_capabilities;
use crate::scenario_session::{Scenario, TurnEvents, UserReply};

pub(crate) async fn plan_mode_changes_nothing(scenario: Scenario) {
    if !scenario.agent.plans() {
        return;
    }
    let session = scenario.open_with("plan", SessionTimeouts::default()).await;
    for words in [prompts::COMMAND, prompts::FILE] {
        let turn = session.turn(words, UserReply::Yes).await;
        assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
        assert!(!has_changes(&turn), "{turn:?}");
        assert!(!turn.text().contains(COMMAND_OUTPUT), "{turn:?}");
    }
    let next = session.turn("hello", UserReply::Yes).await;
    // One agent adds a prefix to prompts in plan mode.
    assert!(next.text().ends_with("hello"), "{next:?}");
    observed_capabilities::note_plan(session.agent.name);
    session.close().await;
}

/// The steps of a plan have the same JSON form for every agent.
pub(crate) async fn plan_is_reported(scenario: Scenario) {
    if scenario.agent.plan().is_none() {
        return;
    }
    let (mode, model) = (scenario.agent.mode(), scenario.agent.plan_model());
    let session =
        scenario.open_with_request(mode, SessionTimeouts::default(), |_, request| request.model = model).await;
    let turn = session.turn(prompts::PLAN, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.text().contains("It is planned."), "{turn:?}");
    let steps = json!([{"text": "look", "status": "completed"}, {"text": "write", "status": "in_progress"}]);
    let is_plan = |event: &EventBody| match event {
        EventBody::ItemCompleted(done) if done.item.kind == ItemKind::Status => match &done.item.content[..] {
            [ContentPart::Status { label, .. }, ContentPart::Json { json }] => label == "Plan" && *json == steps,
            _ => false,
        },
        _ => false,
    };
    assert_eq!(turn.has(is_plan), session.agent.reports_plans(), "{turn:?}");
    session.close().await;
}

fn has_changes(turn: &TurnEvents) -> bool {
    turn.has(|event| match event {
        EventBody::WorkspaceChanged(changed) => {
            !(changed.added.is_empty() && changed.modified.is_empty() && changed.deleted.is_empty())
        }
        _ => false,
    })
}
