//! Permissions, questions and interrupts.

use std::time::{Duration, Instant};

use protocol::{EventBody, TurnOutcome};
use serde_json::Value;

use crate::model_script::{COMMAND_OUTPUT, OTHER_OUTPUT, prompts};
use crate::scenario_session::{Scenario, UserReply};

/// Time limit for an agent to stop after an interrupt.
const INTERRUPT_LIMIT: Duration = Duration::from_secs(8);

pub(crate) async fn interrupt_withdraws_the_permission(scenario: Scenario) {
    if !scenario.agent.asks() {
        return;
    }
    let session = scenario.open().await;
    let sent = session.send(prompts::COMMAND).await;
    session.until(sent.sequence, |event| matches!(event, EventBody::PermissionRequested(_))).await;
    session.sessions.interrupt(&session.id).await.unwrap();
    let resolved = |event: &EventBody| matches!(event, EventBody::PermissionResolved(_));
    let ended = |event: &EventBody| matches!(event, EventBody::TurnEnded(_));
    let resolved = session.until(sent.sequence, resolved).await;
    let ended = session.until(sent.sequence, ended).await;
    assert!(resolved.sequence < ended.sequence);
    let EventBody::TurnEnded(turn) = ended.draft.body else { unreachable!() };
    assert_eq!(turn.outcome, Some(TurnOutcome::Interrupted));
    let next = session.turn("hello", UserReply::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    session.close().await;
}

pub(crate) async fn always_allowed_command_is_not_asked_again(scenario: Scenario) {
    if !scenario.agent.asks() {
        return;
    }
    let session = scenario.open().await;
    let first = session.turn(prompts::COMMAND, UserReply::Always).await;
    assert!(first.text().contains(COMMAND_OUTPUT) && first.permission_count() == 1, "{first:?}");
    // Later requests are denied, so the command runs only because of the earlier answer.
    let again = session.turn(prompts::COMMAND, UserReply::No).await;
    assert_eq!(again.outcome(), Some(TurnOutcome::Completed), "{again:?}");
    assert!(again.text().contains(COMMAND_OUTPUT) && again.permission_count() == 0, "{again:?}");
    assert!(again.has(|event| matches!(event, EventBody::PermissionResolved(_))), "no resolved event: {again:?}");
    let other = session.turn(prompts::OTHER_COMMAND, UserReply::No).await;
    assert!(!other.text().contains(OTHER_OUTPUT) && other.permission_count() == 1, "{other:?}");
    assert_eq!(session.sessions.grants(&session.id).await.unwrap().len(), 1, "{other:?}");
    session.close().await;
}

pub(crate) async fn question_is_answered(scenario: Scenario) {
    let Some(mode) = scenario.agent.asking_mode() else { return };
    let session = scenario.open_with(mode, session::SessionTimeouts::default()).await;
    let turn = session.turn(prompts::QUESTION, UserReply::Yes).await;
    assert!(turn.has(|event| matches!(event, EventBody::QuestionRequested(_))), "{turn:?}");
    assert!(turn.has(|event| matches!(event, EventBody::QuestionResolved(_))), "{turn:?}");
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.text().contains("Blue"), "{turn:?}");
    session.close().await;
}

/// Names of tools for questions.
const QUESTIONS: &[&str] = &["ask_user", "ask_user_question", "askuserquestion", "question", "request_user_input"];

/// An agent without questions offers its model no tool for them. If it starts to, support must be added.
pub(crate) async fn agent_without_questions_offers_no_question_tool(scenario: Scenario) {
    let asks = scenario.agent.asking_mode().is_some();
    // The mock asks questions; its outline is the reference for a session without questions.
    if asks && scenario.agent.name != "mock" {
        return;
    }
    let session = scenario.open().await;
    let turn = session.turn("hello", UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    let requests = session.requests();
    let names: Vec<String> = requests.iter().flat_map(tool_names).collect();
    assert!(!names.is_empty(), "its model was offered no tools at all: {turn:?}");
    let asking: Vec<_> = names.iter().filter(|name| QUESTIONS.contains(&name.to_lowercase().as_str())).collect();
    assert!(asks || asking.is_empty(), "its model is offered {asking:?}");
    session.close().await;
}

/// Returns the names of the tools in a request of any vendor's API.
fn tool_names(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().into_iter().flatten();
    let each = tools.flat_map(|tool| match tool["functionDeclarations"].as_array() {
        Some(declared) => declared.clone(),
        None => vec![tool.clone()],
    });
    each.filter_map(|tool| Some(tool["name"].as_str().or(tool["function"]["name"].as_str())?.to_owned())).collect()
}

pub(crate) async fn turn_can_be_interrupted(scenario: Scenario) {
    let session = scenario.open().await;
    let sent = session.send(prompts::SLOW).await;
    let speaks = |event: &EventBody| matches!(event, EventBody::ItemDelta(delta) if !delta.delta.is_empty());
    let spoke = session.until(sent.sequence, speaks).await;
    let started = Instant::now();
    session.sessions.interrupt(&session.id).await.unwrap();
    let ended = session.until(spoke.sequence, |event| matches!(event, EventBody::TurnEnded(_))).await;
    assert!(started.elapsed() < INTERRUPT_LIMIT, "it took {:?}", started.elapsed());
    let EventBody::TurnEnded(turn) = ended.draft.body else { unreachable!() };
    assert_eq!(turn.outcome, Some(TurnOutcome::Interrupted));
    let next = session.turn("hello", UserReply::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    assert!(next.text().contains("You said: hello"), "{next:?}");
    session.close().await;
}
