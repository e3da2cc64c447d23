//! The limits of the host budget by name, and how often each one was reached since the process started.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! limits {
    ($($(#[$doc:meta])* $variant:ident = $name:literal;)*) => {
        /// A limit of the host budget.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum HostLimit { $($(#[$doc])* $variant,)* }

        impl HostLimit {
            /// Every limit.
            pub const ALL: &[HostLimit] = &[$(HostLimit::$variant,)*];

            /// Returns the key in the section `[limits]` of `viv.toml`.
            pub fn key(self) -> &'static str {
                match self { $(HostLimit::$variant => $name,)* }
            }
        }
    };
}

limits! {
    /// Bytes of bodies and buffers in memory, per session.
    InFlight = "in_flight";
    /// Time without a byte of a body.
    BodyIdle = "body_idle";
    /// Time for a whole body.
    BodyTotal = "body_total";
    /// Connections of a session at each listener.
    Connections = "connections";
    /// Permission requests and questions of a session that wait for an answer.
    PendingRequests = "pending_requests";
    /// Bytes of a session's journal.
    Journal = "journal";
    /// Bytes of stored bodies of a session.
    Bodies = "bodies";
    /// Bytes of the journal of a gateway key.
    KeyJournal = "key_journal";
    /// Free space of the data directory's file system.
    FreeSpace = "free_space";
    /// Open sessions of the host.
    Sessions = "sessions";
    /// Open sessions that one token created.
    SessionsPerToken = "sessions_per_token";
}

static HITS: [AtomicU64; HostLimit::ALL.len()] = [const { AtomicU64::new(0) }; HostLimit::ALL.len()];

/// How often each limit was reached in this process, for the metrics.
#[derive(Debug, Clone, Copy)]
pub struct LimitHits;

impl LimitHits {
    /// Counts that `limit` was reached.
    pub fn count(limit: HostLimit) {
        HITS[limit as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// Returns every limit with the number of times that it was reached.
    pub fn read() -> impl Iterator<Item = (HostLimit, u64)> {
        HostLimit::ALL.iter().zip(&HITS).map(|(limit, hits)| (*limit, hits.load(Ordering::Relaxed)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hits_are_counted_for_their_limit() {
        let hits = |wanted| LimitHits::read().find(|(limit, _)| *limit == wanted).map(|(_, hits)| hits);
        assert_eq!((hits(HostLimit::Journal), hits(HostLimit::Bodies)), (Some(0), Some(0)));
        LimitHits::count(HostLimit::Journal);
        assert_eq!((hits(HostLimit::Journal), hits(HostLimit::Bodies)), (Some(1), Some(0)));
    }
}
