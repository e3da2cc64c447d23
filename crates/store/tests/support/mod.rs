//! What the tests of the store share: a clock that is set by hand, and records to keep.

#![allow(dead_code, reason = "each test binary uses its own part of this")]

pub(crate) mod calls;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use protocol::{EventBody, EventDraft, ItemDelta, ItemId, SessionEndReason, SessionEnded, SessionId, TerminatedBy};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::{Clock, FileJournal, OpenedJournal, SystemClock};

/// A clock that stands still until it is set.
pub(crate) struct HandClock(AtomicI64);

impl HandClock {
    pub(crate) fn at(seconds: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(seconds)))
    }

    pub(crate) fn set(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }
}

impl Clock for HandClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_second(self.0.load(Ordering::SeqCst)).unwrap()
    }
}

pub(crate) fn session() -> SessionId {
    SessionId::new("s1").unwrap()
}

pub(crate) fn open(path: &Path) -> OpenedJournal {
    FileJournal::open(path, session(), Arc::new(SystemClock)).unwrap()
}

/// A piece of text, as an agent streams it.
pub(crate) fn delta(text: impl Into<String>) -> EventDraft {
    let item_id = ItemId::new("itm_1").unwrap();
    EventDraft::agent(EventBody::ItemDelta(ItemDelta { item_id, native_item_id: None, delta: text.into() }))
}

/// The last record of a session.
pub(crate) fn ended() -> EventDraft {
    EventDraft::daemon(EventBody::SessionEnded(SessionEnded {
        reason: SessionEndReason::Completed,
        terminated_by: TerminatedBy::Daemon,
        message: None,
        exit_code: Some(0),
        stderr: None,
    }))
}

/// Names the place a child works in; set only by [`again`].
const PLACE: &str = "STORE_TEST_CHILD_PLACE";

/// Where this process is to work, if it is the child of a test.
pub(crate) fn child_place() -> Option<PathBuf> {
    std::env::var_os(PLACE).map(PathBuf::from)
}

/// This test binary once more, to run the one test `name` as a child in `place`.
pub(crate) fn again(name: &str, place: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(PLACE, place).stdout(Stdio::piped());
    command
}

/// The same, with files limited to so many blocks of 512 bytes: a write is cut short there as on a full disk. The
/// signal that goes with it is ignored from before the start, which only a shell can do without unsafe code.
pub(crate) fn again_with_small_files(name: &str, place: &Path, blocks: u32) -> Command {
    let child = again(name, place);
    let mut shell = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$@\"");
    shell.args(["-c", &script, "sh"]).arg(child.get_program()).args(child.get_args());
    shell.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

/// Lets files grow again.
pub(crate) fn lift_the_limit() {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
}

/// Small numbers nobody chose, for moments to kill at.
pub(crate) struct Chance(Mutex<u64>);

impl Chance {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(uuid::Uuid::new_v4().as_u64_pair().0))
    }

    pub(crate) fn below(&self, limit: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % limit
    }
}
