//! A compiled policy: what a document means, as one element of a lattice.
//!
//! Every key has a value for "no opinion" that takes nothing away, so a policy with absent keys and one
//! with all keys are the same type, and one function, `meet`, puts layers together. `meet` is commutative,
//! associative and idempotent, and never allows what one side denies; the property tests hold it to that.

use std::collections::BTreeMap;

use crate::allow::AllowLists;
use crate::deny::DenyList;
use crate::document::{DnsMode, EnforcementMeans, WorkspaceMode};
use crate::gate::Gates;
use crate::key::PolicyKey;
use crate::pattern::{
    Denied, EndpointPattern, InjectPattern, NamePattern, PathGlob, PathPrefix, ReachPattern, VariableName,
};
use crate::rule::{RuleRef, WithRule};

/// What a document means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledPolicy {
    pub(crate) fs: FsRules,
    pub(crate) net: NetRules,
    /// Limits by key; an absent one is no limit.
    pub(crate) bounds: BTreeMap<PolicyKey, WithRule<u64>>,
    /// The weakest means accepted by `degrade.*` key; an absent one is no opinion.
    pub(crate) degrade: BTreeMap<PolicyKey, WithRule<EnforcementMeans>>,
    pub(crate) env: AllowLists<VariableName>,
    pub(crate) models: AllowLists<NamePattern>,
    pub(crate) tools: Gates,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct FsRules {
    pub(crate) workspace: WithRule<WorkspaceMode>,
    pub(crate) read: AllowLists<PathPrefix>,
    pub(crate) write: AllowLists<PathPrefix>,
    pub(crate) deny_read: DenyList<PathGlob>,
    pub(crate) deny_write: DenyList<PathGlob>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NetRules {
    pub(crate) enabled: WithRule<bool>,
    pub(crate) allowlist: AllowLists<ReachPattern>,
    pub(crate) denylist: DenyList<Denied>,
    /// Where nothing passes that nobody looks into. Like a denial, it only takes away.
    pub(crate) intercept: DenyList<EndpointPattern>,
    pub(crate) inject: AllowLists<InjectPattern>,
    pub(crate) dns: WithRule<DnsMode>,
}

impl CompiledPolicy {
    /// No opinion on any key: the widest element, which changes nothing it meets.
    pub fn unrestricted() -> Self {
        Self {
            fs: FsRules {
                workspace: WithRule::new(WorkspaceMode::Bind, RuleRef::no_opinion()),
                read: AllowLists::any(),
                write: AllowLists::any(),
                deny_read: DenyList::none(),
                deny_write: DenyList::none(),
            },
            net: NetRules {
                enabled: WithRule::new(true, RuleRef::no_opinion()),
                allowlist: AllowLists::any(),
                denylist: DenyList::none(),
                intercept: DenyList::none(),
                inject: AllowLists::any(),
                dns: WithRule::new(DnsMode::Stub, RuleRef::no_opinion()),
            },
            bounds: BTreeMap::new(),
            degrade: BTreeMap::new(),
            env: AllowLists::any(),
            models: AllowLists::any(),
            tools: Gates::default(),
        }
    }

    /// What both allow.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            fs: self.fs.meet(&other.fs),
            net: self.net.meet(&other.net),
            bounds: smaller(&self.bounds, &other.bounds),
            degrade: smaller(&self.degrade, &other.degrade),
            env: self.env.meet(&other.env),
            models: self.models.meet(&other.models),
            tools: self.tools.meet(&other.tools),
        }
    }

    /// Whether this is `other` or a narrowing of it.
    pub fn is_within(&self, other: &Self) -> bool {
        self.meet(other) == *self
    }
}

impl FsRules {
    fn meet(&self, other: &Self) -> Self {
        Self {
            workspace: self.workspace.min(&other.workspace),
            read: self.read.meet(&other.read),
            write: self.write.meet(&other.write),
            deny_read: self.deny_read.meet(&other.deny_read),
            deny_write: self.deny_write.meet(&other.deny_write),
        }
    }
}

impl NetRules {
    fn meet(&self, other: &Self) -> Self {
        Self {
            enabled: self.enabled.min(&other.enabled),
            allowlist: self.allowlist.meet(&other.allowlist),
            denylist: self.denylist.meet(&other.denylist),
            intercept: self.intercept.meet(&other.intercept),
            inject: self.inject.meet(&other.inject),
            dns: self.dns.min(&other.dns),
        }
    }
}

fn smaller<T: Ord + Clone>(
    left: &BTreeMap<PolicyKey, WithRule<T>>,
    right: &BTreeMap<PolicyKey, WithRule<T>>,
) -> BTreeMap<PolicyKey, WithRule<T>> {
    let mut all = left.clone();
    for (key, value) in right {
        all.entry(*key).and_modify(|ours| *ours = ours.min(value)).or_insert_with(|| value.clone());
    }
    all
}
