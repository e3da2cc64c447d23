//! A cursor of the event feed, as clients store it.

use std::fmt;
use std::str::FromStr;

/// The position after one event in the event feed. For clients it is an opaque text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FeedCursor {
    /// The id of the feed.
    pub(super) feed: u64,
    /// The number of the event in the feed.
    pub number: u64,
    /// The row number of the session in the sessions index.
    pub(super) place: i64,
    /// The sequence number of the event in its session.
    pub(super) sequence: u64,
}

/// The text is not a feed cursor.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("invalid feed cursor `{0}`")]
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
    fn cursor_round_trips_through_text() {
        let cursor = FeedCursor { feed: 7, number: u64::MAX, place: 3, sequence: 19 };
        assert_eq!(cursor.to_string().parse(), Ok(cursor));
        for bad in ["", "7", "1-2-3", "1-2-3-4-5", "1-2-3-g", "+1-2-3-", "1-2-ffffffffffffffff-4"] {
            assert!(bad.parse::<FeedCursor>().is_err(), "{bad}");
        }
    }
}
