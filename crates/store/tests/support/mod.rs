//! Fixtures of the store tests: a manual clock, drafts, and child processes.

#![allow(dead_code, reason = "each test binary uses only some fixtures")]

pub(crate) mod calls;

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use jiff::Timestamp;
use protocol::{EventBody, EventDraft, ItemDelta, ItemId, SessionEndReason, SessionEnded, SessionId, TerminatedBy};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::{Clock, FileJournal, OpenedJournal, SystemClock};

/// A clock that shows a fixed time until it is set.
pub(crate) struct ManualClock(AtomicI64);

impl ManualClock {
    pub(crate) fn at(seconds: i64) -> Arc<Self> {
        Arc::new(Self(AtomicI64::new(seconds)))
    }

    pub(crate) fn set(&self, seconds: i64) {
        self.0.store(seconds, Ordering::SeqCst);
    }
}

impl Clock for ManualClock {
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

/// Returns an `item.delta` event with `text`.
pub(crate) fn delta(text: impl Into<String>) -> EventDraft {
    let item_id = ItemId::new("itm_1").unwrap();
    EventDraft::agent(EventBody::ItemDelta(ItemDelta { item_id, native_item_id: None, delta: text.into() }))
}

/// Returns a `session.ended` event.
pub(crate) fn ended() -> EventDraft {
    EventDraft::daemon(EventBody::SessionEnded(SessionEnded {
        reason: SessionEndReason::Completed,
        terminated_by: TerminatedBy::Daemon,
        message: None,
        exit_code: Some(0),
        stderr: None,
    }))
}

/// The environment variable with the directory of a child; set only by [`child_command`].
const CHILD_DIRECTORY: &str = "STORE_TEST_CHILD_DIRECTORY";

/// Returns the working directory if this process is the child of a test.
pub(crate) fn child_directory() -> Option<PathBuf> {
    std::env::var_os(CHILD_DIRECTORY).map(PathBuf::from)
}

/// Returns the command that runs the test `name` of this binary as a child in `directory`.
pub(crate) fn child_command(name: &str, directory: &Path) -> Command {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", name, "--nocapture"]).env(CHILD_DIRECTORY, directory).stdout(Stdio::piped());
    command
}

/// Like [`child_command`], with a file size limit in blocks of 512 bytes, which makes writes fail as on a full disk.
/// The shell ignores SIGXFSZ before the start, which needs unsafe code in Rust.
pub(crate) fn child_command_with_file_limit(name: &str, directory: &Path, blocks: u32) -> Command {
    let child = child_command(name, directory);
    let mut shell = Command::new("sh");
    let script = format!("trap '' XFSZ; ulimit -S -f {blocks}; exec \"$@\"");
    shell.args(["-c", &script, "sh"]).arg(child.get_program()).args(child.get_args());
    shell.envs(child.get_envs().filter_map(|(name, value)| Some((name, value?))));
    shell
}

/// Removes the file size limit.
pub(crate) fn remove_file_limit() {
    let maximum = getrlimit(Resource::Fsize).maximum;
    setrlimit(Resource::Fsize, Rlimit { current: maximum, maximum }).unwrap();
}

/// A source of random numbers, for the times of kills.
pub(crate) struct RandomNumbers(Mutex<u64>);

impl RandomNumbers {
    pub(crate) fn new() -> Self {
        Self(Mutex::new(uuid::Uuid::new_v4().as_u64_pair().0))
    }

    pub(crate) fn below(&self, limit: u64) -> u64 {
        let mut state = self.0.lock().unwrap();
        *state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (*state >> 33) % limit
    }
}
