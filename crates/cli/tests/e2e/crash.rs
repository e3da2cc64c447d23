//! kill -9 at any moment, with permissions pending: every reader saw a prefix of the journal, no answer is lost or applied
//! twice, and the next start closes all open turns, requests and items.

mod applied;
mod clients;
mod feed;

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use protocol::{Event, EventBody, Permission, PermissionId, PermissionStatus, TurnOutcome};
use testkit::{SeededRandom, VivFixture};

use self::clients::{ReceivedAnswers, SharedAnswers, answer, drive, send_as, wait_for};
use self::feed::Follower;
use crate::fixture::viv_fixture;
use crate::http::Client;
use crate::journal;
use crate::server::Server;

/// Number of kills; `VIV_TEST_ROUNDS` overrides it.
const ROUNDS: u64 = 40;
/// Maximum number of events that clients receive before a kill, independent of the machine's speed.
const MOMENTS: u64 = 400;
/// Maximum number of accepted answers before a kill.
const ANSWERS: u64 = 4;
/// Maximum additional delay in microseconds.
const DELAY_MICROS: u64 = 5_000;

#[test]
fn kill_9_loses_nothing_that_a_client_received() {
    let rounds = std::env::var("VIV_TEST_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let place = viv_fixture();
    let random = SeededRandom::from_environment();
    let (mut before, mut totals) = (ReceivedAnswers::default(), Totals::default());
    let (follower, mut answers, mut removed) = (Arc::new(Mutex::new(Follower::default())), Vec::new(), Vec::new());
    for round in 0..rounds {
        // Sometimes the server is killed during recovery.
        if random.below(8) == 0 {
            let server = Server::launch(&place);
            testkit::pause(Duration::from_micros(random.below(60_000)));
            server.kill(&place.data_dir());
        }
        let server = Server::start(&place);
        check(&place, &server.client(), &before, &mut totals);
        check_late_answers(&server.client(), &before);
        check_repeated_message(&place, &server.client(), &before);
        let following = feed::follow(&server.client(), &follower);
        if round % 10 == 0 {
            check_next_message(&server.client(), &before);
        }
        let old: Vec<String> = before.made.iter().cloned().collect();
        let shared = SharedAnswers::default();
        let clients = drive(&server.client(), round, &old, &shared);
        let (moments, answers_taken) = (random.below(MOMENTS), random.below(ANSWERS));
        wait_for(&server, round, (moments, answers_taken), &shared);
        testkit::pause(Duration::from_micros(random.below(DELAY_MICROS)));
        server.kill(&place.data_dir());
        for client in clients {
            client.join().unwrap();
        }
        following.join().unwrap();
        // A rejected late answer must not appear in the next check either.
        let late = std::mem::take(&mut before.unanswered);
        before = std::mem::take(&mut *shared.lock().unwrap());
        before.unanswered.extend(late.into_iter().filter(|(id, _)| before.used.contains(id)));
        answers.extend(before.answered.iter().cloned());
        removed.extend(before.removed.iter().cloned());
    }
    let server = Server::start(&place);
    check(&place, &server.client(), &before, &mut totals);
    check_next_message(&server.client(), &before);
    let mut follower = follower.lock().unwrap();
    check_all_rounds(&place, follower.read_all(&server.client()), &answers, &removed, &mut totals);
    totals.followed = follower.seen;
    server.stop();
    println!("{totals:?}");
    assert!(totals.are_enough(rounds), "too little was tested in {rounds} rounds: {totals:?}");
}

/// After all rounds: the follower of all sessions saw every event, every answer still holds, and agents ran each
/// allowed command once.
fn check_all_rounds(
    place: &VivFixture,
    followed: &HashMap<String, u64>,
    answers: &[(String, String, &'static str)],
    removed: &[(String, String)],
    totals: &mut Totals,
) {
    for (id, last) in followed {
        let events = journal::read(&place.data_dir(), id);
        for (_, turn) in removed.iter().filter(|(session, _)| session == id) {
            assert!(!turn_started(&events, turn), "{id} answered a removed message, in {turn}");
        }
        assert!(*last <= events.len() as u64, "{id}: the follower saw more events than the journal has");
        let of_session = answers.iter().filter(|(session, ..)| session == id);
        check_answered(id, &resolved(id, &events), of_session);
        // The sessions with these numbers only run commands.
        if id.ends_with("-1") || id.ends_with("-2") {
            totals.applied += applied::check(id, &events);
        }
    }
    let known: HashSet<&String> = answers.iter().map(|(id, ..)| id).collect();
    assert!(known.iter().all(|id| followed.contains_key(*id)), "the follower never saw a session");
}

/// State at the time of the kills.
#[derive(Debug, Default)]
struct Totals {
    /// Events sent to the readers of single sessions, and to the follower of all sessions.
    events: usize,
    followed: usize,
    answered: usize,
    /// Messages removed from the queue.
    removed: usize,
    /// Commands that ran because they were allowed.
    applied: usize,
    /// Permissions pending when the server was killed.
    waiting: usize,
    /// Turns open when the server was killed.
    interrupted: u64,
}

impl Totals {
    fn are_enough(&self, rounds: u64) -> bool {
        let some = usize::try_from(rounds / 10).unwrap();
        let answers = self.answered >= some && self.applied >= some && self.waiting >= some && self.removed >= some;
        self.events >= some * 100 && self.followed >= self.events / 4 && answers && self.interrupted >= rounds / 10
    }
}

/// Checks every journal against the events that clients received.
fn check(place: &VivFixture, client: &Client, received: &ReceivedAnswers, totals: &mut Totals) {
    for id in &received.used {
        // The queue of a killed server goes on, so a turn may be open; then this server runs it.
        testkit::wait_until("every open turn to be run by the new server", || {
            let open = is_open(&journal::read(&place.data_dir(), id));
            let status = client.get(&format!("/v1/sessions/{id}")).json()["status"].clone();
            !open || ["running", "waiting"].iter().any(|live| status == *live)
        });
        let events = journal::read(&place.data_dir(), id);
        totals.interrupted += check_closed(id, &events);
        for (_, frames) in received.seen.iter().filter(|(session, _)| session == id) {
            totals.events += frames.len();
            for (index, frame) in frames.iter().enumerate() {
                assert_eq!(frame.id, index as u64 + 1, "{id}: a reader missed an event");
                let kept = events.get(index).map(journal::sent);
                assert_eq!(kept.as_deref(), Some(frame.data.as_str()), "{id} lost an event that it had sent");
            }
        }
        for (_, name, _) in received.accepted.iter().filter(|(session, ..)| session == id) {
            assert_eq!(count_accepted(&events, name), 1, "{id} lost an accepted message, or accepted it twice");
        }
        for (_, turn) in received.removed.iter().filter(|(session, _)| session == id) {
            assert!(!turn_started(&events, turn), "{id} answered a removed message, in {turn}");
            totals.removed += 1;
        }
        check_answers(id, &events, received, totals);
    }
}

/// Returns whether a turn was started.
fn turn_started(events: &[Event], turn: &str) -> bool {
    events.iter().any(|event| match &event.draft.body {
        EventBody::TurnStarted(started) => started.turn_id.as_ref().is_some_and(|id| id.as_str() == turn),
        _ => false,
    })
}

/// Returns how often a message with this id was accepted.
fn count_accepted(events: &[Event], name: &str) -> usize {
    let mut turns = HashSet::new();
    for event in events {
        match &event.draft.body {
            EventBody::MessageQueued(queued) if queued.client_message_id.as_deref() == Some(name) => {
                turns.insert(Some(queued.turn_id.clone()));
            }
            EventBody::TurnStarted(turn) => {
                let named = turn.metadata.as_ref().is_some_and(|metadata| metadata["client_message_id"] == name);
                if named {
                    turns.insert(turn.turn_id.clone());
                }
            }
            _ => {}
        }
    }
    turns.len()
}

/// Checks that answered permissions have exactly that answer, and unanswered ones were denied with a reason.
fn check_answers(id: &str, events: &[Event], received: &ReceivedAnswers, totals: &mut Totals) {
    let resolved = resolved(id, events);
    totals.answered += check_answered(id, &resolved, received.answered.iter().filter(|(session, ..)| session == id));
    for (_, permission) in received.unanswered.iter().filter(|(session, _)| session == id) {
        let kept = resolved.get(&PermissionId::new(permission).unwrap());
        let Some(kept) = kept else { panic!("{id}: unanswered permission {permission} has no resolution") };
        assert_eq!(kept.status, PermissionStatus::Reject, "{id}: unanswered permission {permission} was not denied");
        let why = kept.metadata.as_ref().map(|metadata| (&metadata["reason"], &metadata["cause"]));
        assert_eq!(why, Some((&"expired".into(), &"host_died".into())), "{id}: {permission}");
        totals.waiting += 1;
    }
}

/// Returns the resolution of every permission; fails if one was resolved twice.
fn resolved<'a>(id: &str, events: &'a [Event]) -> HashMap<&'a PermissionId, &'a Permission> {
    let mut resolved = HashMap::new();
    for event in events {
        if let EventBody::PermissionResolved(answer) = &event.draft.body {
            let earlier = resolved.insert(&answer.permission_id, answer);
            assert_eq!(earlier, None, "{id}: {} was answered twice", answer.permission_id);
        }
    }
    resolved
}

/// Checks that every accepted answer is recorded and at most one of two concurrent answers was accepted; returns their count.
fn check_answered<'a>(
    id: &str,
    resolved: &HashMap<&PermissionId, &Permission>,
    answers: impl Iterator<Item = &'a (String, String, &'static str)>,
) -> usize {
    let mut accepted = HashSet::new();
    for (_, permission, reply) in answers {
        assert!(accepted.insert(permission), "{id}: two different answers to {permission} were accepted");
        let wanted = if *reply == "once" { PermissionStatus::Accept } else { PermissionStatus::Reject };
        let kept = resolved.get(&PermissionId::new(permission).unwrap()).map(|kept| &kept.status);
        assert_eq!(kept, Some(&wanted), "{id} lost the answer to {permission}");
    }
    accepted.len()
}

/// Checks that a message that is sent again is not accepted twice, and that its id cannot be reused for another message.
fn check_repeated_message(place: &VivFixture, client: &Client, received: &ReceivedAnswers) {
    let Some((id, name, text)) = received.accepted.last() else { return };
    assert_eq!(send_as(client, id, name, text), Some(204), "{id}");
    assert_eq!(send_as(client, id, name, "/echo something else"), Some(422), "{id}");
    assert_eq!(count_accepted(&journal::read(&place.data_dir(), id), name), 1, "{id} accepted a message twice");
}

/// Checks that permissions pending at the kill were denied, and that a late answer is rejected.
fn check_late_answers(client: &Client, received: &ReceivedAnswers) {
    for (id, permission) in &received.unanswered {
        let status = answer(client, id, permission, "once");
        assert_eq!(status, Some(409), "{id}: a late answer to {permission} was accepted");
    }
}

/// Returns whether the last turn has not ended.
fn is_open(events: &[Event]) -> bool {
    let last = events.iter().rev().find(|event| event.draft.body.kind().starts_with("turn."));
    last.is_some_and(|event| matches!(event.draft.body, EventBody::TurnStarted(_)))
}

/// Checks that each recovery found all turns ended, all requests resolved and all items complete.
fn check_closed(id: &str, events: &[Event]) -> u64 {
    let (mut turn, mut last_ended, mut interrupted) = (None, None, 0);
    let (mut permissions, mut items) = (HashSet::new(), HashSet::new());
    for event in events {
        match &event.draft.body {
            EventBody::TurnStarted(started) => {
                assert_eq!(turn, None, "{id}: a turn began in the middle of another");
                turn.clone_from(&started.turn_id);
            }
            EventBody::TurnEnded(ended) => {
                assert_eq!(turn.take(), ended.turn_id, "{id}: the turn that ended is not the turn that ran");
                last_ended = ended.outcome;
            }
            EventBody::SessionRecovered(recovered) => {
                assert!(last_ended == Some(TurnOutcome::Interrupted) || recovered.interrupted.is_empty(), "{id}");
                interrupted += u64::from(!recovered.interrupted.is_empty());
                assert_eq!(turn, None, "{id}: a turn was left open");
                assert!(permissions.is_empty(), "{id}: {permissions:?} were left open");
                assert!(items.is_empty(), "{id}: {items:?} were left open");
            }
            EventBody::PermissionRequested(asked) => drop(permissions.insert(asked.permission_id.clone())),
            EventBody::PermissionResolved(asked) => drop(permissions.remove(&asked.permission_id)),
            EventBody::ItemStarted(started) => drop(items.insert(started.item.item_id.clone())),
            EventBody::ItemCompleted(completed) => drop(items.remove(&completed.item.item_id)),
            _ => {}
        }
    }
    // Between turns nothing is open either.
    if turn.is_none() {
        assert!(permissions.is_empty(), "{id}: {permissions:?} were left open");
        assert!(items.is_empty(), "{id}: {items:?} were left open");
    }
    interrupted
}

/// Checks that an interrupted session accepts the next message.
fn check_next_message(client: &Client, received: &ReceivedAnswers) {
    for id in &received.made {
        let Some(events) = client.steer(id, "/echo still here") else {
            panic!("{id} does not accept the next message")
        };
        let last = events.last().unwrap();
        assert_eq!(last.json()["type"], "turn.ended", "{id}");
        assert_eq!(last.json()["data"]["outcome"], "completed", "{id}");
    }
}
