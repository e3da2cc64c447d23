//! A model that does not do what a model should: the turn ends, and the session can go on.

use protocol::{EventBody, TurnOutcome};

use crate::script::say;
use crate::stage::{Answer, MAX_REQUESTS, Stage, Turn, World, impatient};

pub(crate) async fn a_model_that_refuses_fails_the_turn(world: World) {
    let stage = world.open().await;
    let turn = stage.turn(say::UNAUTHORIZED, Answer::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Failed), "{turn:?}");
    assert!(turn.has(|event| matches!(event, EventBody::Error(_))), "{turn:?}");
    goes_on(stage).await;
}

pub(crate) async fn a_model_that_stumbles_once_is_asked_again(world: World) {
    let stage = world.open().await;
    for (prompt, gives_up) in [(say::RATE_LIMITED, &["mock", "codex"][..]), (say::BROKEN, &["mock"])] {
        let turn = stage.turn(prompt, Answer::Yes).await;
        // Who does not ask again tells what happened and leaves the rest to the person.
        let gives_up = gives_up.contains(&stage.player.agent);
        let expected = if gives_up { TurnOutcome::Failed } else { TurnOutcome::Completed };
        assert_eq!(turn.outcome(), Some(expected), "{turn:?}");
        assert_eq!(turn.has(|event| matches!(event, EventBody::Error(_))), gives_up, "{turn:?}");
    }
    goes_on(stage).await;
}

pub(crate) async fn a_spent_budget_is_not_asked_twice(world: World) {
    let stage = world.open_penniless().await;
    let turn = stage.turn("hello", Answer::Yes).await;
    assert!(matches!(turn.outcome(), Some(TurnOutcome::Failed | TurnOutcome::Completed)), "{turn:?}");
    let refused =
        stage.events().iter().filter(|event| matches!(event.draft.body, EventBody::BudgetExceeded(_))).count();
    assert!(refused >= 1, "{turn:?}");
    // A client that tried a refusal again would hide it behind minutes of waiting. The others have clients of
    // their own make.
    if ["mock", "claude"].contains(&stage.player.agent) {
        assert_eq!(refused, 1, "{turn:?}");
    }
    assert!(!stage.events().iter().any(|event| matches!(event.draft.body, EventBody::LlmCall(_))), "{turn:?}");
    stage.close().await;
}

pub(crate) async fn a_model_that_talks_nonsense_ends_the_turn(world: World) {
    let stage = world.open().await;
    let turn = stage.turn(say::NONSENSE, Answer::Yes).await;
    assert!(turn.outcome().is_some(), "{turn:?}");
    says_nothing_wrong(&turn);
    // One agent asks without end: its budget stops it, and what it asks after that reaches no model.
    if turn.has(|event| matches!(event, EventBody::BudgetExceeded(_))) {
        assert_eq!(turn.outcome(), Some(TurnOutcome::Failed), "{turn:?}");
        let calls = stage.events().iter().filter(|event| matches!(event.draft.body, EventBody::LlmCall(_))).count();
        assert!(calls as u64 <= MAX_REQUESTS, "{calls} calls of {MAX_REQUESTS} were let through");
        return stage.close().await;
    }
    goes_on(stage).await;
}

pub(crate) async fn a_model_that_hangs_up_ends_the_turn(world: World) {
    let stage = world.open().await;
    let turn = stage.turn(say::CUT, Answer::Yes).await;
    assert!(turn.outcome().is_some(), "{turn:?}");
    says_nothing_wrong(&turn);
    goes_on(stage).await;
}

pub(crate) async fn a_model_that_hangs_ends_with_silence(world: World) {
    let mode = world.player.mode();
    let patience = impatient(&world.player);
    let stage = world.open_with(mode, patience).await;
    let hello = stage.turn("hello", Answer::Yes).await;
    assert_eq!(hello.outcome(), Some(TurnOutcome::Completed), "{hello:?}");
    let turn = stage.turn(say::HANG, Answer::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::TimedOut), "{turn:?}");
    stage.close().await;
}

/// Nothing the agent said is the nonsense itself.
fn says_nothing_wrong(turn: &Turn) {
    assert!(!turn.has(|event| matches!(event, EventBody::AgentUnparsed(_))), "{turn:?}");
}

async fn goes_on(stage: Stage) {
    let next = stage.turn("hello", Answer::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    assert!(next.words().contains("You said: hello"), "{next:?}");
    stage.close().await;
}
