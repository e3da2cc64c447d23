//! The value of each policy key as text with its rules, for messages and reports.

use crate::allow_list::AllowLists;
use crate::deny_list::DenyList;
use crate::key::PolicyKey;
use crate::limit;
use crate::pattern::{Intersect, Pattern, ToolPattern};
use crate::policy::CompiledPolicy;
use crate::rule::{RuleRef, WithRule};
use crate::tool_gate::ToolGate;

/// A single value, or one entry of a list, with its rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ValueEntry {
    pub(crate) text: String,
    pub(crate) rule: RuleRef,
}

impl ValueEntry {
    fn of<T: ToString>(ruled: &WithRule<T>) -> Self {
        Self { text: ruled.value.to_string(), rule: ruled.rule.clone() }
    }
}

/// The value of a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum KeyValue {
    /// No layer has an opinion.
    Unset,
    /// A single value.
    One(ValueEntry),
    /// Lists that must all match, each with the rule of the list itself.
    Lists(Vec<(Vec<ValueEntry>, Option<RuleRef>)>),
}

impl KeyValue {
    fn allow<P: Pattern>(lists: &AllowLists<P>) -> Self {
        let of = |list: &crate::allow_list::AllowList<P>| (to_entries(list.entries()), Some(list.rule().clone()));
        if lists.lists().is_empty() { Self::Unset } else { Self::Lists(lists.lists().iter().map(of).collect()) }
    }

    /// Returns several lists as one list with the same meaning.
    fn flat<P: Intersect>(lists: &AllowLists<P>) -> Self {
        let rule = lists.lists().first().map(|list| list.rule().clone());
        lists.flatten().map_or(Self::Unset, |entries| Self::Lists(vec![(to_entries(&entries), rule)]))
    }

    fn deny<P: Ord + Clone + ToString>(list: &DenyList<P>) -> Self {
        Self::Lists(vec![(list.entries().map(ValueEntry::of).collect(), None)])
    }

    fn one<T: ToString>(ruled: Option<&WithRule<T>>) -> Self {
        ruled.map_or(Self::Unset, |ruled| Self::One(ValueEntry::of(ruled)))
    }

    fn gates(policy: &CompiledPolicy, of: impl Fn(&ToolGate) -> Option<&Vec<WithRule<ToolPattern>>>) -> Self {
        let gates = policy.tools.gates().iter();
        let lists: Vec<_> = gates
            .filter_map(|gate| of(gate).map(|list| (to_entries(list), Some(gate.default_rule.rule.clone()))))
            .collect();
        if lists.is_empty() { Self::Unset } else { Self::Lists(lists) }
    }

    /// Returns the single value, or the entries of all lists.
    pub(crate) fn entries(&self) -> Vec<ValueEntry> {
        match self {
            Self::Unset => Vec::new(),
            Self::One(item) => vec![item.clone()],
            Self::Lists(lists) => lists.iter().flat_map(|(entries, _)| entries.clone()).collect(),
        }
    }

    /// Returns whether a list is empty, so that nothing matches all lists.
    pub(crate) fn allows_nothing(&self) -> bool {
        matches!(self, Self::Lists(lists) if lists.iter().any(|(entries, _)| entries.is_empty()))
    }

    /// Returns the rule that represents the whole value.
    pub(crate) fn rule(&self) -> RuleRef {
        let rule = match self {
            Self::Unset => None,
            Self::One(item) => Some(item.rule.clone()),
            Self::Lists(lists) => lists
                .iter()
                .find_map(|(entries, rule)| entries.first().map(|item| item.rule.clone()).or_else(|| rule.clone())),
        };
        rule.unwrap_or_else(RuleRef::no_opinion)
    }

    /// Formats the value as in a policy file.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Unset => "anything".to_owned(),
            Self::One(item) => item.text.clone(),
            Self::Lists(lists) => {
                let list = |(entries, _): &(Vec<ValueEntry>, _)| format!("[{}]", texts(entries).join(", "));
                lists.iter().map(list).collect::<Vec<_>>().join(" and ")
            }
        }
    }
}

pub(crate) fn texts(entries: &[ValueEntry]) -> Vec<&str> {
    entries.iter().map(|item| item.text.as_str()).collect()
}

fn to_entries<T: ToString>(entries: &[WithRule<T>]) -> Vec<ValueEntry> {
    entries.iter().map(ValueEntry::of).collect()
}

impl CompiledPolicy {
    /// Returns the value of `key`.
    pub(crate) fn value(&self, key: PolicyKey) -> KeyValue {
        match key {
            PolicyKey::FsWorkspace => KeyValue::One(ValueEntry::of(&self.fs.workspace)),
            PolicyKey::FsRead => KeyValue::flat(&self.fs.read),
            PolicyKey::FsWrite => KeyValue::flat(&self.fs.write),
            PolicyKey::FsDenyRead => KeyValue::deny(&self.fs.deny_read),
            PolicyKey::FsDenyWrite => KeyValue::deny(&self.fs.deny_write),
            PolicyKey::NetEnabled => KeyValue::One(ValueEntry::of(&self.net.enabled)),
            PolicyKey::NetAllowlist => KeyValue::flat(&self.net.allowlist),
            PolicyKey::NetDenylist => KeyValue::deny(&self.net.denylist),
            PolicyKey::NetIntercept => KeyValue::deny(&self.net.intercept),
            PolicyKey::NetInject => KeyValue::flat(&self.net.inject),
            PolicyKey::NetPackages => KeyValue::One(ValueEntry::of(&self.net.packages)),
            PolicyKey::NetDns => KeyValue::One(ValueEntry::of(&self.net.dns)),
            PolicyKey::DegradeCpus
            | PolicyKey::DegradeMemory
            | PolicyKey::DegradePids
            | PolicyKey::DegradeDisk
            | PolicyKey::DegradeLandlock => KeyValue::one(self.degrade.get(&key)),
            PolicyKey::EnvPass => KeyValue::flat(&self.env),
            PolicyKey::EnvSet => KeyValue::flat(&self.env_set),
            PolicyKey::PathPrepend => KeyValue::flat(&self.path_prepend),
            PolicyKey::Toolchains => KeyValue::flat(&self.toolchains),
            PolicyKey::ModelsAllow => KeyValue::allow(&self.models),
            PolicyKey::ModelsUnpriced => KeyValue::One(ValueEntry::of(&self.unpriced)),
            PolicyKey::ToolsAllow => KeyValue::gates(self, |gate| gate.allow.as_ref()),
            PolicyKey::ToolsAsk => KeyValue::gates(self, |gate| Some(&gate.ask)),
            PolicyKey::ToolsDeny => KeyValue::gates(self, |gate| Some(&gate.deny)),
            limit => self.limits.get(&limit).map_or(KeyValue::Unset, |ruled| {
                KeyValue::One(ValueEntry { text: limit::show(limit, ruled.value), rule: ruled.rule.clone() })
            }),
        }
    }

    /// Formats the value of `key` as in a policy file; `anything` without an opinion.
    pub fn show(&self, key: PolicyKey) -> String {
        self.value(key).show()
    }
}
