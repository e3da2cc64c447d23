//! Grants: a person's permission for one thing that the policy does not allow, until a time.

use protocol::SessionId;
use serde::{Deserialize, Serialize};

use crate::finding::PolicyError;
use crate::layer::NarrowingLayer;
use crate::widening::Widening;

/// A grant for exactly one widening.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct WideningGrant {
    /// The session or call that may use the grant.
    pub scope: GrantScope,
    /// The granted `key=value`: one value or one list entry, not a pattern.
    #[serde(rename = "match")]
    pub covers: String,
    /// The expiry, in seconds since 1970.
    pub expires_unix_secs: u64,
}

/// The session or call that may use a grant.
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
        /// The name of the call, chosen by the client.
        call: String,
    },
}

/// The session or call that requests a widening, and the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GrantContext {
    /// The requesting session; `None` before a session exists, when no grant applies.
    pub session_id: Option<SessionId>,
    /// The requesting call.
    pub call: Option<String>,
    /// Seconds since 1970.
    pub now_unix_secs: u64,
}

impl WideningGrant {
    /// Checks that `covers` is valid, before a person sees it.
    pub fn check(&self) -> Result<(), PolicyError> {
        self.compiled().map(drop)
    }

    /// Returns the layer that the grant adds if it covers exactly `widening` in this context.
    pub(crate) fn granting(&self, widening: &Widening, context: &GrantContext) -> Option<NarrowingLayer> {
        if context.now_unix_secs >= self.expires_unix_secs || !self.scope.fits(context) {
            return None;
        }
        let granted = self.compiled().ok()?;
        let [key] = granted.keys().collect::<Vec<_>>()[..] else { return None };
        let [item] = &granted.policy.value(key).entries()[..] else { return None };
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
