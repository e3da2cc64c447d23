//! One step of one call, as it stands in the daybook: a line of JSON that can be read without the lines before it.

use std::borrow::Cow;
use std::sync::Arc;

use protocol::{CallId, SessionId, Usage};
use serde::{Deserialize, Serialize};

use super::Progress;
use super::limit::{Scope, Window};
use super::totals::{Difference, Parties};
use crate::{OwnerId, json};

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
    pub(super) system: Cow<'static, str>,
    pub(super) reference: String,
    pub(super) user: Option<Arc<str>>,
    pub(super) agent: Option<Arc<str>>,
    pub(super) model: String,
    pub(super) price_hash: Arc<str>,
    pub(super) sent: bool,
    /// It uses a part of its session's lease.
    pub(super) leased: bool,
    /// Whose requests are counted by the minute.
    pub(super) minutes: Vec<Scope>,
    pub(super) owner: OwnerId,
    pub(super) boot: Arc<str>,
}

/// What is set aside for a call, and whose sums it counts in.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) struct Share {
    pub(super) session: SessionId,
    pub(super) account: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) key: Option<Arc<str>>,
    /// The day it was held on.
    pub(super) day: i64,
    pub(super) picos: i64,
}

impl Share {
    /// Whether both count in the same sums.
    pub(super) fn counts_with(&self, other: &Self) -> bool {
        (self.day, &self.session, &self.account, &self.key) == (other.day, &other.session, &other.account, &other.key)
    }

    pub(super) fn parties(&self) -> Parties<'_> {
        Parties { session: self.session.as_str(), account: &self.account, key: self.key.as_deref() }
    }
}

impl Entry {
    /// Whose sums it changes, and by how much.
    pub(super) fn change(&self) -> Option<(&Share, Difference)> {
        match self {
            Self::Hold(hold) => Some((&hold.share, Difference { held: hold.share.picos, spent: 0, requests: 1 })),
            Self::Settle { share, picos, .. } => {
                Some((share, Difference { held: -share.picos, spent: *picos, requests: 0 }))
            }
            Self::Fail { share, .. } => Some((share, Difference { held: -share.picos, ..Difference::default() })),
            Self::Advance { .. } | Self::Forget => None,
        }
    }
}

impl Line {
    /// Adds it to `lines` as it is written, newline included; or nothing.
    pub(super) fn encode(&self, lines: &mut Vec<u8>) -> serde_json::Result<()> {
        let start = lines.len();
        lines.reserve(512);
        json::write(self, lines).inspect_err(|_| lines.truncate(start))?;
        lines.push(b'\n');
        Ok(())
    }

    /// Says to `add` which sums the step changes, and by how much.
    pub(super) fn differences(&self, mut add: impl FnMut(Parties<'_>, Scope, Window, i64, Difference)) {
        let Some((share, difference)) = self.step.change() else { return };
        for scope in Scope::ALL {
            add(share.parties(), scope, Window::Ever, 0, difference);
            add(share.parties(), scope, Window::Day, share.day, difference);
        }
        self.minutes(|parties, scope, number, difference| add(parties, scope, Window::Minute, number, difference));
    }

    /// The same for requests that are counted by the minute alone.
    pub(super) fn minutes(&self, mut add: impl FnMut(Parties<'_>, Scope, i64, Difference)) {
        let Entry::Hold(hold) = &self.step else { return };
        for scope in &hold.minutes {
            let one = Difference { requests: 1, ..Difference::default() };
            add(hold.share.parties(), *scope, Window::Minute.number(self.at), one);
        }
    }
}
