//! The policy of a session as clients see it: the data of `policy.effective`, now or at another time.

use policy::EffectivePolicy;
use protocol::{
    EnforcedValue, EnforcementState, KeyEnforcement, KeyEnforcements, NetworkAccess, PolicyEffective, PolicySentence,
};
use sandbox::Sandbox;

use super::SessionPlan;
use crate::HostBudget;
use crate::lifecycle::SessionHost;

impl SessionPlan {
    /// Returns the data of `policy.effective`: how `sandbox` enforces each policy key, and the policy in sentences.
    pub(crate) fn effective_policy(&self, host: &SessionHost, sandbox: &dyn Sandbox) -> PolicyEffective {
        let (now, backend) = (host.store.now_unix_secs(), host.config.backend.name());
        self.effective_policy_at(now, backend, sandbox.effective(), &host.config.budget)
    }

    /// Returns the data of `policy.effective` for a sandbox of `backend` that enforces `keys`.
    pub(crate) fn effective_policy_at(
        &self,
        unix_secs: u64,
        backend: &str,
        mut keys: KeyEnforcements,
        budget: &HostBudget,
    ) -> PolicyEffective {
        let changed = (!self.policy_changes.is_empty()).then(|| self.policy_at(unix_secs));
        let now = changed.as_ref().unwrap_or(&self.policy);
        let sentences = policy::explain(now).iter().map(|sentence| PolicySentence {
            text: sentence.text.clone(),
            layer: sentence.layer.to_string(),
            rule: sentence.rule.location(),
        });
        if let Some(net) = keys.get_mut("net") {
            let policy::NetPolicy { enabled, allowlist, intercept, .. } = now.net();
            let (allowlist, intercept) = (allowlist.clone(), intercept.clone());
            net.value = Some(EnforcedValue::Network(NetworkAccess { enabled: *enabled, allowlist, intercept }));
        }
        // Agents decide by their own rules which calls they ask about; the session sees no others.
        let by = "the session checks the calls that an agent asks about; other calls are not checked";
        keys.set("tools", KeyEnforcement::new(EnforcementState::Weaker, by));
        keys.set("limits", budget.effective_row());
        PolicyEffective { backend: backend.to_owned(), keys, sentences: sentences.collect() }
    }

    /// Returns the policy at a time, with all changes that are in force then.
    pub(crate) fn policy_at(&self, unix_secs: u64) -> EffectivePolicy {
        let policy = (*self.policy).clone();
        self.policy_changes
            .iter()
            .filter(|change| change.holds_at(unix_secs))
            .fold(policy, |policy, change| change.apply(policy))
    }
}
