//! The events of all sessions of a data directory, one after the other.
//!
//! Each event comes once, those of one session in their order; between sessions the order is that in which they became
//! known here, and it stays that for good ([`store::EventFeed`]). Events themselves are read from the journals, whoever wrote
//! them: a slow reader costs nobody anything, and one that comes back, also after kill -9, goes on behind what it saw.
//!
//! Sessions of this process say when they grow. Those of others are looked at while somebody reads.

mod reading;

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, OnceLock, Weak};
use std::time::Duration;

use base::lock;
use protocol::SessionId;
use store::{EventFeed, FeedCursor, GrownSessions};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

use crate::shelf::{Shelf, blocking};
use crate::{SessionError, Sessions};

pub use reading::{FeedBatch, FeedEntry, FeedFilter, FeedFollower};

/// How often sessions of other processes are looked at. Nobody tells us when they grow.
const PAUSE: Duration = Duration::from_millis(200);

/// The events of all sessions.
pub struct GlobalFeed {
    shelf: Arc<Shelf>,
    feed: EventFeed,
    looked: Mutex<Looked>,
    /// Number of the last event that is known.
    total: watch::Sender<u64>,
    looking: OnceLock<AbortOnDropHandle<()>>,
}

/// What was found when the sessions were looked at.
#[derive(Debug, Default)]
struct Looked {
    /// Place of the newest session.
    newest: i64,
    /// Sessions that another process ran.
    elsewhere: HashMap<i64, SessionId>,
    /// Something was missed: nothing that was noted counts.
    failed: bool,
}

/// Where to look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
enum Look {
    /// At the sessions of this process that say so.
    Grown,
    /// Also at new ones, and at those of other processes.
    Around,
    /// At all there are.
    Everywhere,
}

impl Sessions {
    /// The events of all sessions.
    pub async fn global_feed(&self) -> Result<Arc<GlobalFeed>, SessionError> {
        let host = self.host.clone();
        let everything = blocking(move || host.everything(GlobalFeed::open)).await?;
        everything.look(Look::Everywhere).await?;
        everything.keep_looking();
        Ok(everything)
    }
}

impl GlobalFeed {
    fn open(shelf: Arc<Shelf>) -> Result<Self, SessionError> {
        let feed = EventFeed::open(shelf.directory())?;
        let (looked, total) = (Mutex::default(), watch::Sender::new(0));
        Ok(Self { shelf, feed, looked, total, looking: OnceLock::new() })
    }

    /// Where it begins.
    pub fn beginning(&self) -> FeedCursor {
        self.feed.spot(0, 0, 0)
    }

    /// Where it ends now.
    pub fn end(&self) -> Result<FeedCursor, SessionError> {
        Ok(self.feed.end()?)
    }

    /// Whether somebody has really been at `spot`: it is not, when a power loss took what was there or when it is of
    /// another data directory.
    pub fn holds(&self, spot: &FeedCursor) -> Result<bool, SessionError> {
        Ok(self.feed.holds(spot)?)
    }

    fn keep_looking(self: &Arc<Self>) {
        self.looking.get_or_init(|| {
            let (this, growth) = (Arc::downgrade(self), self.shelf.growth.clone());
            AbortOnDropHandle::new(tokio::spawn(async move {
                loop {
                    // Those of this process tell; the pause is for the others.
                    let look =
                        tokio::time::timeout(PAUSE, growth.changed()).await.map_or(Look::Around, |()| Look::Grown);
                    let Some(everything) = Weak::upgrade(&this) else { return };
                    if let Err(error) = everything.look(look).await {
                        tracing::error!(%error, "cannot look for new events");
                    }
                }
            }))
        });
    }

    async fn look(self: &Arc<Self>, look: Look) -> Result<(), SessionError> {
        if look < Look::Everywhere && self.total.receiver_count() == 0 {
            return Ok(());
        }
        let this = self.clone();
        blocking(move || this.catch_up(look)).await
    }

    /// Finds out which sessions have grown, and by how much.
    fn catch_up(&self, look: Look) -> Result<(), SessionError> {
        let mut looked = lock(&self.looked);
        let told = self.shelf.growth.take();
        let look = if looked.failed || told == GrownSessions::Any {
            *looked = Looked::default();
            Look::Everywhere
        } else {
            look
        };
        // Until it is done it counts as failed: whoever said that it grew does not say it twice.
        looked.failed = true;
        let grown = self.find_grown(&mut looked, told, look)?;
        let total = self.feed.extend(grown)?;
        looked.failed = false;
        self.total.send_if_modified(|known| std::mem::replace(known, total) != total);
        Ok(())
    }

    fn find_grown(
        &self,
        looked: &mut Looked,
        told: GrownSessions,
        look: Look,
    ) -> Result<BTreeMap<i64, u64>, SessionError> {
        let mut grown = BTreeMap::new();
        let told = if let GrownSessions::These(sessions) = told { sessions } else { Vec::new() };
        for id in told {
            if let Some(standing) = self.shelf.index.standing(&id)? {
                grown.insert(standing.place, self.last(&id));
            }
        }
        if look >= Look::Around {
            let from = if look == Look::Everywhere { 0 } else { looked.newest };
            let seen = looked.newest;
            for standing in self.shelf.index.entered_after(from)? {
                looked.newest = looked.newest.max(standing.place);
                let is_known = standing.ended || standing.place <= seen;
                let last = if is_known { standing.event_count } else { self.last(&standing.id) };
                raise(&mut grown, standing.place, last);
            }
            let now = self.shelf.index.run_by_others(self.shelf.owner.id())?;
            let now: HashMap<i64, SessionId> = now.into_iter().map(|standing| (standing.place, standing.id)).collect();
            // Those that were run elsewhere are looked at once more: they may have ended since.
            for (place, id) in now.iter().chain(&looked.elsewhere) {
                raise(&mut grown, *place, self.last(id));
            }
            looked.elsewhere = now;
        }
        Ok(grown)
    }

    /// Number of the last event of a session; 0 where that cannot be told.
    fn last(&self, id: &SessionId) -> u64 {
        self.shelf.last_event(id).unwrap_or_else(|error| {
            tracing::warn!(session = %id, %error, "cannot look at a journal");
            0
        })
    }
}

fn raise(grown: &mut BTreeMap<i64, u64>, place: i64, last: u64) {
    let known = grown.entry(place).or_default();
    *known = last.max(*known);
}
