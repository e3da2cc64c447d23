//! Words: an answer, a memory, a long answer, a message that waits.

use protocol::{Attachment, EventBody, TurnId, TurnOutcome};
use session::UserMessage;

use crate::script::{MUCH_CHARS, say};
use crate::stage::{Answer, Turn, World};

pub(crate) async fn it_answers_and_remembers(world: World) {
    let stage = world.open().await;
    let first = stage.turn(say::NUMBER, Answer::Yes).await;
    assert_eq!(first.outcome(), Some(TurnOutcome::Completed), "{first:?}");
    assert_eq!(first.words(), format!("You said: {}", say::NUMBER), "{first:?}");
    assert!(first.has(|event| matches!(event, EventBody::LlmCall(_))), "{first:?}");
    let second = stage.turn(say::WHICH, Answer::Yes).await;
    assert_eq!(second.outcome(), Some(TurnOutcome::Completed), "{second:?}");
    assert_eq!(second.words(), "It was 7391.", "{second:?}");
    stage.close().await;
}

pub(crate) async fn it_goes_on_after_a_restart(world: World) {
    let stage = world.open().await;
    let first = stage.turn(say::NUMBER, Answer::Yes).await;
    assert_eq!(first.outcome(), Some(TurnOutcome::Completed), "{first:?}");
    let stage = stage.restart().await;
    let second = stage.turn(say::WHICH, Answer::Yes).await;
    assert_eq!(second.outcome(), Some(TurnOutcome::Completed), "{second:?}");
    // The mock's memory is its process; the others keep theirs in files.
    let expected = if stage.player.agent == "mock" { "You said" } else { "It was 7391." };
    assert!(second.words().contains(expected), "{second:?}");
    stage.close().await;
}

pub(crate) async fn a_huge_answer_arrives_whole(world: World) {
    let stage = world.open().await;
    let turn = stage.turn(say::MUCH, Answer::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed));
    // Some agents trim the end of what is said.
    assert!(turn.words().trim_end().len() >= MUCH_CHARS - 32, "{} characters came", turn.words().len());
    stage.close().await;
}

pub(crate) async fn a_message_in_the_middle_of_a_turn_is_answered_after_it(world: World) {
    let stage = world.open().await;
    let first = stage.send(say::AWHILE).await;
    stage.until(first.sequence, |event| matches!(event, EventBody::ItemDelta(_))).await;
    let second = stage.send("hello").await;
    assert!(second.queued && second.turn_id != first.turn_id, "{second:?}");
    let ends = |turn: &TurnId| {
        let turn = Some(turn.clone());
        move |event: &EventBody| matches!(event, EventBody::TurnEnded(ended) if ended.turn_id == turn)
    };
    let first_end = stage.until(first.sequence, ends(&first.turn_id)).await;
    stage.until(first_end.sequence, ends(&second.turn_id)).await;
    let events = stage.events();
    let of = |turn: &TurnId| {
        let own = events.iter().filter(|event| event.draft.turn_id.as_ref() == Some(turn)).cloned();
        Turn { text: turn.to_string(), events: own.collect() }
    };
    let (long, short) = (of(&first.turn_id), of(&second.turn_id));
    for turn in [&long, &short] {
        assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    }
    assert!(long.words().ends_with("That is all."), "it was cut short: {long:?}");
    assert_eq!(short.words(), "You said: hello", "{short:?}");
    let waited =
        |event: &EventBody| matches!(event, EventBody::MessageQueued(queued) if queued.turn_id == second.turn_id);
    assert!(events.iter().any(|event| waited(&event.draft.body)), "{short:?}");
    let speaks = short.events.iter().find(|event| matches!(event.draft.body, EventBody::ItemStarted(_))).unwrap();
    assert!(first_end.sequence < speaks.sequence, "it began before the other ended: {short:?}");
    stage.close().await;
}

/// A thought and a file that goes with the words: shown by those who can, and in nobody's way.
pub(crate) async fn it_thinks_aloud(world: World) {
    let stage = world.open().await;
    let attachments = vec![Attachment { path: "notes.txt".to_owned(), mime: None, filename: None }];
    let message = UserMessage { attachments, ..UserMessage::text(say::THINK) };
    let turn = stage.turn_of(message, Answer::Yes).await;
    assert_eq!(turn.outcome(), Some(TurnOutcome::Completed), "{turn:?}");
    assert!(turn.words().contains("So it is"), "{turn:?}");
    stage.close().await;
}

/// Everything an agent could ever show.
pub(crate) async fn the_mock_shows_everything(world: World) {
    if world.player.agent != "mock" {
        return;
    }
    let stage = world.open().await;
    let demo = stage.turn("/demo", Answer::Yes).await;
    assert_eq!(demo.outcome(), Some(TurnOutcome::Completed), "{demo:?}");
    stage.close().await;
}
