//! The global feed: the events of all sessions of a data directory in one order.
//!
//! Each event appears once, and events of one session keep their order. Between sessions, the order is that in which
//! the feed found the events, and it never changes ([`store::EventFeed`]). Events are read from the journals, so a slow
//! reader costs nothing, and a reader that returns continues after its cursor, also after a crash.
//!
//! Sessions of this process notify the feed when they grow. Sessions of other processes are polled while somebody reads.

mod reader;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use base::lock;
use protocol::SessionId;
use store::{EventFeed, FeedCursor, GrownSessions};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::storage::{SessionStore, run_blocking};
use crate::{SessionError, Sessions};

pub use reader::{FeedBatch, FeedEntry, FeedFilter, FeedFollower};

/// Poll interval for sessions of other processes, which do not notify us.
const POLL_INTERVAL: Duration = Duration::from_millis(200);

/// The events of all sessions of a data directory.
pub struct GlobalFeed {
    store: Arc<SessionStore>,
    feed: EventFeed,
    scan: Mutex<ScanState>,
    /// Number of the last event in the feed.
    total: watch::Sender<u64>,
    /// The task that scans for new events.
    scanner: Mutex<JoinSet<()>>,
}

/// Results of earlier scans.
#[derive(Debug, Default)]
struct ScanState {
    /// Index position of the newest session.
    newest: i64,
    /// Sessions that other processes run.
    foreign: HashMap<i64, SessionId>,
    /// Whether the last scan failed, so that the next one must start over.
    failed: bool,
}

/// The sessions that a scan covers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum ScanScope {
    /// Sessions of this process that have grown.
    Grown,
    /// Also new sessions, and sessions of other processes.
    Foreign,
    /// All sessions.
    All,
}

impl Sessions {
    /// Returns the global feed, up to date, and starts to watch for new events.
    pub async fn global_feed(&self) -> Result<Arc<GlobalFeed>, SessionError> {
        let host = self.host.clone();
        let feed = run_blocking(move || host.feed_or_open(GlobalFeed::open)).await?;
        feed.scan(ScanScope::All).await?;
        feed.start_scanner();
        Ok(feed)
    }
}

impl GlobalFeed {
    fn open(store: Arc<SessionStore>) -> Result<Self, SessionError> {
        let feed = EventFeed::open(store.directory())?;
        let (scan, total) = (Mutex::default(), watch::Sender::new(0));
        Ok(Self { store, feed, scan, total, scanner: Mutex::default() })
    }

    /// Returns the cursor of the start.
    pub fn beginning(&self) -> FeedCursor {
        self.feed.cursor(0, 0, 0)
    }

    /// Returns the cursor of the current end.
    pub fn end(&self) -> Result<FeedCursor, SessionError> {
        Ok(self.feed.end()?)
    }

    /// Returns whether `cursor` is a position of this feed. It is not after a power failure lost the event there, or when
    /// it belongs to another data directory.
    pub fn holds(&self, cursor: &FeedCursor) -> Result<bool, SessionError> {
        Ok(self.feed.contains(cursor)?)
    }

    /// Spawns the task that scans for new events, once. The task ends when the feed is dropped.
    fn start_scanner(self: &Arc<Self>) {
        let mut scanner = lock(&self.scanner);
        if !scanner.is_empty() {
            return;
        }
        let (this, growth) = (Arc::downgrade(self), self.store.growth.clone());
        scanner.spawn(async move {
            loop {
                // Sessions of this process notify; the interval is for those of other processes.
                let grown = tokio::time::timeout(POLL_INTERVAL, growth.changed()).await;
                let scope = grown.map_or(ScanScope::Foreign, |()| ScanScope::Grown);
                let Some(feed) = Weak::upgrade(&this) else { return };
                if let Err(error) = feed.scan(scope).await {
                    tracing::error!(%error, "cannot scan for new events");
                }
            }
        });
    }

    /// Adds new events to the feed. Does nothing for a partial scan when nobody reads.
    async fn scan(self: &Arc<Self>, scope: ScanScope) -> Result<(), SessionError> {
        if scope < ScanScope::All && self.total.receiver_count() == 0 {
            return Ok(());
        }
        let this = self.clone();
        run_blocking(move || this.scan_now(scope)).await
    }

    fn scan_now(&self, scope: ScanScope) -> Result<(), SessionError> {
        let mut state = lock(&self.scan);
        let notified = self.store.growth.take();
        let scope = if state.failed || notified == GrownSessions::Unlisted {
            *state = ScanState::default();
            ScanScope::All
        } else {
            scope
        };
        // Counts as failed until it is done, because a session does not notify twice of the same growth.
        state.failed = true;
        let grown = self.find_grown(&mut state, notified, scope)?;
        let total = self.feed.extend(grown)?;
        state.failed = false;
        self.total.send_if_modified(|known| std::mem::replace(known, total) != total);
        Ok(())
    }

    /// Returns the last sequence number of each session that may have grown, by index position.
    fn find_grown(
        &self,
        state: &mut ScanState,
        notified: GrownSessions,
        scope: ScanScope,
    ) -> Result<BTreeMap<i64, u64>, SessionError> {
        let mut grown = BTreeMap::new();
        let notified = if let GrownSessions::Listed(sessions) = notified { sessions } else { Vec::new() };
        for id in notified {
            if let Some(standing) = self.store.index.progress(&id)? {
                grown.insert(standing.place, self.last(&id));
            }
        }
        if scope >= ScanScope::Foreign {
            let from = if scope == ScanScope::All { 0 } else { state.newest };
            let seen = state.newest;
            for standing in self.store.index.created_after(from)? {
                state.newest = state.newest.max(standing.place);
                let is_known = standing.ended || standing.place <= seen;
                let last = if is_known { standing.event_count } else { self.last(&standing.id) };
                raise(&mut grown, standing.place, last);
            }
            let now = self.store.index.running_elsewhere(self.store.owner.id())?;
            let now: HashMap<i64, SessionId> = now.into_iter().map(|standing| (standing.place, standing.id)).collect();
            // Sessions that were foreign before are scanned once more, because they may have ended since.
            for (place, id) in now.iter().chain(&state.foreign) {
                raise(&mut grown, *place, self.last(id));
            }
            state.foreign = now;
        }
        Ok(grown)
    }

    /// Returns the last sequence number of a session; 0 when its journal cannot be read.
    fn last(&self, id: &SessionId) -> u64 {
        self.store.last_event(id).unwrap_or_else(|error| {
            tracing::warn!(session = %id, %error, "cannot read a journal");
            0
        })
    }
}

fn raise(grown: &mut BTreeMap<i64, u64>, place: i64, last: u64) {
    let known = grown.entry(place).or_default();
    *known = last.max(*known);
}
