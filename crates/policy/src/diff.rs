//! Differences between two policies, and whether each allows more or less.

use serde::Serialize;

use crate::key::PolicyKey;
use crate::key_value::{KeyValue, ValueEntry};
use crate::pattern::Pattern;
use crate::policy::CompiledPolicy;

/// The direction of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeDirection {
    /// More is allowed.
    Wider,
    /// Less is allowed.
    Narrower,
    /// Some more and some less, or not comparable.
    Both,
}

/// A key with different values.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct KeyChange {
    /// The key.
    pub key: PolicyKey,
    /// The direction of the change.
    pub direction: ChangeDirection,
    /// The old value.
    pub before: String,
    /// The new value.
    pub after: String,
    /// Entries that are new in the list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<String>,
    /// Entries that are missing from the list.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub removed: Vec<String>,
}

/// Returns every key whose value differs between `before` and `after`.
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

/// Compares two values with their intersection: the value that equals it is the narrower one.
fn direction(meet: &str, before: &str, after: &str) -> ChangeDirection {
    match (meet == before, meet == after) {
        (true, false) => ChangeDirection::Wider,
        (false, true) => ChangeDirection::Narrower,
        _ => ChangeDirection::Both,
    }
}

/// Compares tool lists by what they cover, because tool gates are intersected as a whole.
fn tools(before: &CompiledPolicy, after: &CompiledPolicy, key: PolicyKey) -> ChangeDirection {
    let covers = |wide: &CompiledPolicy, narrow: &CompiledPolicy| match key {
        PolicyKey::ToolsDeny => within(wide.tools.deny_entries().collect(), narrow.tools.deny_entries().collect()),
        PolicyKey::ToolsAllow => within(narrow.tools.allow_entries().collect(), wide.tools.allow_entries().collect()),
        // `ask` is wider than a denial and narrower than `allow`. The other lists decide which of the two it replaces.
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

/// Returns the entries of `from` that `other` lacks.
fn missing(from: &KeyValue, other: &KeyValue) -> Vec<String> {
    let (KeyValue::Lists(_), known) = (from, other.entries()) else { return Vec::new() };
    let lacks = |item: &ValueEntry| !known.iter().any(|known| known.text == item.text);
    from.entries().into_iter().filter(lacks).map(|item| item.text).collect()
}
