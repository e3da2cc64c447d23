//! Looking into a policy key by key, for everything that tells people about it.

use crate::allow::AllowLists;
use crate::bound;
use crate::deny::DenyList;
use crate::gate::Gate;
use crate::key::PolicyKey;
use crate::pattern::{Intersect, Pattern, ToolPattern};
use crate::policy::CompiledPolicy;
use crate::rule::{RuleRef, WithRule};

/// One thing a key says: the whole value, or an entry of a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Item {
    pub(crate) text: String,
    pub(crate) rule: RuleRef,
}

impl Item {
    fn of<T: ToString>(ruled: &WithRule<T>) -> Self {
        Self { text: ruled.value.to_string(), rule: ruled.rule.clone() }
    }
}

/// What a key says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Value {
    /// No layer has an opinion.
    Unset,
    /// One value.
    One(Item),
    /// Lists; what counts must be in each of them. The second part is the rule of the list itself.
    Lists(Vec<(Vec<Item>, Option<RuleRef>)>),
}

impl Value {
    fn allow<P: Pattern>(lists: &AllowLists<P>) -> Self {
        let of = |list: &crate::allow::AllowList<P>| (items(list.entries()), Some(list.rule().clone()));
        if lists.lists().is_empty() { Self::Unset } else { Self::Lists(lists.lists().iter().map(of).collect()) }
    }

    /// The one list that several amount to.
    fn flat<P: Intersect>(lists: &AllowLists<P>) -> Self {
        let rule = lists.lists().first().map(|list| list.rule().clone());
        lists.flatten().map_or(Self::Unset, |entries| Self::Lists(vec![(items(&entries), rule)]))
    }

    fn deny<P: Ord + Clone + ToString>(list: &DenyList<P>) -> Self {
        Self::Lists(vec![(list.entries().map(Item::of).collect(), None)])
    }

    fn one<T: ToString>(ruled: Option<&WithRule<T>>) -> Self {
        ruled.map_or(Self::Unset, |ruled| Self::One(Item::of(ruled)))
    }

    fn gates(policy: &CompiledPolicy, of: impl Fn(&Gate) -> Option<&Vec<WithRule<ToolPattern>>>) -> Self {
        let gates = policy.tools.gates().iter();
        let lists: Vec<_> =
            gates.filter_map(|gate| of(gate).map(|list| (items(list), Some(gate.otherwise.rule.clone())))).collect();
        if lists.is_empty() { Self::Unset } else { Self::Lists(lists) }
    }

    /// Every single thing it says.
    pub(crate) fn items(&self) -> Vec<Item> {
        match self {
            Self::Unset => Vec::new(),
            Self::One(item) => vec![item.clone()],
            Self::Lists(lists) => lists.iter().flat_map(|(items, _)| items.clone()).collect(),
        }
    }

    /// Whether some list of it is empty, so that nothing is in each.
    pub(crate) fn is_nothing(&self) -> bool {
        matches!(self, Self::Lists(lists) if lists.iter().any(|(items, _)| items.is_empty()))
    }

    /// The rule to name for the whole of it.
    pub(crate) fn rule(&self) -> RuleRef {
        let rule = match self {
            Self::Unset => None,
            Self::One(item) => Some(item.rule.clone()),
            Self::Lists(lists) => lists
                .iter()
                .find_map(|(items, rule)| items.first().map(|item| item.rule.clone()).or_else(|| rule.clone())),
        };
        rule.unwrap_or_else(RuleRef::no_opinion)
    }

    /// As a person would write it.
    pub(crate) fn show(&self) -> String {
        match self {
            Self::Unset => "anything".to_owned(),
            Self::One(item) => item.text.clone(),
            Self::Lists(lists) => {
                let list = |(items, _): &(Vec<Item>, _)| format!("[{}]", texts(items).join(", "));
                lists.iter().map(list).collect::<Vec<_>>().join(" and ")
            }
        }
    }
}

pub(crate) fn texts(items: &[Item]) -> Vec<&str> {
    items.iter().map(|item| item.text.as_str()).collect()
}

fn items<T: ToString>(entries: &[WithRule<T>]) -> Vec<Item> {
    entries.iter().map(Item::of).collect()
}

impl CompiledPolicy {
    /// What `key` says here.
    pub(crate) fn value(&self, key: PolicyKey) -> Value {
        match key {
            PolicyKey::FsWorkspace => Value::One(Item::of(&self.fs.workspace)),
            PolicyKey::FsRead => Value::flat(&self.fs.read),
            PolicyKey::FsWrite => Value::flat(&self.fs.write),
            PolicyKey::FsDenyRead => Value::deny(&self.fs.deny_read),
            PolicyKey::FsDenyWrite => Value::deny(&self.fs.deny_write),
            PolicyKey::NetEnabled => Value::One(Item::of(&self.net.enabled)),
            PolicyKey::NetAllowlist => Value::flat(&self.net.allowlist),
            PolicyKey::NetDenylist => Value::deny(&self.net.denylist),
            PolicyKey::NetIntercept => Value::deny(&self.net.intercept),
            PolicyKey::NetInject => Value::flat(&self.net.inject),
            PolicyKey::NetDns => Value::One(Item::of(&self.net.dns)),
            PolicyKey::DegradeCpus
            | PolicyKey::DegradeMemory
            | PolicyKey::DegradePids
            | PolicyKey::DegradeDisk
            | PolicyKey::DegradeLandlock => Value::one(self.degrade.get(&key)),
            PolicyKey::EnvPass => Value::flat(&self.env),
            PolicyKey::ModelsAllow => Value::allow(&self.models),
            PolicyKey::ToolsAllow => Value::gates(self, |gate| gate.allow.as_ref()),
            PolicyKey::ToolsAsk => Value::gates(self, |gate| Some(&gate.ask)),
            PolicyKey::ToolsDeny => Value::gates(self, |gate| Some(&gate.deny)),
            limit => self.bounds.get(&limit).map_or(Value::Unset, |ruled| {
                Value::One(Item { text: bound::show(limit, ruled.value), rule: ruled.rule.clone() })
            }),
        }
    }

    /// What `key` says here, as a person would write it; `anything` where nothing was said.
    pub fn show(&self, key: PolicyKey) -> String {
        self.value(key).show()
    }
}
