//! Messages, and the turns that answer them.

use std::time::Duration;

use protocol::{ContentPart, EventBody, SessionId, TurnId, TurnOutcome};
use session::{SessionError, SessionOptions, SessionTimeouts, UserMessage, WhenBusy};

use crate::stage::{Stage, id, kinds, outcome, request, type_of};

crate::trials!(
    turn_is_recorded_from_start_to_end,
    model_call_belongs_to_its_turn,
    second_message_is_queued,
    second_message_can_be_refused,
    steering_message_interrupts_the_turn,
    interrupt_ends_only_the_turn,
    agent_that_does_not_stop_is_killed_and_restarted,
    silent_turn_times_out,
    turn_times_out_by_its_policy,
    repeated_message_is_accepted_once,
    ten_megabyte_line_is_read,
    ten_megabytes_of_noise_are_recorded_by_size,
    longer_line_is_truncated_and_recorded,
    noise_is_recorded_and_the_session_continues,
    queue_is_bounded,
    full_queue_accepts_steering_messages,
    steering_messages_are_bounded,
);

async fn turn_is_recorded_from_start_to_end() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let events = stage.turn(&session, "/echo hello").await;
    let turn = events[0].draft.turn_id.clone().unwrap();
    assert!(events.iter().all(|event| event.draft.turn_id.as_ref() == Some(&turn)));
    let agent_only: Vec<_> = kinds(&events).into_iter().filter(|kind| !kind.starts_with("anthropic_")).collect();
    insta::assert_debug_snapshot!(agent_only);
    assert_eq!(outcome(&events), Some(TurnOutcome::Completed));
    assert!(stage.sessions.get(&session).unwrap().native_session_id.unwrap().starts_with("mock-"));
}

async fn model_call_belongs_to_its_turn() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let events = stage.turn(&session, "hello").await;
    let asked = events.iter().find(|event| type_of(event) == "anthropic_request").expect("no model call");
    assert_eq!(asked.draft.turn_id, events[0].draft.turn_id);
}

async fn second_message_is_queued() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let first = stage.say(&session, "/slow 3").await;
    let second = stage.say(&session, "/echo second").await;
    let third = stage.say(&session, "/echo third").await;
    assert!(!first.queued && second.queued && third.queued);
    let events = stage.until(&session, 0, |event| is_end_of(event, &third.turn_id)).await;
    let expected = [&first.turn_id, &first.turn_id, &second.turn_id, &second.turn_id, &third.turn_id, &third.turn_id];
    assert_eq!(turns_of(&events).iter().collect::<Vec<_>>(), expected);
}

async fn second_message_can_be_refused() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    stage.say(&session, "/slow 3").await;
    let refused = UserMessage { when_busy: WhenBusy::Refuse, ..UserMessage::text("/echo no") };
    assert!(matches!(stage.sessions.send(&session, refused).await, Err(SessionError::TurnRunning(_))));
}

async fn steering_message_interrupts_the_turn() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let first = stage.say(&session, "/slow 1000").await;
    let waiting = stage.say(&session, "/echo later").await;
    let steering = UserMessage { when_busy: WhenBusy::Steer, ..UserMessage::text("/echo now") };
    let steering = stage.sessions.send(&session, steering).await.unwrap();
    let events = stage.until(&session, 0, |event| is_end_of(event, &waiting.turn_id)).await;
    let mut turns = turns_of(&events);
    turns.dedup();
    assert_eq!(turns, [first.turn_id.clone(), steering.turn_id, waiting.turn_id]);
    let first: Vec<_> = events.into_iter().filter(|event| event.draft.turn_id == Some(first.turn_id.clone())).collect();
    assert_eq!(outcome(&first), Some(TurnOutcome::Interrupted));
}

async fn interrupt_ends_only_the_turn() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let slow = stage.say(&session, "/slow 1000").await;
    stage.sessions.interrupt(&session).await.unwrap();
    let events = stage.until(&session, slow.sequence, |event| is_end_of(event, &slow.turn_id)).await;
    assert_eq!(outcome(&events), Some(TurnOutcome::Interrupted));
    stage.sessions.interrupt(&session).await.unwrap();
    assert_eq!(outcome(&stage.turn(&session, "/echo still here").await), Some(TurnOutcome::Completed));
}

async fn agent_that_does_not_stop_is_killed_and_restarted() {
    let stage = Stage::with(SessionTimeouts { stop_grace: Duration::from_millis(50), ..SessionTimeouts::default() });
    let session = stage.session("s1").await;
    let native = native_of(&stage, &session).await;
    let hung = stage.say(&session, "/hang").await;
    stage.sessions.interrupt(&session).await.unwrap();
    let events = stage.until(&session, hung.sequence, |event| is_end_of(event, &hung.turn_id)).await;
    assert_eq!(outcome(&events), Some(TurnOutcome::Interrupted));
    let events = stage.turn(&session, "/echo again").await;
    assert_eq!(outcome(&events), Some(TurnOutcome::Completed));
    assert_eq!(events[0].draft.turn_id, Some(TurnId::numbered(2, 1)));
    assert_eq!(native_of(&stage, &session).await, native, "the agent's own session was not resumed");
}

async fn silent_turn_times_out() {
    let brief = Duration::from_millis(50);
    let stage = Stage::with(SessionTimeouts { silence: brief, stop_grace: brief, ..SessionTimeouts::default() });
    let session = stage.session("s1").await;
    assert_eq!(outcome(&stage.turn(&session, "/hang").await), Some(TurnOutcome::TimedOut));
}

async fn turn_times_out_by_its_policy() {
    let stage = Stage::new();
    let options = SessionOptions {
        policy: Some(testkit::unconfined_policy(&[("timeout: 30m", "timeout: 1s")])),
        ..SessionOptions::default()
    };
    let session = stage.sessions.create(id("s1"), request(), options).await.unwrap().session_id;
    assert_eq!(outcome(&stage.turn(&session, "/hang").await), Some(TurnOutcome::TimedOut));
}

async fn repeated_message_is_accepted_once() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let message = UserMessage { client_message_id: Some("m1".to_owned()), ..UserMessage::text("/echo once") };
    let first = stage.sessions.send(&session, message.clone()).await.unwrap();
    let again = stage.sessions.send(&session, message).await.unwrap();
    assert_eq!(first, again);
    stage.turn(&session, "/echo other").await;
    let started = stage.events(&session).iter().filter(|event| type_of(event) == "turn.started").count();
    assert_eq!(started, 2);
}

async fn ten_megabyte_line_is_read() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let words = "x".repeat(10 * 1024 * 1024);
    let events = stage.turn(&session, &format!("/echo {words}")).await;
    assert_eq!(outcome(&events), Some(TurnOutcome::Completed));
    let said = events.iter().rev().find_map(|event| match &event.draft.body {
        EventBody::ItemCompleted(completed) => match completed.item.content.first() {
            Some(ContentPart::Text { text }) => Some(text.clone()),
            _ => None,
        },
        _ => None,
    });
    assert!(said.unwrap() == words, "the text was changed");
}

async fn ten_megabytes_of_noise_are_recorded_by_size() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let events = stage.turn(&session, "/bigline").await;
    assert_eq!(outcome(&events), Some(TurnOutcome::Completed));
    let noise = events.iter().find(|event| type_of(event) == "agent.unparsed").unwrap();
    assert_eq!(noise.draft.raw.as_ref().unwrap()["bytes"], 10 * 1024 * 1024);
}

async fn longer_line_is_truncated_and_recorded() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let events = stage.turn(&session, "/bigline 20000000").await;
    assert_eq!(outcome(&events), Some(TurnOutcome::Completed));
    let error = events.iter().find_map(|event| match &event.draft.body {
        EventBody::AgentUnparsed(unparsed) => Some(unparsed.error.clone()),
        _ => None,
    });
    assert!(error.unwrap().contains("were dropped"));
}

async fn noise_is_recorded_and_the_session_continues() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let events = stage.turn(&session, "/garbage").await;
    assert!(kinds(&events).contains(&"agent.unparsed".to_owned()));
    assert_eq!(outcome(&stage.turn(&session, "/echo on").await), Some(TurnOutcome::Completed));
}

async fn queue_is_bounded() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    stage.say(&session, "/slow 1000").await;
    let full = fill(&stage, &session, WhenBusy::Queue).await;
    assert!(matches!(full, SessionError::QueueFull { waiting: 64, .. }), "{full}");
}

async fn full_queue_accepts_steering_messages() {
    let stage = Stage::new();
    let session = stage.session("s1").await;
    let asked = stage.say(&session, "/permission").await;
    stage.until_type(&session, asked.sequence, "permission.requested").await;
    fill(&stage, &session, WhenBusy::Queue).await;
    let steering = UserMessage { when_busy: WhenBusy::Steer, ..UserMessage::text("/echo now") };
    let steering = stage.sessions.send(&session, steering).await.unwrap();
    let events = stage.until(&session, steering.sequence, |event| is_end_of(event, &steering.turn_id)).await;
    assert_eq!(turns_of(&events), [asked.turn_id, steering.turn_id.clone(), steering.turn_id]);
    assert_eq!(outcome(&events), Some(TurnOutcome::Completed));
}

async fn steering_messages_are_bounded() {
    // The agent never stops, so nothing leaves the queue.
    let stage = Stage::with(SessionTimeouts { stop_grace: Duration::from_secs(60 * 60), ..SessionTimeouts::default() });
    let session = stage.session("s1").await;
    stage.say(&session, "/hang").await;
    fill(&stage, &session, WhenBusy::Queue).await;
    let full = fill(&stage, &session, WhenBusy::Steer).await;
    assert!(matches!(full, SessionError::QueueFull { waiting: 72, .. }), "{full}");
}

/// Sends messages until one is refused. Returns the error.
async fn fill(stage: &Stage, session: &SessionId, when_busy: WhenBusy) -> SessionError {
    loop {
        let message = UserMessage { when_busy, ..UserMessage::text("/echo more") };
        if let Err(error) = stage.sessions.send(session, message).await {
            return error;
        }
    }
}

fn is_end_of(event: &protocol::Event, turn: &TurnId) -> bool {
    event.draft.turn_id.as_ref() == Some(turn) && matches!(event.draft.body, EventBody::TurnEnded(_))
}

/// Returns the turn of each start and end, in order.
fn turns_of(events: &[protocol::Event]) -> Vec<TurnId> {
    let ends =
        |event: &&protocol::Event| matches!(event.draft.body, EventBody::TurnStarted(_) | EventBody::TurnEnded(_));
    events.iter().filter(ends).filter_map(|event| event.draft.turn_id.clone()).collect()
}

async fn native_of(stage: &Stage, session: &SessionId) -> String {
    stage.turn(session, "/echo who").await.last().unwrap().draft.native_session_id.clone().unwrap()
}
