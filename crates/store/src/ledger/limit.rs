//! How much may be used, of what, in which time.

use serde::{Deserialize, Serialize};

/// One limit. The caller brings those that count for a call; the ledger keeps the sums they are held against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UsageLimit {
    /// What the policy or configuration calls it: `budget_usd`, `max_requests`.
    pub name: &'static str,
    /// Whose use is counted.
    pub scope: LimitScope,
    /// In which time.
    pub window: LimitWindow,
    /// How much.
    pub max: LimitAmount,
}

/// Whose use a limit counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LimitScope {
    /// All calls together.
    Everything,
    /// The session of the call.
    Session,
    /// The account that pays for it.
    Account,
    /// The key it came with.
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

/// The time a limit counts in. A call counts where it was held, whenever it is settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum LimitWindow {
    /// From the beginning.
    Ever,
    /// The day, in UTC.
    Day,
    /// The minute of the clock; requests only, money of a minute is not kept.
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

    /// Which window of its kind the time `now_ms` falls into.
    pub(super) fn number(self, now_ms: i64) -> i64 {
        match self {
            Self::Ever => 0,
            Self::Day => now_ms.div_euclid(86_400_000),
            Self::Minute => now_ms.div_euclid(60_000),
        }
    }
}

/// How much a limit allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd)]
pub enum LimitAmount {
    /// Money, in pico-dollars.
    Picos(u64),
    /// Calls, failed ones too.
    Requests(u64),
}

impl LimitAmount {
    pub(super) fn amount(self) -> u64 {
        match self {
            Self::Picos(amount) | Self::Requests(amount) => amount,
        }
    }
}
