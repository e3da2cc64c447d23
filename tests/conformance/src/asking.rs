//! Permissions that last or are withdrawn, questions, interrupts.

use std::time::{Duration, Instant};

use protocol::{EventBody, TurnOutcome};
use serde_json::Value;

use crate::script::{COMMAND_OUTPUT, OTHER_OUTPUT, say};
use crate::stage::{Answer, World};

/// An agent that was asked to stop has stopped, or was ended, after this.
const STOPPED: Duration = Duration::from_secs(8);

pub(crate) async fn a_permission_is_withdrawn_with_its_turn(world: World) {
    if !world.player.asks() {
        return;
    }
    let stage = world.open().await;
    let sent = stage.send(say::COMMAND).await;
    stage.until(sent.sequence, |event| matches!(event, EventBody::PermissionRequested(_))).await;
    stage.sessions.interrupt(&stage.id).await.unwrap();
    let resolved = |event: &EventBody| matches!(event, EventBody::PermissionResolved(_));
    let ended = |event: &EventBody| matches!(event, EventBody::TurnEnded(_));
    let resolved = stage.until(sent.sequence, resolved).await;
    let ended = stage.until(sent.sequence, ended).await;
    assert!(resolved.sequence < ended.sequence);
    let EventBody::TurnEnded(turn) = ended.draft.body else { unreachable!() };
    assert_eq!(turn.outcome, Some(TurnOutcome::Interrupted));
    let next = stage.turn("hello", Answer::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    stage.close().await;
}

pub(crate) async fn what_is_always_allowed_is_not_asked_again(world: World) {
    if !world.player.asks() {
        return;
    }
    let stage = world.open().await;
    let first = stage.turn(say::COMMAND, Answer::Always).await;
    assert!(first.words().contains(COMMAND_OUTPUT) && first.asked() == 1, "{first:?}");
    // Whatever a person is asked from here on is refused: the command runs because it was granted.
    let again = stage.turn(say::COMMAND, Answer::No).await;
    assert_eq!(again.outcome(), Some(TurnOutcome::Completed), "{again:?}");
    assert!(again.words().contains(COMMAND_OUTPUT) && again.asked() == 0, "{again:?}");
    assert!(again.has(|event| matches!(event, EventBody::PermissionResolved(_))), "nothing says why: {again:?}");
    let other = stage.turn(say::OTHER_COMMAND, Answer::No).await;
    assert!(!other.words().contains(OTHER_OUTPUT) && other.asked() == 1, "{other:?}");
    assert_eq!(stage.sessions.grants(&stage.id).await.unwrap().len(), 1, "{other:?}");
    stage.close().await;
}

pub(crate) async fn a_question_is_answered(world: World) {
    let Some(mode) = world.player.asking_mode() else { return };
    let stage = world.open_with(mode, session::SessionTimeouts::default()).await;
    let turn = stage.turn(say::QUESTION, Answer::Yes).await;
    assert!(turn.has(|event| matches!(event, EventBody::QuestionRequested(_))), "{turn:?}");
    assert!(turn.has(|event| matches!(event, EventBody::QuestionResolved(_))), "{turn:?}");
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.words().contains("Blue"), "{turn:?}");
    stage.close().await;
}

/// Names of tools with which agents let their models ask a person.
const QUESTIONS: &[&str] = &["ask_user", "ask_user_question", "askuserquestion", "question", "request_user_input"];

/// An agent of which we say that it asks no questions offers its model no tool for them. Once it does, it is to be routed.
pub(crate) async fn who_asks_no_questions_offers_none(world: World) {
    let asks = world.player.asking_mode().is_some();
    // The mock asks, and shows the form of a session in which nobody does.
    if asks && world.player.agent != "mock" {
        return;
    }
    let stage = world.open().await;
    let turn = stage.turn("hello", Answer::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    let requests = stage.requests();
    let names: Vec<String> = requests.iter().flat_map(tool_names).collect();
    assert!(!names.is_empty(), "its model was offered no tools at all: {turn:?}");
    let asking: Vec<_> = names.iter().filter(|name| QUESTIONS.contains(&name.to_lowercase().as_str())).collect();
    assert!(asks || asking.is_empty(), "its model is offered {asking:?}");
    stage.close().await;
}

/// The names of the tools in a request, whichever vendor's API it is for.
fn tool_names(request: &Value) -> Vec<String> {
    let tools = request["tools"].as_array().into_iter().flatten();
    let each = tools.flat_map(|tool| match tool["functionDeclarations"].as_array() {
        Some(declared) => declared.clone(),
        None => vec![tool.clone()],
    });
    each.filter_map(|tool| Some(tool["name"].as_str().or(tool["function"]["name"].as_str())?.to_owned())).collect()
}

pub(crate) async fn a_turn_can_be_interrupted(world: World) {
    let stage = world.open().await;
    let sent = stage.send(say::SLOWLY).await;
    let speaks = |event: &EventBody| matches!(event, EventBody::ItemDelta(delta) if !delta.delta.is_empty());
    let spoke = stage.until(sent.sequence, speaks).await;
    let asked = Instant::now();
    stage.sessions.interrupt(&stage.id).await.unwrap();
    let ended = stage.until(spoke.sequence, |event| matches!(event, EventBody::TurnEnded(_))).await;
    assert!(asked.elapsed() < STOPPED, "it took {:?}", asked.elapsed());
    let EventBody::TurnEnded(turn) = ended.draft.body else { unreachable!() };
    assert_eq!(turn.outcome, Some(TurnOutcome::Interrupted));
    let next = stage.turn("hello", Answer::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    assert!(next.words().contains("You said: hello"), "{next:?}");
    stage.close().await;
}
