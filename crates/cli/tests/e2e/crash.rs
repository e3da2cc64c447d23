//! kill -9 at any moment, with permissions pending: every reader saw a prefix of what is on record, no answer is lost
//! and none is applied twice, and whatever was open is closed by the next start.

mod clients;

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use protocol::{Event, EventBody, PermissionId, PermissionStatus, TurnOutcome};

use self::clients::{Notebook, Told, answer, drive};
use crate::http::Client;
use crate::journal;
use crate::place::{Place, eventually};
use crate::server::Server;

/// So often the server is killed; `VIV_TEST_ROUNDS` says another number.
const ROUNDS: u64 = 40;
/// A server is killed when its clients have been told so many things, at most, however fast the machine is.
const MOMENTS: u64 = 400;
/// And so many microseconds later, at most.
const DELAY_MICROS: u64 = 5_000;

#[test]
fn kill_9_again_and_again_loses_nothing_that_a_client_was_told() {
    let rounds = std::env::var("VIV_TEST_ROUNDS").map_or(ROUNDS, |rounds| rounds.parse().unwrap());
    let place = Place::new();
    let mut dice = Dice::new();
    println!("seed {}", dice.0);
    let (mut before, mut totals) = (Told::default(), Totals::default());
    for round in 0..rounds {
        // Sometimes the server dies while it puts in order what the one before left.
        if dice.below(8) == 0 {
            let server = Server::launch(&place);
            std::thread::sleep(Duration::from_micros(dice.below(60_000)));
            server.kill(&place.data());
        }
        let server = Server::start(&place);
        check(&place, &before, &mut totals);
        too_late(&server.client(), &before);
        if round % 10 == 0 {
            goes_on(&server.client(), &before);
        }
        let old: Vec<String> = before.made.iter().cloned().collect();
        let notebook = Notebook::default();
        let clients = drive(&server.client(), round, &old, &notebook);
        let wanted = dice.below(MOMENTS);
        eventually("traffic", || notebook.lock().unwrap().moments >= wanted);
        std::thread::sleep(Duration::from_micros(dice.below(DELAY_MICROS)));
        server.kill(&place.data());
        for client in clients {
            client.join().unwrap();
        }
        // An answer that came too late must not show in the next check either.
        let late = std::mem::take(&mut before.left_waiting);
        before = std::mem::take(&mut *notebook.lock().unwrap());
        before.left_waiting.extend(late.into_iter().filter(|(id, _)| before.used.contains(id)));
    }
    let server = Server::start(&place);
    check(&place, &before, &mut totals);
    goes_on(&server.client(), &before);
    server.stop();
    println!("{totals:?}");
    assert!(totals.are_much(rounds), "{totals:?} in {rounds} rounds: the test proves little");
}

/// What the kills hit.
#[derive(Debug, Default)]
struct Totals {
    events: usize,
    answered: usize,
    /// Permissions that waited when the server died.
    waiting: usize,
    /// Turns that were open when the server died.
    interrupted: u64,
}

impl Totals {
    fn are_much(&self, rounds: u64) -> bool {
        let some = usize::try_from(rounds / 10).unwrap();
        self.events >= some * 100 && self.answered >= some && self.waiting >= some && self.interrupted >= rounds / 10
    }
}

/// Checks every journal against what clients were told of it.
fn check(place: &Place, told: &Told, totals: &mut Totals) {
    for id in &told.used {
        let events = journal::read(&place.data(), id);
        totals.interrupted += check_closed(id, &events);
        for (_, frames) in told.seen.iter().filter(|(session, _)| session == id) {
            totals.events += frames.len();
            for (index, frame) in frames.iter().enumerate() {
                assert_eq!(frame.id, index as u64 + 1, "{id}: a reader missed something");
                let kept = events.get(index).map(journal::sent);
                assert_eq!(kept.as_deref(), Some(frame.data.as_str()), "{id} lost what it had sent");
            }
        }
        let text = std::fs::read_to_string(journal::path(&place.data(), id)).unwrap();
        for (_, name) in told.taken.iter().filter(|(session, _)| session == id) {
            assert!(text.contains(name.as_str()), "{id} lost a message it had taken");
        }
        check_answers(id, &events, told, totals);
    }
}

/// What was answered has that answer and no other; what nobody answered was refused.
fn check_answers(id: &str, events: &[Event], told: &Told, totals: &mut Totals) {
    let mut resolved: HashMap<&PermissionId, &PermissionStatus> = HashMap::new();
    for event in events {
        if let EventBody::PermissionResolved(answer) = &event.draft.body {
            let earlier = resolved.insert(&answer.permission_id, &answer.status);
            assert_eq!(earlier, None, "{id}: {} was answered twice", answer.permission_id);
        }
    }
    let mut heard = HashSet::new();
    for (_, permission, reply) in told.answered.iter().filter(|(session, ..)| session == id) {
        assert!(heard.insert(permission), "{id}: two who answered {permission} were both told that it holds");
        let wanted = if *reply == "once" { PermissionStatus::Accept } else { PermissionStatus::Reject };
        let kept = resolved.get(&PermissionId::new(permission).unwrap());
        assert_eq!(kept, Some(&&wanted), "{id} lost the answer to {permission}");
        totals.answered += 1;
    }
    for (_, permission) in told.left_waiting.iter().filter(|(session, _)| session == id) {
        let kept = resolved.get(&PermissionId::new(permission).unwrap());
        assert_eq!(kept, Some(&&PermissionStatus::Reject), "{id}: nobody answered {permission}");
        totals.waiting += 1;
    }
}

/// What waited when the server died was refused then: whoever answers now is told so.
fn too_late(client: &Client, told: &Told) {
    for (id, permission) in &told.left_waiting {
        let status = answer(client, id, permission, "once");
        assert!(matches!(status, Some(404 | 409 | 410)), "{id}: {permission} was answered late with {status:?}");
    }
}

/// Nothing is left open: turns have ended, what was asked is resolved, items are complete.
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
                assert_eq!(turn.take(), ended.turn_id, "{id}: another turn ended than the one that ran");
                last_ended = ended.outcome;
            }
            EventBody::SessionRecovered(recovered) => {
                assert!(last_ended == Some(TurnOutcome::Interrupted) || recovered.interrupted.is_empty(), "{id}");
                interrupted += u64::from(!recovered.interrupted.is_empty());
            }
            EventBody::PermissionRequested(asked) => drop(permissions.insert(asked.permission_id.clone())),
            EventBody::PermissionResolved(asked) => drop(permissions.remove(&asked.permission_id)),
            EventBody::ItemStarted(started) => drop(items.insert(started.item.item_id.clone())),
            EventBody::ItemCompleted(completed) => drop(items.remove(&completed.item.item_id)),
            _ => {}
        }
    }
    assert_eq!(turn, None, "{id}: a turn was left open");
    assert!(permissions.is_empty(), "{id}: {permissions:?} were left open");
    assert!(items.is_empty(), "{id}: {items:?} were left open");
    interrupted
}

/// A session that was interrupted takes the next message as if nothing had been.
fn goes_on(client: &Client, told: &Told) {
    for id in &told.made {
        let Some(events) = client.steer(id, "/echo still here") else { panic!("{id} cannot go on") };
        let last = events.last().unwrap();
        assert_eq!(last.json()["type"], "turn.ended", "{id}");
        assert_eq!(last.json()["data"]["outcome"], "completed", "{id}");
    }
}

/// Chance that can be read in the log of a failure.
struct Dice(u64);

impl Dice {
    fn new() -> Self {
        use std::hash::{BuildHasher, RandomState};
        Self(RandomState::new().hash_one("seed") | 1)
    }

    fn next(&mut self) -> u64 {
        // xorshift64: good enough to choose a moment.
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }
}
