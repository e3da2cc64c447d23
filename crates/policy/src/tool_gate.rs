//! Tool rules: allow, ask or deny a call.
//!
//! The three lists of a layer are one gate. A call that one layer asks about must stay denied if another layer does not
//! name it. Gates are therefore combined as a whole, and the strictest answer applies.

use crate::decision::Verdict;
use crate::pattern::{Pattern, ToolCall, ToolPattern};
use crate::rule::{RuleRef, WithRule};

/// The tool rules of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ToolGate {
    /// `None`: no opinion. Calls that are not in `ask` or `deny` are allowed.
    pub(crate) allow: Option<Vec<WithRule<ToolPattern>>>,
    pub(crate) ask: Vec<WithRule<ToolPattern>>,
    pub(crate) deny: Vec<WithRule<ToolPattern>>,
    /// The rule that denies a call that no list names.
    pub(crate) default_rule: WithRule<()>,
}

impl ToolGate {
    fn decide(&self, call: &ToolCall<'_>) -> (Verdict, RuleRef) {
        let hit = |list: &[WithRule<ToolPattern>]| list.iter().find(|entry| call.is_matched_by(&entry.value)).cloned();
        if let Some(entry) = hit(&self.deny) {
            return (Verdict::Deny, entry.rule);
        }
        if let Some(entry) = hit(&self.ask) {
            return (Verdict::Ask, entry.rule);
        }
        match &self.allow {
            None => (Verdict::Allow, self.default_rule.rule.clone()),
            Some(allow) => match call.allowed_by(allow, |entry| &entry.value) {
                Some(entry) => (Verdict::Allow, entry.rule.clone()),
                None => (Verdict::Deny, self.default_rule.rule.clone()),
            },
        }
    }

    /// Returns whether calls that match `pattern` are allowed or asked about.
    fn covers(&self, pattern: &ToolPattern) -> bool {
        let Some(allow) = &self.allow else { return true };
        allow.iter().chain(&self.ask).any(|entry| entry.value.covers(pattern))
    }

    fn sort_key(&self) -> (Option<Vec<&ToolPattern>>, Vec<&ToolPattern>, Vec<&ToolPattern>) {
        (self.allow.as_deref().map(values), values(&self.ask), values(&self.deny))
    }
}

fn values(list: &[WithRule<ToolPattern>]) -> Vec<&ToolPattern> {
    list.iter().map(|entry| &entry.value).collect()
}

/// The gates of all layers. A call must be allowed by each gate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct ToolGates {
    gates: Vec<ToolGate>,
}

impl ToolGates {
    pub(crate) fn one(mut gate: ToolGate) -> Self {
        for list in [Some(&mut gate.ask), Some(&mut gate.deny), gate.allow.as_mut()].into_iter().flatten() {
            list.sort_by(|left, right| left.value.cmp(&right.value));
            list.dedup_by(|later, first| later.value == first.value);
        }
        Self { gates: vec![gate] }
    }

    pub(crate) fn meet(&self, other: &Self) -> Self {
        let mut gates = self.gates.clone();
        for gate in &other.gates {
            if !gates.contains(gate) {
                gates.push(gate.clone());
            }
        }
        gates.sort_by(|left, right| left.sort_key().cmp(&right.sort_key()));
        Self { gates }
    }

    /// Returns the strictest answer of all gates; `None` without a gate.
    pub(crate) fn decide(&self, call: &ToolCall<'_>) -> Option<(Verdict, RuleRef)> {
        self.gates.iter().map(|gate| gate.decide(call)).min_by_key(|(verdict, _)| *verdict)
    }

    pub(crate) fn covers(&self, pattern: &ToolPattern) -> bool {
        self.gates.iter().all(|gate| gate.covers(pattern))
    }

    /// Returns the gates with `pattern` added to `allow` or `ask`. Entries of `deny` still apply.
    pub(crate) fn widened(&self, pattern: &WithRule<ToolPattern>, verdict: Verdict) -> Self {
        let widen = |gate: &ToolGate| {
            let mut gate = gate.clone();
            match (verdict, &mut gate.allow) {
                (Verdict::Allow, Some(allow)) => allow.push(pattern.clone()),
                (_, Some(_)) => gate.ask.push(pattern.clone()),
                (_, None) => {}
            }
            Self::one(gate)
        };
        self.gates.iter().map(widen).fold(Self::default(), |all, one| all.meet(&one))
    }

    /// Returns the entries of all `allow` lists.
    pub(crate) fn allow_entries(&self) -> impl Iterator<Item = &WithRule<ToolPattern>> {
        self.gates.iter().filter_map(|gate| gate.allow.as_ref()).flatten()
    }

    /// Returns the entries of all `ask` lists.
    pub(crate) fn ask_entries(&self) -> impl Iterator<Item = &WithRule<ToolPattern>> {
        self.gates.iter().flat_map(|gate| &gate.ask)
    }

    /// Returns the entries of all `deny` lists.
    pub(crate) fn deny_entries(&self) -> impl Iterator<Item = &WithRule<ToolPattern>> {
        self.gates.iter().flat_map(|gate| &gate.deny)
    }

    pub(crate) fn gates(&self) -> &[ToolGate] {
        &self.gates
    }
}
