//! One step of one call, as it stands in the daybook: a line of JSON that can be read without the lines before it.

use protocol::{CallId, SessionId, Usage};
use serde::{Deserialize, Serialize};

use super::Progress;
use super::limit::{Scope, Window};
use super::totals::{Difference, Parties};
use crate::OwnerId;

/// A line of the daybook.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Line {
    /// When, in milliseconds.
    pub(super) at: i64,
    pub(super) step: Entry,
}

/// What was done.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Entry {
    Hold(Box<HoldEntry>),
    Advance {
        call: CallId,
        progress: Progress,
    },
    Settle {
        call: CallId,
        share: Share,
        picos: i64,
        usage: Usage,
    },
    Fail {
        call: CallId,
        share: Share,
        reason: String,
    },
    /// The tables were changed without the daybook: sums that were read from them before are worth nothing.
    Forget,
}

/// A hold that was granted.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct HoldEntry {
    pub(super) call: CallId,
    pub(super) share: Share,
    pub(super) system: String,
    pub(super) reference: String,
    pub(super) user: Option<String>,
    pub(super) agent: Option<String>,
    pub(super) model: String,
    pub(super) price_hash: String,
    pub(super) sent: bool,
    /// It uses a part of its session's lease.
    pub(super) leased: bool,
    /// Whose requests are counted by the minute.
    pub(super) minutes: Vec<Scope>,
    pub(super) owner: OwnerId,
    pub(super) boot: String,
}

/// What is set aside for a call, and whose sums it counts in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) session: SessionId,
    pub(super) account: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<String>,
    /// The day it was held on.
    pub(super) day: i64,
    pub(super) picos: i64,
}

impl Share {
    pub(super) fn parties(&self) -> Parties<'_> {
        Parties { session: self.session.as_str(), account: &self.account, key: self.key.as_deref() }
    }
}

impl Line {
    /// As it is written, newline included.
    pub(super) fn encode(&self) -> serde_json::Result<Vec<u8>> {
        let mut line = Vec::with_capacity(512);
        serde_json::to_writer(&mut line, self)?;
        line.push(b'\n');
        Ok(line)
    }

    /// Says to `add` which sums the step changes, and by how much.
    pub(super) fn differences(&self, mut add: impl FnMut(Parties<'_>, Scope, Window, i64, Difference)) {
        let (share, difference) = match &self.step {
            Entry::Hold(hold) => (&hold.share, Difference { held: hold.share.picos, spent: 0, requests: 1 }),
            Entry::Settle { share, picos, .. } => {
                (share, Difference { held: -share.picos, spent: *picos, requests: 0 })
            }
            Entry::Fail { share, .. } => (share, Difference { held: -share.picos, ..Difference::default() }),
            Entry::Advance { .. } | Entry::Forget => return,
        };
        for scope in Scope::ALL {
            add(share.parties(), scope, Window::Ever, 0, difference);
            add(share.parties(), scope, Window::Day, share.day, difference);
        }
        if let Entry::Hold(hold) = &self.step {
            for scope in &hold.minutes {
                let one = Difference { requests: 1, ..Difference::default() };
                add(share.parties(), *scope, Window::Minute, Window::Minute.number(self.at), one);
            }
        }
    }
}
