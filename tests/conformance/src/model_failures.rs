//! Failures of the model: the turn ends, and the session continues.

use protocol::{EventBody, TurnOutcome};

use crate::model_script::prompts;
use crate::scenario_session::{MAX_REQUESTS, Scenario, ScenarioSession, TurnEvents, UserReply, short_timeouts};

pub(crate) async fn refusing_model_fails_the_turn(scenario: Scenario) {
    let session = scenario.open().await;
    let turn = session.turn(prompts::UNAUTHORIZED, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Failed), "{turn:?}");
    assert!(turn.has(|event| matches!(event, EventBody::Error(_))), "{turn:?}");
    check_next_turn(session).await;
}

pub(crate) async fn transient_model_error_is_retried(scenario: Scenario) {
    let session = scenario.open().await;
    for (prompt, gives_up) in [(prompts::RATE_LIMITED, &["mock", "codex"][..]), (prompts::BROKEN, &["mock"])] {
        let turn = session.turn(prompt, UserReply::Yes).await;
        // An agent without retries reports the error and ends the turn.
        let gives_up = gives_up.contains(&session.agent.name);
        let expected = if gives_up { TurnOutcome::Failed } else { TurnOutcome::Completed };
        assert_eq!(turn.outcome(), Some(expected), "{turn:?}");
        assert_eq!(turn.has(|event| matches!(event, EventBody::Error(_))), gives_up, "{turn:?}");
    }
    check_next_turn(session).await;
}

pub(crate) async fn spent_budget_is_not_retried(scenario: Scenario) {
    let session = scenario.open_without_budget().await;
    let turn = session.turn("hello", UserReply::Yes).await;
    assert!(matches!(turn.outcome(), Some(TurnOutcome::Failed | TurnOutcome::Completed)), "{turn:?}");
    let refused =
        session.events().iter().filter(|event| matches!(event.draft.body, EventBody::BudgetExceeded(_))).count();
    assert!(refused >= 1, "{turn:?}");
    // Retrying after a refusal would hide it for minutes. The other agents have their own retry rules.
    if ["mock", "claude"].contains(&session.agent.name) {
        assert_eq!(refused, 1, "{turn:?}");
    }
    assert!(!session.events().iter().any(|event| matches!(event.draft.body, EventBody::LlmCall(_))), "{turn:?}");
    session.close().await;
}

pub(crate) async fn invalid_model_response_ends_the_turn(scenario: Scenario) {
    let session = scenario.open().await;
    let turn = session.turn(prompts::INVALID, UserReply::Yes).await;
    assert!(turn.outcome().is_some(), "{turn:?}");
    check_no_unparsed_output(&turn);
    // One agent retries without limit until its budget stops it.
    if turn.has(|event| matches!(event, EventBody::BudgetExceeded(_))) {
        assert_eq!(turn.outcome(), Some(TurnOutcome::Failed), "{turn:?}");
        let calls = session.events().iter().filter(|event| matches!(event.draft.body, EventBody::LlmCall(_))).count();
        assert!(calls as u64 <= MAX_REQUESTS, "{calls} calls of {MAX_REQUESTS} were let through");
        return session.close().await;
    }
    check_next_turn(session).await;
}

pub(crate) async fn truncated_model_response_ends_the_turn(scenario: Scenario) {
    let session = scenario.open().await;
    let turn = session.turn(prompts::TRUNCATED, UserReply::Yes).await;
    assert!(turn.outcome().is_some(), "{turn:?}");
    check_no_unparsed_output(&turn);
    check_next_turn(session).await;
}

pub(crate) async fn silent_model_times_out(scenario: Scenario) {
    let mode = scenario.agent.mode();
    let patience = short_timeouts(&scenario.agent);
    let session = scenario.open_with(mode, patience).await;
    let hello = session.turn("hello", UserReply::Yes).await;
    assert_eq!(hello.outcome(), Some(TurnOutcome::Completed), "{hello:?}");
    let turn = session.turn(prompts::HANG, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::TimedOut), "{turn:?}");
    session.close().await;
}

/// Checks that no invalid text of the model was recorded as output of the agent.
fn check_no_unparsed_output(turn: &TurnEvents) {
    assert!(!turn.has(|event| matches!(event, EventBody::AgentUnparsed(_))), "{turn:?}");
}

async fn check_next_turn(session: ScenarioSession) {
    let next = session.turn("hello", UserReply::Yes).await;
    assert_eq!(next.outcome(), Some(TurnOutcome::Completed), "{next:?}");
    assert!(next.text().contains("You said: hello"), "{next:?}");
    session.close().await;
}
