//! One call, as the gateway tells the ledger about it.

use protocol::{CallId, SessionId, Usage};

use super::{LedgerError, Limit};

/// Ten thousand dollars for one call are a mistake, and a batch of larger ones would not fit a sum.
const MAX_PICOS: u64 = 10_000_000_000_000_000;

/// What a call may cost, and whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// The call.
    pub call: CallId,
    /// Where it comes from; the same source is never held twice.
    pub source: Source,
    /// The session.
    pub session: SessionId,
    /// The account that pays.
    pub account: String,
    /// The person.
    pub user: Option<String>,
    /// Name of the key it came with.
    pub key: Option<String>,
    /// Which agent asks.
    pub agent: Option<String>,
    /// The model asked for.
    pub model: String,
    /// Hash of the price table the sum was made with.
    pub price_hash: String,
    /// The most it can cost.
    pub picos: u64,
    /// What it must fit into.
    pub limits: Vec<Limit>,
    /// The call is sent as soon as the hold is granted. Saves [`Progress::Sent`]; a host that dies before it
    /// could send leaves an unknown call then, where an intent would have been released.
    pub sent: bool,
}

/// Where a call comes from: a system, and the call's place in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Source {
    /// Which system counted it.
    pub system: String,
    /// The run, which is the session unless a task says otherwise.
    pub run: String,
    /// Which attempt of the run.
    pub attempt: u32,
}

impl Source {
    /// `run/attempt/call`.
    pub(super) fn reference(&self, call: &CallId) -> String {
        format!("{}/{}/{call}", self.run, self.attempt)
    }
}

/// How far a call got.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// The next byte goes to the upstream: from now on it may cost.
    Sent,
    /// The first byte came back.
    Streaming,
    /// Its answer did not come whole: nobody here knows what it cost, and its hold stays.
    Lost,
}

/// What a call cost in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Charge {
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
