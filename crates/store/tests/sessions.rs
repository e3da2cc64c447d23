//! The sessions index: made once, found by what a person types, recovered when its owner died.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::SessionId;
use serde_json::json;
use store::{
    DataDir, DatabaseError, DriftRecord, NewSession, ProcessOwner, SessionIndex, SessionIndexError, SessionOutcome,
    SessionPatch, SessionRecord,
};
use support::HandClock;
use tempfile::TempDir;

struct Place {
    _temporary: TempDir,
    directory: DataDir,
    owner: ProcessOwner,
    clock: Arc<HandClock>,
}

impl Place {
    fn new() -> Self {
        let place = tempfile::tempdir().unwrap();
        let directory = DataDir::open(place.path()).unwrap();
        let owner = ProcessOwner::claim(&directory).unwrap();
        Self { _temporary: place, directory, owner, clock: HandClock::at(1_000) }
    }

    fn index(&self) -> SessionIndex {
        SessionIndex::open(&self.directory, self.clock.clone()).unwrap()
    }

    fn new_session(&self, id: &str) -> NewSession {
        NewSession::new(SessionId::new(id).unwrap(), "mock", self.owner.id().clone())
    }

    fn create(&self, index: &SessionIndex, id: &str) -> SessionRecord {
        index.create(&self.new_session(id)).unwrap()
    }
}

fn id(record: &SessionRecord) -> &str {
    record.info.session_id.as_str()
}

#[test]
fn what_was_entered_is_there_for_every_process() {
    let place = Place::new();
    let new = NewSession {
        agent_mode: "build".into(),
        permission_mode: "plan".into(),
        model: Some("m-1".into()),
        variant: Some("high".into()),
        directory: Some("/home/user/project".into()),
        title: Some("Größe".into()),
        mcp: Some([("files".to_owned(), json!({"command": ["x"]}))].into()),
        skills: Some(json!([1, "two"])),
        ..place.new_session("s1")
    };
    let made = place.index().create(&new).unwrap();
    let found = place.index().get(&new.id).unwrap();
    assert_eq!(found, made);
    assert_eq!((found.epoch, &found.owner, found.outcome), (1, place.owner.id(), None));
    insta::assert_json_snapshot!(found.info);
}

#[test]
fn of_many_who_create_the_same_id_one_succeeds() {
    let place = Place::new();
    let (made, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| match place.index().create(&place.new_session("s1")) {
                Ok(_) => made.fetch_add(1, Ordering::SeqCst),
                Err(SessionIndexError::AlreadyExists(_)) => refused.fetch_add(1, Ordering::SeqCst),
                Err(error) => panic!("{error:?}"),
            });
        }
    });
    assert_eq!((made.into_inner(), refused.into_inner()), (1, 7));
}

#[test]
fn names_are_given_once() {
    let place = Place::new();
    let index = place.index();
    let mut names: Vec<_> = (0..300).map(|n| place.create(&index, &format!("s{n}")).info.name.unwrap()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 300);
}

#[test]
fn a_session_is_found_by_what_a_person_types() {
    let place = Place::new();
    let index = place.index();
    assert!(matches!(index.find("@last"), Err(SessionIndexError::NotFound(_))));
    for name in ["ab", "abc-1", "abc-2", "a_c"] {
        place.create(&index, name);
    }
    let name = index.find("abc-1").unwrap().info.name.unwrap();
    for (typed, expected) in
        [("abc-1", "abc-1"), (name.as_str(), "abc-1"), ("ab", "ab"), ("@last", "a_c"), ("a_", "a_c")]
    {
        assert_eq!(id(&index.find(typed).unwrap()), expected, "`{typed}`");
    }
    for typed in ["", "z", "%", "abc-11", "AB", "@first", "' OR 1=1 --"] {
        assert!(matches!(index.find(typed), Err(SessionIndexError::NotFound(_))), "`{typed}`");
    }
    let error = index.find("abc").unwrap_err();
    assert_eq!(error.to_string(), "`abc` may be any of abc-1, abc-2");
}

#[test]
fn the_list_goes_on_where_it_stopped_though_sessions_come() {
    let place = Place::new();
    let index = place.index();
    (1..=5).for_each(|n| drop(place.create(&index, &format!("s{n}"))));
    let first = index.list(None, 2).unwrap();
    assert_eq!(first.sessions.iter().map(id).collect::<Vec<_>>(), ["s5", "s4"]);
    place.create(&index, "s6");
    let cursor = first.next.unwrap().to_string().parse().unwrap();
    let second = index.list(Some(cursor), 2).unwrap();
    assert_eq!(second.sessions.iter().map(id).collect::<Vec<_>>(), ["s3", "s2"]);
    let third = index.list(second.next, 2).unwrap();
    assert_eq!((third.sessions.iter().map(id).collect::<Vec<_>>(), third.next), (vec!["s1"], None));
    assert!(matches!("soon".parse::<store::SessionListCursor>(), Err(SessionIndexError::Cursor(_))));
}

#[test]
fn a_change_touches_what_it_names_and_an_end_is_an_end() {
    let place = Place::new();
    let index = place.index();
    let before = place.create(&index, "s1");
    place.clock.set(2_000);
    let change = SessionPatch {
        title: Some("new".into()),
        native_session_id: Some("n-1".into()),
        event_count: Some(7),
        outcome: Some(SessionOutcome::Completed),
        ..SessionPatch::default()
    };
    let changed = index.update(&before.info.session_id, &change).unwrap();
    let mut expected = before.clone();
    expected.info.title = change.title;
    expected.info.native_session_id = change.native_session_id;
    expected.info.event_count = 7;
    expected.info.updated_at = 2_000_000;
    expected.info.ended = true;
    expected.outcome = change.outcome;
    assert_eq!(changed, expected);

    let late = SessionPatch { outcome: Some(SessionOutcome::Error), event_count: Some(3), ..SessionPatch::default() };
    assert_eq!(index.update(&before.info.session_id, &late).unwrap(), expected);
    let unknown = SessionId::new("nobody").unwrap();
    assert!(matches!(index.update(&unknown, &late), Err(SessionIndexError::NotFound(_))));
}

#[test]
fn a_killed_owner_leaves_orphans_and_one_other_adopts_them() {
    const NAME: &str = "a_killed_owner_leaves_orphans_and_one_other_adopts_them";
    if let Some(path) = support::child_place() {
        run_sessions_until_killed(&path);
    }
    let place = Place::new();
    let index = place.index();
    place.create(&index, "mine");
    let mut child = support::again(NAME, place.directory.root()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("ready")));
    assert!(index.orphans().unwrap().is_empty());
    child.kill().unwrap();
    child.wait().unwrap();

    let orphans = index.orphans().unwrap();
    assert_eq!(orphans.iter().map(id).collect::<Vec<_>>(), ["theirs"]);
    let locks = || std::fs::read_dir(place.directory.owners()).unwrap().count();
    assert_eq!(locks(), 2);
    let second = ProcessOwner::claim(&place.directory).unwrap();
    assert_eq!(locks(), 2, "the dead owner's lock was cleared away");
    assert_eq!(index.orphans().unwrap(), orphans);
    let adopted = index.adopt(&orphans[0], place.owner.id()).unwrap();
    assert_eq!((adopted.epoch, &adopted.owner), (2, place.owner.id()));
    let late = place.index().adopt(&orphans[0], second.id());
    assert!(matches!(late, Err(SessionIndexError::OwnedByAnother(_))));
    assert!(index.orphans().unwrap().is_empty());
}

fn run_sessions_until_killed(path: &Path) -> ! {
    let directory = DataDir::open(path).unwrap();
    let owner = ProcessOwner::claim(&directory).unwrap();
    let index = SessionIndex::open(&directory, HandClock::at(1_000)).unwrap();
    for name in ["theirs", "over"] {
        index.create(&NewSession::new(SessionId::new(name).unwrap(), "mock", owner.id().clone())).unwrap();
    }
    let over = SessionPatch { outcome: Some(SessionOutcome::Completed), ..SessionPatch::default() };
    index.update(&SessionId::new("over").unwrap(), &over).unwrap();
    println!("ready");
    loop {
        std::thread::park();
    }
}

#[test]
fn an_owner_that_left_in_order_leaves_orphans_too() {
    let place = Place::new();
    let index = place.index();
    let owner = ProcessOwner::claim(&place.directory).unwrap();
    index.create(&NewSession::new(SessionId::new("s1").unwrap(), "mock", owner.id().clone())).unwrap();
    drop(owner);
    assert_eq!(index.orphans().unwrap().len(), 1);
}

#[test]
fn a_database_of_a_later_version_is_not_touched() {
    let place = Place::new();
    drop(place.index());
    let database = rusqlite::Connection::open(place.directory.database()).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    let error = SessionIndex::open(&place.directory, place.clock.clone()).map(|_| ()).unwrap_err();
    assert!(matches!(error, SessionIndexError::Database(DatabaseError::TooNew { found: 99, .. })), "{error:?}");
}

#[test]
fn what_was_not_understood_is_counted_by_every_process_and_kept() {
    let place = Place::new();
    let (one, other) = (place.index(), place.index());
    let drift = |agent: &str, version: &str, unparsed, unknown| DriftRecord {
        agent: agent.to_owned(),
        version: version.to_owned(),
        unparsed,
        unknown,
    };
    assert_eq!(one.drift().unwrap(), []);
    for (index, more) in [
        (&one, drift("pi", "1.0", 1, 0)),
        (&other, drift("pi", "1.0", 0, 1)),
        (&other, drift("pi", "1.0", 1, 0)),
        (&one, drift("pi", "1.1", 0, 1)),
        (&other, drift("claude", "1.0", 0, 1)),
    ] {
        index.count_drift(&more).unwrap();
    }
    drop((one, other));
    let expected = [drift("claude", "1.0", 0, 1), drift("pi", "1.0", 2, 1), drift("pi", "1.1", 0, 1)];
    assert_eq!(place.index().drift().unwrap(), expected);
}

#[test]
fn a_database_of_an_earlier_version_is_brought_up_to_date() {
    let place = Place::new();
    place.create(&place.index(), "s1");
    let database = rusqlite::Connection::open(place.directory.database()).unwrap();
    database.execute_batch("DROP TABLE drift; PRAGMA user_version = 3;").unwrap();
    drop(database);
    let index = place.index();
    assert_eq!((index.drift().unwrap().len(), index.list(None, 9).unwrap().sessions.len()), (0, 1));
}

#[test]
fn a_full_disk_is_told_and_what_was_not_kept_is_not_there() {
    const NAME: &str = "a_full_disk_is_told_and_what_was_not_kept_is_not_there";
    if let Some(place) = support::child_place() {
        return fill_the_disk(&place);
    }
    let place = tempfile::tempdir().unwrap();
    let output = support::again_with_small_files(NAME, place.path(), 800).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn fill_the_disk(place: &Path) {
    /// Many more than there is room for.
    const TRIES: usize = 1_000;
    let directory = DataDir::open(place).unwrap();
    let owner = ProcessOwner::claim(&directory).unwrap();
    let index = SessionIndex::open(&directory, HandClock::at(1_000)).unwrap();
    let new = |number: usize| {
        let id = SessionId::new(format!("s{number}")).unwrap();
        NewSession { title: Some("x".repeat(2_000)), ..NewSession::new(id, "mock", owner.id().clone()) }
    };
    let kept = (0..TRIES).take_while(|number| index.create(&new(*number)).is_ok()).count();
    assert!(kept > 3 && kept < TRIES, "{kept} sessions were made");
    // What is smaller fits a little longer.
    let first = SessionId::new("s0").unwrap();
    let change = |number: usize| SessionPatch { title: Some(format!("title {number}")), ..SessionPatch::default() };
    let titles = (0..TRIES).take_while(|number| index.update(&first, &change(*number)).is_ok()).count();
    assert!(titles < TRIES, "a title that is not kept is not said to be");
    let before = index.get(&first).unwrap();
    assert!(index.adopt(&before, owner.id()).is_err(), "nobody becomes the owner without a record of it");

    support::lift_the_limit();
    assert_eq!(index.list(None, TRIES).unwrap().sessions.len(), kept, "what was told is there, and nothing else");
    let found = index.get(&first).unwrap();
    let last = titles.checked_sub(1).map_or("x".repeat(2_000), |last| format!("title {last}"));
    assert_eq!((found.info.title, found.epoch), (Some(last), before.epoch));
    assert_eq!(index.update(&first, &change(TRIES)).unwrap().info.title, Some(format!("title {TRIES}")));
    index.create(&new(kept)).unwrap();
}
