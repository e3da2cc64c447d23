//! What a person allowed beside the policy, for one session or one call, until a time.

use protocol::SessionId;
use serde::{Deserialize, Serialize};

use crate::finding::PolicyError;
use crate::layer::NarrowingLayer;
use crate::widening::Widening;

/// A person's yes to exactly one widening.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WideningGrant {
    /// Who may use it.
    pub scope: GrantScope,
    /// What it covers, as `key=value`: one value or one entry of a list, never a pattern of them.
    #[serde(rename = "match")]
    pub covers: String,
    /// When it ends, in seconds since 1970.
    pub expires_unix_secs: u64,
}

/// Who may use a grant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum GrantScope {
    /// Every call of a session.
    Session {
        /// The session.
        session_id: SessionId,
    },
    /// One call of a session.
    Call {
        /// The session.
        session_id: SessionId,
        /// The call, in the words of whoever asked.
        call: String,
    },
}

/// Who asks, and when.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantContext {
    /// The session that asks; none where there is no session yet, and then no grant fits.
    pub session_id: Option<SessionId>,
    /// The call that asks.
    pub call: Option<String>,
    /// Seconds since 1970.
    pub now_unix_secs: u64,
}

impl WideningGrant {
    /// Checks that `covers` has a meaning, before a person is shown it.
    pub fn check(&self) -> Result<(), PolicyError> {
        self.compiled().map(drop)
    }

    /// What it adds, when it covers exactly `widening` in this context.
    pub(crate) fn granting(&self, widening: &Widening, context: &GrantContext) -> Option<NarrowingLayer> {
        if context.now_unix_secs >= self.expires_unix_secs || !self.scope.fits(context) {
            return None;
        }
        let granted = self.compiled().ok()?;
        let [key] = granted.keys().collect::<Vec<_>>()[..] else { return None };
        let [item] = &granted.policy.value(key).items()[..] else { return None };
        (key == widening.key && item.text == widening.requested).then_some(granted)
    }

    fn compiled(&self) -> Result<NarrowingLayer, PolicyError> {
        NarrowingLayer::grant(&self.covers)
    }
}

impl GrantScope {
    fn fits(&self, context: &GrantContext) -> bool {
        match self {
            Self::Session { session_id } => context.session_id.as_ref() == Some(session_id),
            Self::Call { session_id, call } => {
                context.session_id.as_ref() == Some(session_id) && context.call.as_ref() == Some(call)
            }
        }
    }
}
