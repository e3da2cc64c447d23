//! One call, as the gateway tells the ledger about it.

use std::borrow::Cow;
use std::sync::Arc;

use protocol::{CallId, SessionId, Usage};
use serde::{Deserialize, Serialize};

use super::{LedgerError, UsageLimit};

/// No call has so many tokens; a vendor that says so must not make the sums overflow.
const MAX_TOKENS: u64 = 1 << 40;
/// Ten thousand dollars for one call are a mistake, and a batch of larger ones would not fit a sum.
const MAX_PICOS: u64 = 10_000_000_000_000_000;

/// What a call may cost, and whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallHold {
    /// The call.
    pub call: CallId,
    /// Where it comes from; the same source is never held twice.
    pub source: CallSource,
    /// The session.
    pub session: SessionId,
    /// The account that pays.
    pub account: Arc<str>,
    /// The person.
    pub user: Option<Arc<str>>,
    /// Name of the key it came with.
    pub key: Option<Arc<str>>,
    /// Which agent asks.
    pub agent: Option<Arc<str>>,
    /// The model asked for.
    pub model: String,
    /// Hash of the price table the sum was made with.
    pub price_hash: Arc<str>,
    /// The most it can cost.
    pub picos: u64,
    /// What it must fit into.
    pub limits: Vec<UsageLimit>,
    /// The call is sent as soon as the hold is granted. Saves [`CallProgress::Sent`]; a host that dies before it
    /// could send leaves an unknown call then, where an intent would have been released.
    pub sent: bool,
    /// The call's id was made for this hold, so nobody can have held it before. Saves a look into the tables.
    pub fresh: bool,
}

/// Where a call comes from: a system, and the call's place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CallSource {
    /// Which system counted it.
    pub system: Cow<'static, str>,
    /// The run, which is the session unless a task says otherwise.
    pub run: Arc<str>,
    /// Which attempt of the run.
    pub attempt: u32,
}

impl CallSource {
    /// `run/attempt/call`.
    pub(super) fn reference(run: &str, attempt: u32, call: &CallId) -> String {
        let (mut digits, call) = (itoa::Buffer::new(), call.as_str());
        let attempt = digits.format(attempt);
        let mut reference = String::with_capacity(run.len() + attempt.len() + call.len() + 2);
        for part in [run, "/", attempt, "/", call] {
            reference.push_str(part);
        }
        reference
    }
}

/// How far a call got.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CallProgress {
    /// The next byte goes to the upstream: from now on it may cost.
    Sent,
    /// The first byte came back.
    Streaming,
    /// Its answer did not come whole: nobody here knows what it cost, and its hold stays.
    Lost,
}

impl CallProgress {
    /// Where a call is then.
    pub(super) fn state(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Streaming => "streaming",
            Self::Lost => "unknown",
        }
    }

    /// Whether a call can get there from `state`.
    pub(super) fn follows(self, state: &str) -> bool {
        match self {
            Self::Sent => state == "intent",
            Self::Streaming => matches!(state, "intent" | "sent"),
            Self::Lost => matches!(state, "intent" | "sent" | "streaming"),
        }
    }

    /// Why it is there, where that is not plain.
    pub(super) fn reason(self) -> Option<&'static str> {
        (self == Self::Lost).then_some("its answer did not come whole")
    }
}

/// What a call cost in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CallCharge {
    /// Tokens as the vendor counted them.
    pub usage: Usage,
    /// The price; more than was held if the vendor served more than it was asked for.
    pub picos: u64,
}

/// `picos` as the database keeps them.
pub(super) fn checked(picos: u64) -> Result<i64, LedgerError> {
    match i64::try_from(picos) {
        Ok(amount) if picos <= MAX_PICOS => Ok(amount),
        _ => Err(LedgerError::TooMuch(picos)),
    }
}

/// `usage` as it can be added up.
pub(super) fn bounded(usage: Usage) -> Usage {
    Usage {
        input_tokens: usage.input_tokens.min(MAX_TOKENS),
        output_tokens: usage.output_tokens.min(MAX_TOKENS),
        cache_read_tokens: usage.cache_read_tokens.min(MAX_TOKENS),
        cache_write_tokens: usage.cache_write_tokens.min(MAX_TOKENS),
        cache_write_1h_tokens: usage.cache_write_1h_tokens.min(MAX_TOKENS),
    }
}
