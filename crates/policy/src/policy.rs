//! A compiled policy: the meaning of a document, as an element of a lattice.
//!
//! Every key has a value for "no opinion" that restricts nothing. Policies with absent keys therefore have the same
//! type as complete ones, and `meet` combines any two layers. `meet` is commutative, associative and idempotent, and
//! never allows an action that one side denies; property tests check this.

use std::collections::BTreeMap;

use crate::allow_list::AllowLists;
use crate::deny_list::DenyList;
use crate::document::{DnsMode, EnforcementMeans, UnpricedModels, WorkspaceMode};
use crate::key::PolicyKey;
use crate::pattern::{
    ConnectionPattern, DenyPattern, EndpointPattern, ExactText, InjectPattern, NamePattern, PathGlob, PathPrefix,
    VariableName,
};
use crate::rule::{RuleRef, WithRule};
use crate::tool_gate::ToolGates;

/// The meaning of a policy document.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CompiledPolicy {
    pub(crate) fs: FsRules,
    pub(crate) net: NetRules,
    /// Limits by key; an absent key has no limit.
    pub(crate) limits: BTreeMap<PolicyKey, WithRule<u64>>,
    /// The weakest acceptable means by `degrade.*` key; an absent key has no opinion.
    pub(crate) degrade: BTreeMap<PolicyKey, WithRule<EnforcementMeans>>,
    pub(crate) env: AllowLists<VariableName>,
    pub(crate) env_set: AllowLists<ExactText>,
    pub(crate) path_prepend: AllowLists<ExactText>,
    pub(crate) toolchains: AllowLists<ExactText>,
    pub(crate) models: AllowLists<NamePattern>,
    pub(crate) unpriced: WithRule<UnpricedModels>,
    pub(crate) tools: ToolGates,
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
    pub(crate) allowlist: AllowLists<ConnectionPattern>,
    pub(crate) denylist: DenyList<DenyPattern>,
    /// Hosts to which the proxy forwards only traffic that it can read. Like a denial, an entry only takes away.
    pub(crate) intercept: DenyList<EndpointPattern>,
    pub(crate) inject: AllowLists<InjectPattern>,
    /// Whether entries of `allowlist` that stand for package registries have an effect.
    pub(crate) packages: WithRule<bool>,
    pub(crate) dns: WithRule<DnsMode>,
}

impl CompiledPolicy {
    /// Returns a policy without any opinion, the neutral element of `meet`.
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
                packages: WithRule::new(true, RuleRef::no_opinion()),
                dns: WithRule::new(DnsMode::Stub, RuleRef::no_opinion()),
            },
            limits: BTreeMap::new(),
            degrade: BTreeMap::new(),
            env: AllowLists::any(),
            env_set: AllowLists::any(),
            path_prepend: AllowLists::any(),
            toolchains: AllowLists::any(),
            models: AllowLists::any(),
            unpriced: WithRule::new(UnpricedModels::Allow, RuleRef::no_opinion()),
            tools: ToolGates::default(),
        }
    }

    /// Returns the intersection of both policies.
    #[must_use]
    pub fn meet(&self, other: &Self) -> Self {
        Self {
            fs: self.fs.meet(&other.fs),
            net: self.net.meet(&other.net),
            limits: smaller(&self.limits, &other.limits),
            degrade: smaller(&self.degrade, &other.degrade),
            env: self.env.meet(&other.env),
            env_set: self.env_set.meet(&other.env_set),
            path_prepend: self.path_prepend.meet(&other.path_prepend),
            toolchains: self.toolchains.meet(&other.toolchains),
            models: self.models.meet(&other.models),
            unpriced: self.unpriced.min(&other.unpriced),
            tools: self.tools.meet(&other.tools),
        }
    }

    /// Returns this policy with the list entries of `preset` in addition. Tool rules stay as they are.
    pub(crate) fn with_lists_of(mut self, preset: &Self) -> Self {
        self.fs.read = self.fs.read.with_entries_of(&preset.fs.read);
        self.fs.write = self.fs.write.with_entries_of(&preset.fs.write);
        self.fs.deny_read = self.fs.deny_read.meet(&preset.fs.deny_read);
        self.fs.deny_write = self.fs.deny_write.meet(&preset.fs.deny_write);
        self.net.allowlist = self.net.allowlist.with_entries_of(&preset.net.allowlist);
        self.net.denylist = self.net.denylist.meet(&preset.net.denylist);
        self.env = self.env.with_entries_of(&preset.env);
        self
    }

    /// Returns whether this policy allows at most what `other` allows.
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
            packages: self.packages.min_set(&other.packages),
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
