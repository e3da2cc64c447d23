//! A change of what a running session may reach.
//!
//! Only the network can change while a sandbox stands: everything else was built into it. Changes are on record and hold in
//! their order, also after a restart, so that nothing that was taken away comes back by itself.

use std::time::Duration;

use policy::{EffectivePolicy, NarrowingLayer, PolicyKey};
use protocol::{EventBody, PolicyChange, SessionId};

use crate::command::Command;
use crate::{SessionError, Sessions};

/// A grant lasts no longer: whoever gave it should be asked again.
const GRANT_MOST: Duration = Duration::from_secs(30 * 24 * 3600);
/// What a rule means that cannot be read any more.
const CLOSED: &str = "net.enabled=false";

/// A change of what a running session may reach.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    /// Less.
    Narrow(PolicyChange),
    /// More, as a person granted it.
    Widen(PolicyChange),
}

impl Change {
    /// What it is in the record.
    pub(crate) fn event(&self) -> EventBody {
        match self.clone() {
            Self::Narrow(change) => EventBody::PolicyNarrowed(change),
            Self::Widen(change) => EventBody::PolicyWidened(change),
        }
    }

    /// When it ends by itself.
    pub(crate) fn expires_unix_secs(&self) -> Option<u64> {
        match self {
            Self::Narrow(_) => None,
            Self::Widen(change) => change.expires_unix_secs,
        }
    }

    /// Whether it still counts.
    pub(crate) fn holds_at(&self, unix_secs: u64) -> bool {
        self.expires_unix_secs().is_none_or(|expires| unix_secs < expires)
    }

    /// The policy with this change, or why it cannot be made.
    pub(crate) fn check(&self, policy: EffectivePolicy) -> Result<EffectivePolicy, SessionError> {
        let (Self::Narrow(PolicyChange { rules, .. }) | Self::Widen(PolicyChange { rules, .. })) = self;
        rules.iter().try_fold(policy, |policy, rule| self.one(&policy, rule))
    }

    /// The policy with a change that was made before.
    ///
    /// What was taken away stays away, though a grant it was taken from may have ended; what was granted and is above
    /// the ceiling by now is not given.
    pub(crate) fn on(&self, policy: EffectivePolicy) -> EffectivePolicy {
        match self {
            Self::Narrow(change) => {
                let read = |rule: &String| NarrowingLayer::assign(rule).or_else(|_| NarrowingLayer::assign(CLOSED));
                change.rules.iter().filter_map(|rule| read(rule).ok()).fold(policy, |policy, rule| policy.restricted_by(&rule))
            }
            Self::Widen(_) => self.check(policy.clone()).unwrap_or(policy),
        }
    }

    fn one(&self, policy: &EffectivePolicy, rule: &str) -> Result<EffectivePolicy, SessionError> {
        let (parsed, narrows) = match self {
            Self::Narrow(_) => (NarrowingLayer::assign(rule)?, true),
            Self::Widen(_) => (NarrowingLayer::grant(rule)?, false),
        };
        let of_network =
            |key: PolicyKey| matches!(key, PolicyKey::NetEnabled | PolicyKey::NetAllowlist | PolicyKey::NetDenylist);
        if !parsed.keys().all(of_network) {
            let why = "only `net` can change while a session runs; the rest was built into its sandbox";
            return Err(SessionError::NotSupported { field: "rules", why });
        }
        Ok(if narrows { policy.narrowed(&[parsed])? } else { policy.with_grant(&parsed)? })
    }
}

impl Sessions {
    /// Takes away from what a session may reach, each as `key=value`: from here on, and for the rest of its life.
    pub async fn narrow(&self, id: &SessionId, rules: Vec<String>) -> Result<(), SessionError> {
        let change = Change::Narrow(PolicyChange { rules, expires_unix_secs: None });
        self.ask(id, |reply| Command::Change(change, reply)).await
    }

    /// Lets a session reach what a person granted, each as `key=value`, for a time. Nothing passes the ceiling.
    pub async fn widen(&self, id: &SessionId, rules: Vec<String>, time: Duration) -> Result<(), SessionError> {
        if time.is_zero() || time > GRANT_MOST {
            return Err(SessionError::NotSupported { field: "seconds", why: "a grant lasts from 1 second to 30 days" });
        }
        let expires_unix_secs = Some(self.host.shelf.now_unix_secs().saturating_add(time.as_secs()));
        let change = Change::Widen(PolicyChange { rules, expires_unix_secs });
        self.ask(id, |reply| Command::Change(change, reply)).await
    }
}

#[cfg(test)]
mod tests {
    use policy::{Action, BaseLayer, CeilingLayer, PolicySource};

    use super::*;

    fn change(rules: &[&str], expires_unix_secs: Option<u64>) -> PolicyChange {
        PolicyChange { rules: rules.iter().map(|rule| (*rule).to_owned()).collect(), expires_unix_secs }
    }

    #[test]
    fn changes_hold_in_their_order_and_until_they_end() {
        let base = BaseLayer::read(&PolicySource::new("base", "net: {enabled: true, allowlist: [\"*.example.com\"]}"))
            .unwrap();
        let policy = policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]);
        let reaches = |policy: &EffectivePolicy, host: &str| policy.decide(&Action::net(host).unwrap()).is_allowed();
        let granted = Change::Widen(change(&["net.allowlist=a.example.org"], Some(100)));
        assert!(granted.holds_at(99) && !granted.holds_at(100));
        let wider = granted.on(policy.clone());
        assert!(reaches(&wider, "a.example.org") && reaches(&wider, "a.example.com"));
        let narrower = Change::Narrow(change(&["net.denylist=a.example.org,b.example.com"], None)).on(wider);
        assert!(!reaches(&narrower, "a.example.org") && !reaches(&narrower, "b.example.com"));
        assert!(reaches(&narrower, "a.example.com"));
        // A narrowing to what was granted leaves nothing when the grant has ended, not everything.
        let only = Change::Narrow(change(&["net.allowlist=a.example.org"], None)).on(policy.clone());
        assert!(!reaches(&only, "a.example.org") && !reaches(&only, "a.example.com"));
        let more = Change::Narrow(change(&["net.allowlist=a.example.net"], None)).check(policy.clone());
        assert_eq!(more.unwrap_err().code(), protocol::ProblemCode::PolicyWideningDenied);
        let files = Change::Widen(change(&["fs.read=/etc"], None)).check(policy);
        assert_eq!(files.unwrap_err().code(), protocol::ProblemCode::InvalidRequest);
    }
}
