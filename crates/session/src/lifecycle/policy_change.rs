//! Changes of the network policy of a running session.
//!
//! Only the network policy can change: the rest is built into the sandbox. Changes are recorded and applied in order,
//! also after a restart, so that a narrowed policy does not become wider by itself.

use std::sync::Arc;
use std::time::Duration;

use policy::{EffectivePolicy, NarrowingLayer, PolicyKey};
use protocol::{EventBody, PolicyChange, SessionId};

use crate::lifecycle::ActorCommand;
use crate::{SessionError, Sessions};

/// Longest duration of a grant; after it, a person must decide again.
const MAX_GRANT: Duration = Duration::from_secs(30 * 24 * 3600);
/// Replacement for a recorded narrowing rule that cannot be parsed.
const CLOSED: &str = "net.enabled=false";

/// A change of the network policy of a running session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum SessionPolicyChange {
    /// Removes access.
    Narrow(PolicyChange),
    /// Adds access that a person granted.
    Widen(PolicyChange),
}

impl SessionPolicyChange {
    /// Returns the event that records the change.
    pub(crate) fn event(&self) -> EventBody {
        match self.clone() {
            Self::Narrow(change) => EventBody::PolicyNarrowed(change),
            Self::Widen(change) => EventBody::PolicyWidened(change),
        }
    }

    /// Returns when the change expires; `None` for one that never does.
    pub(crate) fn expires_unix_secs(&self) -> Option<u64> {
        match self {
            Self::Narrow(_) => None,
            Self::Widen(change) => change.expires_unix_secs,
        }
    }

    /// Returns whether the change is in force at a time.
    pub(crate) fn holds_at(&self, unix_secs: u64) -> bool {
        self.expires_unix_secs().is_none_or(|expires| unix_secs < expires)
    }

    /// Returns `policy` with this change. Fails for a rule that is invalid, not allowed, or not about the network.
    pub(crate) fn check(&self, policy: EffectivePolicy) -> Result<EffectivePolicy, SessionError> {
        let (Self::Narrow(PolicyChange { rules, .. }) | Self::Widen(PolicyChange { rules, .. })) = self;
        rules.iter().try_fold(policy, |policy, rule| self.with_rule(&policy, rule))
    }

    /// Returns `policy` with a change that was accepted before.
    ///
    /// A narrowing always applies, also when the grant that it narrowed has expired. A grant that is above the current
    /// ceiling is ignored.
    pub(crate) fn apply(&self, policy: EffectivePolicy) -> EffectivePolicy {
        match self {
            Self::Narrow(change) => {
                let read = |rule: &String| NarrowingLayer::assign(rule).or_else(|_| NarrowingLayer::assign(CLOSED));
                change
                    .rules
                    .iter()
                    .filter_map(|rule| read(rule).ok())
                    .fold(policy, |policy, rule| policy.restricted_by(&rule))
            }
            Self::Widen(_) => self.check(policy.clone()).unwrap_or(policy),
        }
    }

    fn with_rule(&self, policy: &EffectivePolicy, rule: &str) -> Result<EffectivePolicy, SessionError> {
        let (parsed, narrows) = match self {
            Self::Narrow(_) => (NarrowingLayer::assign(rule)?, true),
            Self::Widen(_) => (NarrowingLayer::grant(rule)?, false),
        };
        // Registries can be closed, but not opened: interception cannot be switched on later.
        let is_network = |key: PolicyKey| match key {
            PolicyKey::NetEnabled | PolicyKey::NetAllowlist | PolicyKey::NetDenylist => true,
            PolicyKey::NetPackages => narrows,
            _ => false,
        };
        if !parsed.keys().all(is_network) {
            let why = "only `net` can change while a session runs; all other keys are built into its sandbox";
            return Err(SessionError::NotSupported { field: "rules", why });
        }
        Ok(if narrows { policy.narrowed(&[parsed])? } else { policy.with_grant(&parsed)? })
    }
}

impl Sessions {
    /// Narrows the network policy of a session by rules of the form `key=value`, for the rest of the session.
    pub async fn narrow(&self, id: &SessionId, rules: Vec<String>) -> Result<(), SessionError> {
        let change = SessionPolicyChange::Narrow(PolicyChange { rules, expires_unix_secs: None });
        self.send_command(id, |reply| ActorCommand::ChangePolicy(change, reply)).await
    }

    /// Widens the network policy of a session by rules of the form `key=value`, for `time`. Fails for a rule above the
    /// ceiling.
    pub async fn widen(&self, id: &SessionId, rules: Vec<String>, time: Duration) -> Result<(), SessionError> {
        if time.is_zero() || time > MAX_GRANT {
            return Err(SessionError::NotSupported {
                field: "seconds",
                why: "the duration of a grant must be between 1 second and 30 days",
            });
        }
        let expires_unix_secs = Some(self.host.store.now_unix_secs().saturating_add(time.as_secs()));
        let change = SessionPolicyChange::Widen(PolicyChange { rules, expires_unix_secs });
        self.send_command(id, |reply| ActorCommand::ChangePolicy(change, reply)).await
    }
}

/// Returns `policy` narrowed by `rules`; fails for a rule that asks for more.
pub(super) fn narrowed(policy: Arc<EffectivePolicy>, rules: &[String]) -> Result<Arc<EffectivePolicy>, SessionError> {
    if rules.is_empty() {
        return Ok(policy);
    }
    let layers = rules.iter().map(|rule| NarrowingLayer::assign(rule)).collect::<Result<Vec<_>, _>>()?;
    Ok(Arc::new(policy.narrowed(&layers)?))
}

#[cfg(test)]
mod tests {
    use policy::{Action, BaseLayer, CeilingLayer, PolicySource};

    use super::*;

    fn change(rules: &[&str], expires_unix_secs: Option<u64>) -> PolicyChange {
        PolicyChange { rules: rules.iter().map(|rule| (*rule).to_owned()).collect(), expires_unix_secs }
    }

    #[test]
    fn changes_apply_in_order_until_they_expire() {
        let base = BaseLayer::read(&PolicySource::new("base", "net: {enabled: true, allowlist: [\"*.example.com\"]}"))
            .unwrap();
        let policy = policy::effective(&CeilingLayer::built_in().unwrap(), &base, &[]);
        let reaches = |policy: &EffectivePolicy, host: &str| policy.decide(&Action::net(host).unwrap()).is_allowed();
        let granted = SessionPolicyChange::Widen(change(&["net.allowlist=a.example.org"], Some(100)));
        assert!(granted.holds_at(99) && !granted.holds_at(100));
        let wider = granted.apply(policy.clone());
        assert!(reaches(&wider, "a.example.org") && reaches(&wider, "a.example.com"));
        let narrower =
            SessionPolicyChange::Narrow(change(&["net.denylist=a.example.org,b.example.com"], None)).apply(wider);
        assert!(!reaches(&narrower, "a.example.org") && !reaches(&narrower, "b.example.com"));
        assert!(reaches(&narrower, "a.example.com"));
        // A narrowing to a granted host allows nothing after the grant has expired.
        let only = SessionPolicyChange::Narrow(change(&["net.allowlist=a.example.org"], None)).apply(policy.clone());
        assert!(!reaches(&only, "a.example.org") && !reaches(&only, "a.example.com"));
        let more = SessionPolicyChange::Narrow(change(&["net.allowlist=a.example.net"], None)).check(policy.clone());
        assert_eq!(more.unwrap_err().code(), protocol::ProblemCode::PolicyWideningDenied);
        let files = SessionPolicyChange::Widen(change(&["fs.read=/etc"], None)).check(policy);
        assert_eq!(files.unwrap_err().code(), protocol::ProblemCode::InvalidRequest);
    }
}
