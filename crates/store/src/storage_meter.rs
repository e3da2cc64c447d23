//! The disk space of one session: the bytes of its journal and of its stored bodies, and the free space left.
//!
//! A record or body that would exceed a limit is refused before it is written. Records that end something, such as a
//! turn or a model call, are still written, so that a session whose limit is reached can end its turn and be read.

use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use base::{HostLimit, LimitHits, lock};
use protocol::{EventBody, EventDraft, EventSource, ProblemCode};
use tokio::sync::Notify;

/// The most disk space of one session, and the free space that it must leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageLimits {
    /// The most bytes of the journal.
    pub journal_bytes: u64,
    /// The most bytes of stored bodies.
    pub body_bytes: u64,
    /// The least free space of the data directory's file system.
    pub free_space: FreeSpaceFloor,
}

impl Default for StorageLimits {
    fn default() -> Self {
        Self { journal_bytes: 256 << 20, body_bytes: 1 << 30, free_space: FreeSpaceFloor::default() }
    }
}

/// The least free space of a file system: a number of bytes, but at most a share of the whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FreeSpaceFloor {
    /// The bytes that must stay free.
    pub bytes: u64,
    /// The largest share of the file system that must stay free, in percent.
    pub percent: u64,
}

impl Default for FreeSpaceFloor {
    fn default() -> Self {
        Self { bytes: 512 << 20, percent: 2 }
    }
}

impl FreeSpaceFloor {
    /// Fails if the file system of `directory` has less free space than the floor.
    pub fn check(self, directory: &Path) -> Result<(), StorageExceeded> {
        // A file system that cannot be asked is not full; a write to it may still fail.
        let Ok(space) = rustix::fs::statvfs(directory) else { return Ok(()) };
        self.check_space(space.f_bavail.saturating_mul(space.f_frsize), space.f_blocks.saturating_mul(space.f_frsize))
    }

    fn check_space(self, free: u64, total: u64) -> Result<(), StorageExceeded> {
        let floor = self.bytes.min(total / 100 * self.percent.min(100));
        if free >= floor {
            return Ok(());
        }
        LimitHits::count(HostLimit::FreeSpace);
        Err(StorageExceeded { limit: HostLimit::FreeSpace, found: free, allowed: floor })
    }
}

/// A limit on disk space that is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{}", describe(self))]
pub struct StorageExceeded {
    /// The limit.
    pub limit: HostLimit,
    /// The bytes that are used, or free.
    pub found: u64,
    /// The most bytes that may be used, or the least that must be free.
    pub allowed: u64,
}

impl StorageExceeded {
    /// Returns the stable code for clients.
    pub fn code(&self) -> ProblemCode {
        match self.limit {
            HostLimit::FreeSpace => ProblemCode::DiskFull,
            _ => ProblemCode::SessionStorageFull,
        }
    }

    /// Returns a command that helps.
    pub fn hint(&self) -> &'static str {
        match self.limit {
            HostLimit::FreeSpace => "df -h",
            _ => "viv doctor",
        }
    }

    /// Returns the limit that caused `error`, if one did.
    pub fn cause_of(error: &(dyn std::error::Error + 'static)) -> Option<Self> {
        let mut causes = std::iter::successors(Some(error), |&error| error.source());
        causes.find_map(|cause| {
            let wrapped = cause.downcast_ref::<std::io::Error>().and_then(std::io::Error::get_ref);
            let inner = wrapped.and_then(|inner| Self::cause_of(inner));
            cause.downcast_ref::<Self>().copied().or(inner)
        })
    }
}

fn describe(exceeded: &StorageExceeded) -> String {
    let StorageExceeded { limit, found, allowed } = exceeded;
    let key = limit.key();
    match limit {
        HostLimit::FreeSpace => {
            format!(
                "the data directory has {found} bytes of free space, less than the floor of {allowed} (limits.{key})"
            )
        }
        HostLimit::Bodies => {
            format!("the stored bodies of the session need {found} bytes; the limit is {allowed} (limits.{key})")
        }
        HostLimit::KeyJournal => {
            format!("the journal of the key needs {found} bytes; the limit is {allowed} (limits.{key})")
        }
        _ => format!("the journal of the session needs {found} bytes; the limit is {allowed} (limits.{key})"),
    }
}

/// One part in this many of a limit must be left for a turn to start.
const SPARE_SHARE: u64 = 64;

/// Counts the disk space of one session against its limits.
#[derive(Debug)]
pub struct StorageMeter {
    directory: PathBuf,
    limits: StorageLimits,
    /// The name of the limit on the journal.
    journal_limit: HostLimit,
    bodies: AtomicU64,
    /// The limit that was reached last. The limits are fixed, so no turn starts after it.
    refused: Mutex<Option<StorageExceeded>>,
    /// Signalled when something is refused.
    reached: Notify,
}

impl StorageMeter {
    /// Returns a meter for a session of the data directory `directory` that has stored no body.
    pub fn new(directory: PathBuf, limits: StorageLimits) -> Self {
        Self {
            directory,
            limits,
            journal_limit: HostLimit::Journal,
            bodies: AtomicU64::new(0),
            refused: Mutex::default(),
            reached: Notify::new(),
        }
    }

    /// Returns a meter for the journal of a gateway key in the data directory `directory`.
    pub fn of_key(directory: PathBuf, journal_bytes: u64) -> Self {
        let limits = StorageLimits { journal_bytes, body_bytes: u64::MAX, ..StorageLimits::default() };
        Self { journal_limit: HostLimit::KeyJournal, ..Self::new(directory, limits) }
    }

    /// Sets the bytes of bodies that were stored before, from the sizes of their files.
    pub fn set_body_bytes(&self, bytes: u64) {
        self.bodies.store(bytes, Ordering::Relaxed);
    }

    /// Returns the bytes of stored bodies.
    pub fn body_bytes(&self) -> u64 {
        self.bodies.load(Ordering::Relaxed)
    }

    /// Fails if no turn may start: a limit is reached, or the disk has too little free space.
    pub fn check(&self, journal_bytes: u64) -> Result<(), StorageExceeded> {
        let checks = [
            (self.journal_limit, journal_bytes, self.limits.journal_bytes),
            (HostLimit::Bodies, self.body_bytes(), self.limits.body_bytes),
        ];
        if let Some(exceeded) = *lock(&self.refused) {
            return Err(exceeded);
        }
        for (limit, found, allowed) in checks {
            // A turn that starts with almost no space left would only end again.
            if found >= allowed - allowed / SPARE_SHARE {
                return Err(StorageExceeded { limit, found, allowed });
            }
        }
        self.check_free_space()
    }

    /// Fails if the disk has too little free space.
    pub fn check_free_space(&self) -> Result<(), StorageExceeded> {
        self.limits.free_space.check(&self.directory)
    }

    /// Waits until something was refused, and returns the limit.
    pub async fn reached(&self) -> StorageExceeded {
        loop {
            self.reached.notified().await;
            if let Some(exceeded) = *lock(&self.refused) {
                return exceeded;
            }
        }
    }

    /// Fails if `drafts` need more space than the journal may take, unless each of them ends something.
    pub(crate) fn admit_records(&self, needed: u64, drafts: &[EventDraft]) -> Result<(), StorageExceeded> {
        let allowed = self.limits.journal_bytes;
        if needed <= allowed || drafts.iter().all(ends_something) {
            return Ok(());
        }
        Err(self.refuse(StorageExceeded { limit: self.journal_limit, found: needed, allowed }))
    }

    /// Counts a body of `bytes` bytes. Fails if it does not fit.
    pub(crate) fn admit_body(&self, bytes: u64) -> Result<(), StorageExceeded> {
        let (allowed, found) = (self.limits.body_bytes, self.bodies.fetch_add(bytes, Ordering::Relaxed) + bytes);
        if found <= allowed {
            return Ok(());
        }
        self.bodies.fetch_sub(bytes, Ordering::Relaxed);
        Err(self.refuse(StorageExceeded { limit: HostLimit::Bodies, found, allowed }))
    }

    /// Counts bytes of a recording of the screen. Returns false if they do not fit; the session goes on without them.
    pub fn admit_recording(&self, bytes: u64) -> bool {
        let found = self.bodies.fetch_add(bytes, Ordering::Relaxed) + bytes;
        // Model calls need the other half: a recording must not end its session.
        if found <= self.limits.body_bytes / 2 {
            return true;
        }
        self.bodies.fetch_sub(bytes, Ordering::Relaxed);
        false
    }

    fn refuse(&self, exceeded: StorageExceeded) -> StorageExceeded {
        LimitHits::count(exceeded.limit);
        *lock(&self.refused) = Some(exceeded);
        self.reached.notify_one();
        exceeded
    }
}

/// Returns whether the host records with `draft` that something has ended. The number of such records is bounded by the
/// things that are open.
fn ends_something(draft: &EventDraft) -> bool {
    let by_host = draft.synthetic || draft.source == EventSource::Daemon;
    by_host
        && match &draft.body {
            EventBody::Error(error) => {
                let codes = [ProblemCode::SessionStorageFull, ProblemCode::DiskFull].map(ProblemCode::as_str);
                error.code.as_deref().is_some_and(|code| codes.contains(&code))
            }
            EventBody::TurnEnded(_)
            | EventBody::SessionEnded(_)
            | EventBody::SessionRecovered(_)
            | EventBody::SessionStatus(_)
            | EventBody::ItemCompleted(_)
            | EventBody::PermissionResolved(_)
            | EventBody::QuestionResolved(_)
            | EventBody::MessageRemoved(_)
            | EventBody::AnthropicResponse(_)
            | EventBody::OpenaiResponse(_)
            | EventBody::GeminiResponse(_)
            | EventBody::UpstreamError(_)
            | EventBody::LlmCall(_)
            | EventBody::TaskCommandFinished(_)
            | EventBody::WorkspaceChanged(_) => true,
            _ => false,
        }
}

#[cfg(test)]
mod tests {
    use protocol::{Turn, TurnPhase};

    use super::*;

    fn meter(journal_bytes: u64, body_bytes: u64) -> StorageMeter {
        let free_space = FreeSpaceFloor { bytes: 0, percent: 0 };
        StorageMeter::new("/".into(), StorageLimits { journal_bytes, body_bytes, free_space })
    }

    fn turn(phase: TurnPhase) -> EventDraft {
        let turn = Turn { phase, turn_id: None, outcome: None, metadata: None };
        EventDraft::daemon(match phase {
            TurnPhase::Started => EventBody::TurnStarted(turn),
            TurnPhase::Ended => EventBody::TurnEnded(turn),
        })
    }

    #[tokio::test]
    async fn full_journal_accepts_only_the_ends_of_things() {
        let meter = meter(100, 100);
        assert_eq!(meter.admit_records(100, &[turn(TurnPhase::Started)]), Ok(()));
        let exceeded = meter.admit_records(101, &[turn(TurnPhase::Started)]).unwrap_err();
        assert_eq!(
            exceeded.to_string(),
            "the journal of the session needs 101 bytes; the limit is 100 (limits.journal)"
        );
        assert_eq!(meter.reached().await, exceeded);
        assert_eq!(meter.admit_records(101, &[turn(TurnPhase::Ended)]), Ok(()));
        let by_agent = EventDraft { source: EventSource::Agent, ..turn(TurnPhase::Ended) };
        assert!(meter.admit_records(101, &[by_agent]).is_err(), "an agent can print any number of ends");
    }

    #[test]
    fn refused_body_is_not_counted() {
        let meter = meter(100, 100);
        assert_eq!(meter.admit_body(60), Ok(()));
        assert!(meter.admit_body(41).is_err() && meter.admit_body(40).is_ok());
        assert_eq!(meter.check(0).unwrap_err().limit, HostLimit::Bodies);
    }

    #[test]
    fn free_space_floor_is_the_smaller_of_bytes_and_share() {
        let floor = FreeSpaceFloor { bytes: 1000, percent: 2 };
        assert!(floor.check_space(1000, 1_000_000).is_ok() && floor.check_space(999, 1_000_000).is_err());
        assert!(floor.check_space(20, 1_000).is_ok() && floor.check_space(19, 1_000).is_err());
        let above_every_disk = FreeSpaceFloor { bytes: u64::MAX, percent: 100 };
        assert_eq!(above_every_disk.check(Path::new("/")).unwrap_err().code(), ProblemCode::DiskFull);
    }

    #[test]
    fn limit_is_found_behind_other_errors() {
        let exceeded = StorageExceeded { limit: HostLimit::Bodies, found: 2, allowed: 1 };
        assert_eq!(StorageExceeded::cause_of(&std::io::Error::other(exceeded)), Some(exceeded));
        assert_eq!(StorageExceeded::cause_of(&std::io::Error::other("no")), None);
    }
}
