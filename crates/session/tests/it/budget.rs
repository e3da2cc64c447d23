//! The host budget: a session that reaches a limit ends its turn, can be read, and harms no other session.

use std::path::Path;
use std::sync::Arc;

use protocol::{EnforcedValue, EventBody, PermissionStatus, ProblemCode, SessionId, TurnOutcome};
use session::{HostBudget, SessionError, SessionOptions, UserMessage};
use store::{FreeSpaceFloor, StorageLimits};
use tempfile::TempDir;

use crate::stage::{Stage, id, kinds, outcome, request};

crate::trials!(
    full_journal_ends_the_turn_and_continues_with_a_higher_limit,
    full_body_store_ends_the_turn,
    stored_bodies_are_counted_again_after_a_restart,
    session_does_not_start_below_the_free_space_floor,
    running_turn_ends_below_the_free_space_floor,
    token_cannot_open_more_sessions_than_its_limit,
    host_does_not_open_more_sessions_than_its_limit,
    requests_above_the_limit_are_rejected_at_once,
    budget_is_listed_in_the_effective_policy,
);

fn directory() -> Arc<TempDir> {
    Arc::new(tempfile::tempdir().unwrap())
}

fn storage(journal_bytes: u64, body_bytes: u64) -> HostBudget {
    HostBudget {
        storage: StorageLimits { journal_bytes, body_bytes, ..StorageLimits::default() },
        ..HostBudget::default()
    }
}

/// Returns the code and limit of the last error event.
fn last_error(stage: &Stage, session: &SessionId) -> (String, String) {
    let error = stage.events(session).into_iter().rev().find_map(|event| match event.draft.body {
        EventBody::Error(error) => Some(error),
        _ => None,
    });
    let error = error.unwrap();
    (error.code.unwrap(), error.details.unwrap()["limit"].as_str().unwrap().to_owned())
}

async fn refused(stage: &Stage, session: &SessionId) -> ProblemCode {
    stage.sessions.send(session, UserMessage::text("/echo more")).await.unwrap_err().code()
}

async fn full_journal_ends_the_turn_and_continues_with_a_higher_limit() {
    const LIMIT: u64 = 300_000;
    let directory = directory();
    let session = {
        let stage = Stage::within(directory.clone(), storage(LIMIT, 1 << 30));
        let (session, other) = (stage.session("s1").await, stage.session("s2").await);
        let events = stage.turn(&session, "/flood 100000000").await;
        assert_eq!(outcome(&events), Some(TurnOutcome::Failed));
        assert_eq!(last_error(&stage, &session), ("session_storage_full".into(), "limits.journal".into()));
        let bytes = std::fs::metadata(stage.sessions.directory().journal(&session)).unwrap().len();
        assert!(bytes < LIMIT + 100_000, "the journal has {bytes} bytes");
        assert_eq!(refused(&stage, &session).await, ProblemCode::SessionStorageFull);
        assert_eq!(outcome(&stage.turn(&other, "/echo hello").await), Some(TurnOutcome::Completed));
        stage.sessions.close_all().await;
        session
    };
    let same = Stage::within(directory.clone(), storage(LIMIT, 1 << 30));
    assert_eq!(refused(&same, &session).await, ProblemCode::SessionStorageFull, "the count survives a restart");
    same.sessions.close_all().await;
    drop(same);
    let raised = Stage::within(directory, storage(100 * LIMIT, 1 << 30));
    assert_eq!(outcome(&raised.turn(&session, "/echo again").await), Some(TurnOutcome::Completed));
}

async fn full_body_store_ends_the_turn() {
    let stage = Stage::within(directory(), storage(64 << 20, 20_000));
    let session = stage.session("s1").await;
    let events = stage.turn(&session, &"long prompt ".repeat(4_000)).await;
    assert_eq!(outcome(&events), Some(TurnOutcome::Failed), "{:?}", kinds(&events));
    assert_eq!(last_error(&stage, &session), ("session_storage_full".into(), "limits.bodies".into()));
    assert_eq!(refused(&stage, &session).await, ProblemCode::SessionStorageFull);
}

async fn stored_bodies_are_counted_again_after_a_restart() {
    let directory = directory();
    let stage = Stage::within(directory.clone(), storage(64 << 20, 16 << 20));
    let session = stage.session("s1").await;
    // Random text, because a repeated one is stored as a small delta.
    let text: String =
        (0..5_000_u64).map(|number| format!("{:x} ", number.wrapping_mul(0x9e37_79b9_7f4a_7c15))).collect();
    assert_eq!(outcome(&stage.turn(&session, &text).await), Some(TurnOutcome::Completed));
    stage.sessions.close_all().await;
    drop(stage);
    let stored = bytes_below(&directory.path().join("data/bodies"));
    assert!(stored > 50_000, "{stored} bytes are stored");
    let stage = Stage::within(directory, storage(64 << 20, stored));
    assert_eq!(refused(&stage, &session).await, ProblemCode::SessionStorageFull);
}

fn bytes_below(directory: &Path) -> u64 {
    let entries = std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path());
    entries.map(|path| if path.is_dir() { bytes_below(&path) } else { path.metadata().unwrap().len() }).sum()
}

fn floor(bytes: u64) -> HostBudget {
    let free_space = FreeSpaceFloor { bytes, percent: 100 };
    HostBudget { storage: StorageLimits { free_space, ..StorageLimits::default() }, ..HostBudget::default() }
}

async fn session_does_not_start_below_the_free_space_floor() {
    let directory = directory();
    let stage = Stage::within(directory.clone(), HostBudget::default());
    let session = stage.session("s1").await;
    stage.sessions.close_all().await;
    drop(stage);
    // No disk has this much free space.
    let stage = Stage::within(directory, floor(u64::MAX));
    let error = stage.create("s2", request()).await.unwrap_err();
    assert_eq!(error.code(), ProblemCode::DiskFull);
    assert!(error.to_string().contains("limits.free_space"), "{error}");
    assert_eq!(refused(&stage, &session).await, ProblemCode::DiskFull);
}

async fn running_turn_ends_below_the_free_space_floor() {
    let directory = directory();
    let data = directory.path().join("data");
    std::fs::create_dir_all(&data).unwrap();
    let Some(_mounted) = SmallDisk::mount(&data) else { return };
    let stage = Stage::within(directory, floor(32 << 20));
    let session = stage.session("s1").await;
    let accepted = stage.say(&session, "/slow 100000").await;
    stage.until_type(&session, accepted.sequence, "item.delta").await;
    // Another program fills the disk.
    std::fs::write(data.join("filler"), vec![1; 40 << 20]).unwrap();
    let ended = stage.until_type(&session, accepted.sequence, "turn.ended").await;
    assert_eq!(outcome(&[ended]), Some(TurnOutcome::Failed));
    assert_eq!(last_error(&stage, &session), ("disk_full".into(), "limits.free_space".into()));
    std::fs::remove_file(data.join("filler")).unwrap();
    assert_eq!(outcome(&stage.turn(&session, "/echo again").await), Some(TurnOutcome::Completed));
    stage.sessions.close_all().await;
}

/// A file system of 64 MiB, unmounted when dropped. Only root can mount one.
struct SmallDisk(std::path::PathBuf);

impl SmallDisk {
    fn mount(path: &Path) -> Option<Self> {
        let mounted = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=64m,mode=700", "none"])
            .arg(path)
            .stderr(std::process::Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Self(path.to_owned()))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // Lazily, because files of the data directory are still open.
        let unmounted = std::process::Command::new("umount").arg("-l").arg(&self.0).status();
        assert!(unmounted.is_ok_and(|status| status.success()), "cannot unmount {}", self.0.display());
    }
}

async fn create_as(stage: &Stage, name: &str, token: Option<&str>) -> Result<(), SessionError> {
    let options = SessionOptions { token: token.map(str::to_owned), ..SessionOptions::default() };
    stage.sessions.create(id(name), request(), options).await.map(drop)
}

async fn token_cannot_open_more_sessions_than_its_limit() {
    let stage = Stage::within(directory(), HostBudget { sessions_per_token: 2, ..HostBudget::default() });
    for name in ["s1", "s2"] {
        create_as(&stage, name, Some("tok_1")).await.unwrap();
    }
    let error = create_as(&stage, "s3", Some("tok_1")).await.unwrap_err();
    assert_eq!((error.code(), error.code().status()), (ProblemCode::TooManySessions, 429));
    assert_eq!(error.to_string(), "2 sessions of this token are open; the limit is 2 (limits.sessions_per_token)");
    create_as(&stage, "s4", Some("tok_2")).await.unwrap();
    create_as(&stage, "s5", None).await.unwrap();
    stage.sessions.terminate(&id("s1")).await.unwrap();
    create_as(&stage, "s3", Some("tok_1")).await.unwrap();
}

async fn host_does_not_open_more_sessions_than_its_limit() {
    let stage = Stage::within(directory(), HostBudget { sessions: 1, ..HostBudget::default() });
    create_as(&stage, "s1", None).await.unwrap();
    let error = create_as(&stage, "s2", None).await.unwrap_err();
    assert_eq!(error.to_string(), "1 sessions are open; the limit is 1 (limits.sessions)");
}

async fn requests_above_the_limit_are_rejected_at_once() {
    let stage = Stage::within(directory(), HostBudget { pending_requests: 0, ..HostBudget::default() });
    let session = stage.session("s1").await;
    let events = stage.turn(&session, "/permission").await;
    let resolved = events.iter().find_map(|event| match &event.draft.body {
        EventBody::PermissionResolved(permission) => Some(permission.clone()),
        _ => None,
    });
    assert_eq!(resolved.unwrap().status, PermissionStatus::Reject);
    assert!(stage.sessions.pending(&session).unwrap().is_empty());
}

async fn budget_is_listed_in_the_effective_policy() {
    let stage = Stage::within(directory(), storage(1 << 20, 1 << 30));
    let session = stage.session("s1").await;
    let EventBody::PolicyEffective(effective) = &stage.events(&session)[0].draft.body else {
        panic!("the first event is another one")
    };
    let Some(EnforcedValue::HostBudget(budget)) = &effective.keys.get("limits").unwrap().value else {
        panic!("no host budget: {effective:?}")
    };
    assert_eq!((budget["journal"].as_str(), budget["in_flight"].as_str()), ("1MiB", "64MiB"));
}
