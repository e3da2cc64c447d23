//! One model call as the gateway describes it to the ledger.

use std::borrow::Cow;
use std::sync::Arc;

use protocol::{CallId, SessionId, Usage};
use serde::{Deserialize, Serialize};

use super::{LedgerError, LimitAmount, UsageLimit};

/// The price hash of a call without a known price. Such a call is billed as unpriced, never as free.
pub const UNPRICED_HASH: &str = "unpriced";
/// The most tokens of one call. A larger count of a vendor is capped, so that totals cannot overflow.
const MAX_TOKENS: u64 = 1 << 40;
/// The highest cost of one call, ten thousand dollars. A batch of larger amounts could overflow a total.
const MAX_PICOS: u64 = 10_000_000_000_000_000;

/// A request to reserve the highest possible cost of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHold {
    /// The call.
    pub call: CallId,
    /// The source of the call. The same source is never held twice.
    pub source: CallSource,
    /// The session.
    pub session: SessionId,
    /// The account that pays.
    pub account: Arc<str>,
    /// The user.
    pub user: Option<Arc<str>>,
    /// Id of the gateway key of the caller.
    pub key: Option<Arc<str>>,
    /// The agent that made the call.
    pub agent: Option<Arc<str>>,
    /// The requested model.
    pub model: String,
    /// Hash of the price table that `picos` was computed with.
    pub price_hash: Arc<str>,
    /// The highest possible cost, in pico-dollars.
    pub picos: u64,
    /// The highest possible number of tokens of a call without a known price; 0 for a call with a price.
    pub tokens: u64,
    /// The limits that the hold must not exceed.
    pub limits: Vec<UsageLimit>,
    /// Whether the call is sent as soon as the hold is granted. Saves a [`CallProgress::Sent`], but if the host dies
    /// before sending, the call becomes unknown instead of being released.
    pub sent: bool,
    /// Whether the call id was generated for this hold, so that it cannot be in the ledger. Saves a query.
    pub fresh: bool,
}

/// Another amount for the hold of a call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldChange {
    /// The new amount, in pico-dollars.
    pub picos: u64,
    /// The new number of tokens of a call without a known price; 0 for a call with a price.
    pub tokens: u64,
    /// The limits that a larger hold must not exceed. Limits on requests do not matter: the call was counted.
    pub limits: Vec<UsageLimit>,
}

impl HoldChange {
    pub(super) fn amount_limits(&self) -> Vec<UsageLimit> {
        self.limits.iter().filter(|limit| !matches!(limit.max, LimitAmount::Requests(_))).cloned().collect()
    }
}

/// The source of a call: a system, a run and an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSource {
    /// The system that counted the call.
    pub system: Cow<'static, str>,
    /// The run; the session unless a task sets another.
    pub run: Arc<str>,
    /// Number of the attempt of the run.
    pub attempt: u32,
}

impl CallSource {
    /// Returns `run/attempt/call`.
    pub(super) fn reference(run: &str, attempt: u32, call: &CallId) -> String {
        format!("{run}/{attempt}/{call}")
    }
}

/// The progress of a call that has not ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallProgress {
    /// The call waits for a connection to the upstream. Nothing was sent, so it costs nothing if the host dies now.
    Connecting,
    /// The request is about to be sent to the upstream. From now on it may cost.
    Sent,
    /// The first byte of the response arrived.
    Streaming,
    /// The response is incomplete, so the cost is unknown and the hold stays.
    Lost,
}

impl CallProgress {
    /// Returns the state of a call with this progress.
    pub(super) fn state(self) -> &'static str {
        match self {
            Self::Connecting => "intent",
            Self::Sent => "sent",
            Self::Streaming => "streaming",
            Self::Lost => "unknown",
        }
    }

    /// Returns whether a call in `state` can make this progress.
    pub(super) fn follows(self, state: &str) -> bool {
        match self {
            Self::Connecting => state == "sent",
            Self::Sent => state == "intent",
            Self::Streaming => matches!(state, "intent" | "sent"),
            Self::Lost => matches!(state, "intent" | "sent" | "streaming"),
        }
    }

    /// Returns the reason to record with the state, if any.
    pub(super) fn reason(self) -> Option<&'static str> {
        (self == Self::Lost).then_some("the response is incomplete")
    }
}

/// The actual cost of a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallCharge {
    /// Tokens as counted by the vendor.
    pub usage: Usage,
    /// The cost in pico-dollars. It exceeds the hold if the vendor served more than was requested.
    pub picos: u64,
    /// Whether `picos` is the most that the call can have cost. A later charge that is not estimated replaces it.
    pub estimated: bool,
}

/// Returns `picos` as a database integer. Fails above the highest cost of one call.
pub(super) fn checked_picos(picos: u64) -> Result<i64, LedgerError> {
    match i64::try_from(picos) {
        Ok(amount) if picos <= MAX_PICOS => Ok(amount),
        _ => Err(LedgerError::TooMuch(picos)),
    }
}

/// An amount to hold: money, or tokens of a call without a known price.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct HeldAmount {
    pub(super) picos: u64,
    pub(super) tokens: u64,
}

impl HeldAmount {
    pub(super) fn of(hold: &CallHold) -> Self {
        Self { picos: hold.picos, tokens: hold.tokens }
    }
}

/// Returns `tokens` as a database integer, capped at the most tokens of one call.
pub(super) fn bounded_tokens(tokens: u64) -> i64 {
    i64::try_from(tokens.min(MAX_TOKENS)).unwrap_or(i64::MAX)
}

/// Returns the number of all tokens of `usage`.
pub(super) fn all_tokens(usage: Usage) -> u64 {
    let kinds = [
        usage.input_tokens,
        usage.output_tokens,
        usage.cache_read_tokens,
        usage.cache_write_tokens,
        usage.cache_write_1h_tokens,
    ];
    kinds.into_iter().fold(0, u64::saturating_add)
}

/// Returns `usage` with every count capped at the most tokens of one call.
pub(super) fn bounded_usage(usage: Usage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens.min(MAX_TOKENS),
        output_tokens: usage.output_tokens.min(MAX_TOKENS),
        cache_read_tokens: usage.cache_read_tokens.min(MAX_TOKENS),
        cache_write_tokens: usage.cache_write_tokens.min(MAX_TOKENS),
        cache_write_1h_tokens: usage.cache_write_1h_tokens.min(MAX_TOKENS),
    }
}
