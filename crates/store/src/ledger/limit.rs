//! Limits on money, tokens and requests.

use serde::{Deserialize, Serialize};

/// One limit. The caller passes the limits of a call; the ledger keeps the totals to check them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageLimit {
    /// Name in the policy or configuration: `budget_usd`, `max_requests`.
    pub name: &'static str,
    /// The calls that are counted.
    pub scope: LimitScope,
    /// The time window in which they are counted.
    pub window: LimitWindow,
    /// The highest total allowed.
    pub max: LimitAmount,
}

/// The calls that a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// All calls.
    Everything,
    /// Calls of the same session.
    Session,
    /// Calls that the same account pays for.
    Account,
    /// Calls with the same gateway key.
    Key,
}

impl LimitScope {
    pub(super) const ALL: [Self; 4] = [Self::Everything, Self::Session, Self::Account, Self::Key];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Everything => "everything",
            Self::Session => "session",
            Self::Account => "account",
            Self::Key => "key",
        }
    }
}

/// The time window of a limit. A call counts in the window in which it was held, also if it is settled later.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitWindow {
    /// All time.
    Ever,
    /// A day in UTC.
    Day,
    /// A minute of the clock. Only requests are counted by minute, not money.
    Minute,
}

impl LimitWindow {
    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Ever => "ever",
            Self::Day => "day",
            Self::Minute => "minute",
        }
    }

    /// Returns the number of the window that contains the time `now_ms`.
    pub(super) fn number(self, now_ms: i64) -> i64 {
        match self {
            Self::Ever => 0,
            Self::Day => now_ms.div_euclid(86_400_000),
            Self::Minute => now_ms.div_euclid(60_000),
        }
    }

    /// Returns a time in the window with that number.
    pub(super) fn start_ms(self, number: i64) -> i64 {
        match self {
            Self::Ever => 0,
            Self::Day => number.saturating_mul(86_400_000),
            Self::Minute => number.saturating_mul(60_000),
        }
    }
}

/// The amount that a limit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum LimitAmount {
    /// Money, in pico-dollars.
    Picos(u64),
    /// Tokens of calls without a known price.
    Tokens(u64),
    /// Number of calls, including failed ones.
    Requests(u64),
}

impl LimitAmount {
    pub(super) fn amount(self) -> u64 {
        match self {
            Self::Picos(amount) | Self::Tokens(amount) | Self::Requests(amount) => amount,
        }
    }
}
