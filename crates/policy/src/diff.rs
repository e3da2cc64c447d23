//! What another policy would change, and in which direction.

use serde::Serialize;

use crate::inspect::{Item, Value};
use crate::key::PolicyKey;
use crate::pattern::Pattern;
use crate::policy::CompiledPolicy;

/// Which way a key changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeDirection {
    /// More is allowed.
    Wider,
    /// Less is allowed.
    Narrower,
    /// Some more and some less, or neither can be told.
    Both,
}

/// One key that differs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyChange {
    /// The key.
    pub key: PolicyKey,
    /// Which way.
    pub direction: ChangeDirection,
    /// What it was.
    pub before: String,
    /// What it becomes.
    pub after: String,
    /// Entries of a list that come.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// Entries of a list that go.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// Every key on which `after` differs from `before`.
pub fn diff(before: &CompiledPolicy, after: &CompiledPolicy) -> Vec<KeyChange> {
    let meet = before.meet(after);
    let change = |key: &PolicyKey| {
        let (old, new) = (before.value(*key), after.value(*key));
        if old.show() == new.show() {
            return None;
        }
        let direction = match key {
            PolicyKey::ToolsAllow | PolicyKey::ToolsAsk | PolicyKey::ToolsDeny => tools(before, after, *key),
            _ => direction(&meet.show(*key), &old.show(), &new.show()),
        };
        let (added, removed) = (missing(&new, &old), missing(&old, &new));
        Some(KeyChange { key: *key, direction, before: old.show(), after: new.show(), added, removed })
    };
    PolicyKey::ALL.iter().filter_map(change).collect()
}

/// Of two values the one that equals their meet is the narrower one.
fn direction(meet: &str, before: &str, after: &str) -> ChangeDirection {
    match (meet == before, meet == after) {
        (true, false) => ChangeDirection::Wider,
        (false, true) => ChangeDirection::Narrower,
        _ => ChangeDirection::Both,
    }
}

/// Gates meet as wholes, so their lists are compared by what they cover.
fn tools(before: &CompiledPolicy, after: &CompiledPolicy, key: PolicyKey) -> ChangeDirection {
    let covers = |wide: &CompiledPolicy, narrow: &CompiledPolicy| match key {
        PolicyKey::ToolsDeny => within(wide.tools.denied().collect(), narrow.tools.denied().collect()),
        PolicyKey::ToolsAllow => within(narrow.tools.allowed().collect(), wide.tools.allowed().collect()),
        // To be asked is more than nothing and less than a yes; which it replaces stands in another list.
        _ => false,
    };
    match (covers(after, before), covers(before, after)) {
        (true, false) => ChangeDirection::Wider,
        (false, true) => ChangeDirection::Narrower,
        _ => ChangeDirection::Both,
    }
}

fn within<P: Pattern>(narrow: Vec<&crate::rule::WithRule<P>>, wide: Vec<&crate::rule::WithRule<P>>) -> bool {
    narrow.iter().all(|entry| wide.iter().any(|other| other.value.covers(&entry.value)))
}

/// The entries of one list that the other one lacks.
fn missing(from: &Value, other: &Value) -> Vec<String> {
    let (Value::Lists(_), known) = (from, other.items()) else { return Vec::new() };
    let lacks = |item: &Item| !known.iter().any(|known| known.text == item.text);
    from.items().into_iter().filter(lacks).map(|item| item.text).collect()
}
