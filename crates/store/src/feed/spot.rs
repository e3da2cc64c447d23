//! A place among the events of all sessions, as clients keep it.

use std::fmt;
use std::str::FromStr;

/// A place among the events of all sessions: behind one event of one session. To clients it is one word without meaning.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedCursor {
    /// Which feed.
    pub(super) feed: u64,
    /// How many events of all sessions come before or are it.
    pub number: u64,
    /// The session, by its place in the list of sessions.
    pub(super) place: i64,
    /// The event.
    pub(super) sequence: u64,
}

/// What was said is no place in any feed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no place among the events")]
pub struct FeedCursorError(String);

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { feed, number, place, sequence } = self;
        write!(f, "{feed:016x}-{number:x}-{place:x}-{sequence:x}")
    }
}

impl FromStr for FeedCursor {
    type Err = FeedCursorError;

    fn from_str(text: &str) -> Result<Self, FeedCursorError> {
        let parse = || {
            let mut parts = text.split('-').map(|part| u64::from_str_radix(part, 16).ok());
            let mut next = || parts.next().flatten();
            let (feed, number, place, sequence) = (next()?, next()?, next()?, next()?);
            let place = i64::try_from(place).ok()?;
            parts.next().is_none().then_some(Self { feed, number, place, sequence })
        };
        parse().ok_or_else(|| FeedCursorError(text.chars().take(80).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spot_survives_its_text() {
        let spot = FeedCursor { feed: 7, number: u64::MAX, place: 3, sequence: 19 };
        assert_eq!(spot.to_string().parse(), Ok(spot));
        for bad in ["", "7", "1-2-3", "1-2-3-4-5", "1-2-3-g", "+1-2-3-", "1-2-ffffffffffffffff-4"] {
            assert!(bad.parse::<FeedCursor>().is_err(), "{bad}");
        }
    }
}
