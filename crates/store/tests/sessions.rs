//! The sessions index: creation, lookup, changes, and recovery after the death of an owner.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod support;

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use protocol::{SessionId, SessionStatus};
use serde_json::json;
use store::{
    DataDir, DatabaseError, DriftRecord, NewSession, ProcessOwner, SessionFilter, SessionIndex, SessionIndexError,
    SessionOutcome, SessionPatch, SessionRecord,
};
use support::ManualClock;
use tempfile::TempDir;

struct IndexFixture {
    _temporary: TempDir,
    directory: DataDir,
    owner: ProcessOwner,
    clock: Arc<ManualClock>,
}

impl IndexFixture {
    fn new() -> Self {
        let fixture = tempfile::tempdir().unwrap();
        let directory = DataDir::open(fixture.path()).unwrap();
        let owner = ProcessOwner::claim(&directory).unwrap();
        Self { _temporary: fixture, directory, owner, clock: ManualClock::at(1_000) }
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
fn created_session_is_visible_to_every_process() {
    let fixture = IndexFixture::new();
    let new = NewSession {
        agent_mode: "build".into(),
        permission_mode: "plan".into(),
        model: Some("m-1".into()),
        variant: Some("high".into()),
        directory: Some("/home/user/project".into()),
        title: Some("Größe".into()),
        mcp: Some([("files".to_owned(), json!({"command": ["x"]}))].into()),
        skills: Some(json!([1, "two"])),
        ..fixture.new_session("s1")
    };
    let made = fixture.index().create(&new).unwrap();
    let found = fixture.index().get(&new.id).unwrap();
    assert_eq!(found, made);
    assert_eq!((found.epoch, &found.owner, found.outcome), (1, fixture.owner.id(), None));
    insta::assert_json_snapshot!(found.info);
}

#[test]
fn concurrent_creation_of_one_id_succeeds_once() {
    let fixture = IndexFixture::new();
    let (made, refused) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|threads| {
        for _ in 0..8 {
            threads.spawn(|| match fixture.index().create(&fixture.new_session("s1")) {
                Ok(_) => made.fetch_add(1, Ordering::SeqCst),
                Err(SessionIndexError::AlreadyExists(_)) => refused.fetch_add(1, Ordering::SeqCst),
                Err(error) => panic!("{error:?}"),
            });
        }
    });
    assert_eq!((made.into_inner(), refused.into_inner()), (1, 7));
}

#[test]
fn names_are_unique() {
    let fixture = IndexFixture::new();
    let index = fixture.index();
    let mut names: Vec<_> = (0..300).map(|n| fixture.create(&index, &format!("s{n}")).info.name.unwrap()).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 300);
}

#[test]
fn session_is_found_by_id_name_prefix_and_last() {
    let fixture = IndexFixture::new();
    let index = fixture.index();
    assert!(matches!(index.find("@last"), Err(SessionIndexError::NotFound(_))));
    for name in ["ab", "abc-1", "abc-2", "a_c"] {
        fixture.create(&index, name);
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
    assert_eq!(error.to_string(), "`abc` is ambiguous; it matches abc-1, abc-2");
}

#[test]
fn list_continues_from_its_cursor_while_sessions_are_created() {
    let fixture = IndexFixture::new();
    let index = fixture.index();
    (1..=5).for_each(|n| drop(fixture.create(&index, &format!("s{n}"))));
    let first = index.list(None, 2).unwrap();
    assert_eq!(first.sessions.iter().map(id).collect::<Vec<_>>(), ["s5", "s4"]);
    fixture.create(&index, "s6");
    let cursor = first.next.unwrap().to_string().parse().unwrap();
    let second = index.list(Some(cursor), 2).unwrap();
    assert_eq!(second.sessions.iter().map(id).collect::<Vec<_>>(), ["s3", "s2"]);
    let third = index.list(second.next, 2).unwrap();
    assert_eq!((third.sessions.iter().map(id).collect::<Vec<_>>(), third.next), (vec!["s1"], None));
    assert!(matches!("soon".parse::<store::SessionListCursor>(), Err(SessionIndexError::Cursor(_))));
}

#[test]
fn patch_changes_only_its_fields_and_an_outcome_is_final() {
    let fixture = IndexFixture::new();
    let index = fixture.index();
    let before = fixture.create(&index, "s1");
    fixture.clock.set(2_000);
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
    (expected.info.status, expected.info.status_since) = (SessionStatus::Ended, 2_000_000);
    expected.outcome = change.outcome;
    assert_eq!(changed, expected);

    let late = SessionPatch { outcome: Some(SessionOutcome::Error), event_count: Some(3), ..SessionPatch::default() };
    assert_eq!(index.update(&before.info.session_id, &late).unwrap(), expected);
    let unknown = SessionId::new("nobody").unwrap();
    assert!(matches!(index.update(&unknown, &late), Err(SessionIndexError::NotFound(_))));
}

#[test]
fn orphans_of_a_killed_owner_are_adopted_once() {
    const NAME: &str = "orphans_of_a_killed_owner_are_adopted_once";
    if let Some(path) = support::child_directory() {
        run_sessions_until_killed(&path);
    }
    let fixture = IndexFixture::new();
    let index = fixture.index();
    fixture.create(&index, "mine");
    let mut child = support::child_command(NAME, fixture.directory.root()).spawn().unwrap();
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert!(lines.any(|line| line.ends_with("ready")));
    assert!(index.orphans().unwrap().is_empty());
    child.kill().unwrap();
    child.wait().unwrap();

    let orphans = index.orphans().unwrap();
    assert_eq!(orphans.iter().map(id).collect::<Vec<_>>(), ["theirs"]);
    let locks = || std::fs::read_dir(fixture.directory.owners()).unwrap().count();
    assert_eq!(locks(), 2);
    let second = ProcessOwner::claim(&fixture.directory).unwrap();
    assert_eq!(locks(), 2, "the dead owner's lock was not removed");
    assert_eq!(index.orphans().unwrap(), orphans);
    let adopted = index.adopt(&orphans[0], fixture.owner.id()).unwrap();
    assert_eq!((adopted.epoch, &adopted.owner), (2, fixture.owner.id()));
    let late = fixture.index().adopt(&orphans[0], second.id());
    assert!(matches!(late, Err(SessionIndexError::OwnedByAnother(_))));
    assert!(index.orphans().unwrap().is_empty());
}

fn run_sessions_until_killed(path: &Path) -> ! {
    let directory = DataDir::open(path).unwrap();
    let owner = ProcessOwner::claim(&directory).unwrap();
    let index = SessionIndex::open(&directory, ManualClock::at(1_000)).unwrap();
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
fn owner_that_exits_leaves_orphans() {
    let fixture = IndexFixture::new();
    let index = fixture.index();
    let owner = ProcessOwner::claim(&fixture.directory).unwrap();
    index.create(&NewSession::new(SessionId::new("s1").unwrap(), "mock", owner.id().clone())).unwrap();
    drop(owner);
    assert_eq!(index.orphans().unwrap().len(), 1);
}

#[test]
fn database_of_a_later_version_is_rejected() {
    let fixture = IndexFixture::new();
    drop(fixture.index());
    let database = rusqlite::Connection::open(fixture.directory.database()).unwrap();
    database.pragma_update(None, "user_version", 99).unwrap();
    let error = SessionIndex::open(&fixture.directory, fixture.clock.clone()).map(|_| ()).unwrap_err();
    assert!(matches!(error, SessionIndexError::Database(DatabaseError::TooNew { found: 99, .. })), "{error:?}");
}

#[test]
fn drift_counts_of_all_processes_are_added() {
    let fixture = IndexFixture::new();
    let (one, other) = (fixture.index(), fixture.index());
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
    assert_eq!(fixture.index().drift().unwrap(), expected);
}

#[test]
fn database_of_an_earlier_version_is_migrated() {
    let fixture = IndexFixture::new();
    fixture.create(&fixture.index(), "s1");
    let database = rusqlite::Connection::open(fixture.directory.database()).unwrap();
    for trigger in ["insert", "update", "delete"] {
        database.execute_batch(&format!("DROP TRIGGER session_text_{trigger}")).unwrap();
    }
    for index in ["status", "agent", "account", "user", "creation"] {
        database.execute_batch(&format!("DROP INDEX session_by_{index}")).unwrap();
    }
    let tables = "DROP VIEW kept; DROP INDEX session_awake; DROP INDEX session_interrupted; DROP TABLE session_label; DROP TABLE session_text;";
    database.execute_batch(tables).unwrap();
    for column in [
        "origin",
        "status",
        "status_ms",
        "labels",
        "metadata",
        "account",
        "user",
        "token",
        "turns",
        "cost_picos",
        "denials",
        "last_prompt",
        "interrupted",
    ] {
        database.execute_batch(&format!("ALTER TABLE session DROP COLUMN {column}")).unwrap();
    }
    let earlier = "DROP TABLE drift;
        CREATE VIEW kept AS SELECT * FROM session WHERE deleted_ms IS NULL; PRAGMA user_version = 3;";
    database.execute_batch(earlier).unwrap();
    drop(database);
    let index = fixture.index();
    assert_eq!((index.drift().unwrap().len(), index.list(None, 9).unwrap().sessions.len()), (0, 1));
    assert_eq!(index.list(None, 9).unwrap().sessions[0].info.status, SessionStatus::Asleep);
    let by_text = SessionFilter { text: Some("mock".to_owned()), ..SessionFilter::default() };
    assert!(index.list_filtered(&by_text, None, 9).unwrap().sessions.is_empty(), "the agent is no text of a session");
    let name = index.list(None, 9).unwrap().sessions[0].info.name.clone();
    let by_name = SessionFilter { text: name, ..SessionFilter::default() };
    assert_eq!(index.list_filtered(&by_name, None, 9).unwrap().sessions.len(), 1, "an old session is not found");
}

#[test]
fn full_disk_is_reported_and_failed_changes_leave_no_trace() {
    const NAME: &str = "full_disk_is_reported_and_failed_changes_leave_no_trace";
    if let Some(fixture) = support::child_directory() {
        return fill_the_disk(&fixture);
    }
    let fixture = tempfile::tempdir().unwrap();
    let output = support::child_command_with_file_limit(NAME, fixture.path(), 800).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn fill_the_disk(fixture: &Path) {
    /// More than the disk can hold.
    const TRIES: usize = 1_000;
    let directory = DataDir::open(fixture).unwrap();
    let owner = ProcessOwner::claim(&directory).unwrap();
    let index = SessionIndex::open(&directory, ManualClock::at(1_000)).unwrap();
    let new = |number: usize| {
        let id = SessionId::new(format!("s{number}")).unwrap();
        NewSession { title: Some("x".repeat(2_000)), ..NewSession::new(id, "mock", owner.id().clone()) }
    };
    let kept = (0..TRIES).take_while(|number| index.create(&new(*number)).is_ok()).count();
    assert!(kept > 3 && kept < TRIES, "{kept} sessions were made");
    // Smaller changes fit a little longer.
    let first = SessionId::new("s0").unwrap();
    let change = |number: usize| SessionPatch { title: Some(format!("title {number}")), ..SessionPatch::default() };
    let titles = (0..TRIES).take_while(|number| index.update(&first, &change(*number)).is_ok()).count();
    assert!(titles < TRIES, "a title was reported as stored although the disk is full");
    let before = index.get(&first).unwrap();
    // A new owner needs less space than a title, which changes several tables, so it may still fit.
    let adopted = index.adopt(&before, owner.id()).is_ok();

    support::remove_file_limit();
    assert_eq!(
        index.list(None, TRIES).unwrap().sessions.len(),
        kept,
        "the index must hold exactly the reported sessions"
    );
    let found = index.get(&first).unwrap();
    let last = titles.checked_sub(1).map_or("x".repeat(2_000), |last| format!("title {last}"));
    assert_eq!((found.info.title, found.epoch), (Some(last), before.epoch + u64::from(adopted)));
    assert_eq!(index.update(&first, &change(TRIES)).unwrap().info.title, Some(format!("title {TRIES}")));
    index.create(&new(kept)).unwrap();
}
