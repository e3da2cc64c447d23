//! Messages: answers, memory, long answers and queued messages.

use protocol::{Attachment, EventBody, TurnId, TurnOutcome};
use session::UserMessage;

use crate::model_script::{LONG_TEXT_CHARS, prompts};
use crate::scenario_session::{Scenario, TurnEvents, UserReply};

pub(crate) async fn agent_answers_and_remembers(scenario: Scenario) {
    let session = scenario.open().await;
    let first = session.turn(prompts::REMEMBER, UserReply::Yes).await;
    assert_eq!(first.outcome(), Some(TurnOutcome::Completed), "{first:?}");
    assert_eq!(first.text(), format!("You said: {}", prompts::REMEMBER), "{first:?}");
    assert!(first.has(|event| matches!(event, EventBody::LlmCall(_))), "{first:?}");
    let second = session.turn(prompts::RECALL, UserReply::Yes).await;
    assert_eq!(second.outcome(), Some(TurnOutcome::Completed), "{second:?}");
    assert_eq!(second.text(), "It was 7391.", "{second:?}");
    session.close().await;
}

pub(crate) async fn session_continues_after_a_restart(scenario: Scenario) {
    let session = scenario.open().await;
    let first = session.turn(prompts::REMEMBER, UserReply::Yes).await;
    assert_eq!(first.outcome(), Some(TurnOutcome::Completed), "{first:?}");
    let session = session.restart().await;
    let second = session.turn(prompts::RECALL, UserReply::Yes).await;
    assert_eq!(second.outcome(), Some(TurnOutcome::Completed), "{second:?}");
    // The mock keeps its memory in its process, the other agents in files.
    let expected = if session.agent.name == "mock" { "You said" } else { "It was 7391." };
    assert!(second.text().contains(expected), "{second:?}");
    session.close().await;
}

pub(crate) async fn huge_answer_arrives_complete(scenario: Scenario) {
    let session = scenario.open().await;
    let turn = session.turn(prompts::LONG_TEXT, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed));
    // Some agents trim the end of a text.
    assert!(turn.text().trim_end().len() >= LONG_TEXT_CHARS - 32, "{} characters came", turn.text().len());
    session.close().await;
}

pub(crate) async fn message_during_a_turn_is_queued(scenario: Scenario) {
    let session = scenario.open().await;
    let first = session.send(prompts::LONG_TURN).await;
    session.until(first.sequence, |event| matches!(event, EventBody::ItemDelta(_))).await;
    let second = session.send("hello").await;
    assert!(second.queued && second.turn_id != first.turn_id, "{second:?}");
    let ends = |turn: &TurnId| {
        let turn = Some(turn.clone());
        move |event: &EventBody| matches!(event, EventBody::TurnEnded(ended) if ended.turn_id == turn)
    };
    let first_end = session.until(first.sequence, ends(&first.turn_id)).await;
    session.until(first_end.sequence, ends(&second.turn_id)).await;
    let events = session.events();
    let of = |turn: &TurnId| {
        let own = events.iter().filter(|event| event.draft.turn_id.as_ref() == Some(turn)).cloned();
        TurnEvents { text: turn.to_string(), events: own.collect() }
    };
    let (long, short) = (of(&first.turn_id), of(&second.turn_id));
    for turn in [&long, &short] {
        assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    }
    assert!(long.text().ends_with("That is all."), "it was cut short: {long:?}");
    assert_eq!(short.text(), "You said: hello", "{short:?}");
    let waited =
        |event: &EventBody| matches!(event, EventBody::MessageQueued(queued) if queued.turn_id == second.turn_id);
    assert!(events.iter().any(|event| waited(&event.draft.body)), "{short:?}");
    let speaks = short.events.iter().find(|event| matches!(event.draft.body, EventBody::ItemStarted(_))).unwrap();
    assert!(first_end.sequence < speaks.sequence, "it began before the other ended: {short:?}");
    session.close().await;
}

/// Reasoning and an attached file are reported if the agent supports them, and disturb no other agent.
pub(crate) async fn reasoning_and_attachment_are_accepted(scenario: Scenario) {
    let session = scenario.open().await;
    let attachments = vec![Attachment { path: "notes.txt".to_owned(), mime: None, filename: None }];
    let message = UserMessage { attachments, ..UserMessage::text(prompts::THINK) };
    let turn = session.send_and_wait(message, UserReply::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.text().contains("So it is"), "{turn:?}");
    session.close().await;
}

/// Shows every kind of item.
pub(crate) async fn mock_demo_shows_every_item(scenario: Scenario) {
    if scenario.agent.name != "mock" {
        return;
    }
    let session = scenario.open().await;
    let demo = session.turn("/demo", UserReply::Yes).await;
    assert_eq!(demo.outcome(), Some(TurnOutcome::Completed), "{demo:?}");
    session.close().await;
}
