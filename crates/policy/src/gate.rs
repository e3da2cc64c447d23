//! The gate for tool calls: allow, ask or deny.
//!
//! The three lists of a layer belong together: a call one layer would ask about must stay denied where
//! another layer does not name it at all. So gates meet as wholes, and the strictest answer counts.

use crate::decision::Verdict;
use crate::pattern::{Pattern, ToolCall, ToolPattern};
use crate::rule::{RuleRef, WithRule};

/// The tool rules of one layer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Gate {
    /// `None`: no opinion, everything passes that is not asked about or denied.
    pub(crate) allow: Option<Vec<WithRule<ToolPattern>>>,
    pub(crate) ask: Vec<WithRule<ToolPattern>>,
    pub(crate) deny: Vec<WithRule<ToolPattern>>,
    /// The rule that denies what no list names.
    pub(crate) otherwise: WithRule<()>,
}

impl Gate {
    fn decide(&self, call: &ToolCall<'_>) -> (Verdict, RuleRef) {
        let hit = |list: &[WithRule<ToolPattern>]| list.iter().find(|entry| call.hit_by(&entry.value)).cloned();
        if let Some(entry) = hit(&self.deny) {
            return (Verdict::Deny, entry.rule);
        }
        if let Some(entry) = hit(&self.ask) {
            return (Verdict::Ask, entry.rule);
        }
        match &self.allow {
            None => (Verdict::Allow, self.otherwise.rule.clone()),
            Some(allow) => match call.allowed_by(allow, |entry| &entry.value) {
                Some(entry) => (Verdict::Allow, entry.rule.clone()),
                None => (Verdict::Deny, self.otherwise.rule.clone()),
            },
        }
    }

    /// Whether a call `pattern` names may at least be asked for.
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

/// The gates of all layers; a call passes when it passes each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Gates {
    gates: Vec<Gate>,
}

impl Gates {
    pub(crate) fn one(mut gate: Gate) -> Self {
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

    /// The strictest answer of all gates; `None` when there is none.
    pub(crate) fn decide(&self, call: &ToolCall<'_>) -> Option<(Verdict, RuleRef)> {
        self.gates.iter().map(|gate| gate.decide(call)).min_by_key(|(verdict, _)| *verdict)
    }

    pub(crate) fn covers(&self, pattern: &ToolPattern) -> bool {
        self.gates.iter().all(|gate| gate.covers(pattern))
    }

    /// With the calls `pattern` names asked about or allowed as well, unless they are denied by name.
    pub(crate) fn widened(&self, pattern: &WithRule<ToolPattern>, verdict: Verdict) -> Self {
        let widen = |gate: &Gate| {
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

    /// What the `allow` lists name.
    pub(crate) fn allowed(&self) -> impl Iterator<Item = &WithRule<ToolPattern>> {
        self.gates.iter().filter_map(|gate| gate.allow.as_ref()).flatten()
    }

    /// What the `ask` lists name.
    pub(crate) fn asked(&self) -> impl Iterator<Item = &WithRule<ToolPattern>> {
        self.gates.iter().flat_map(|gate| &gate.ask)
    }

    /// What the `deny` lists name.
    pub(crate) fn denied(&self) -> impl Iterator<Item = &WithRule<ToolPattern>> {
        self.gates.iter().flat_map(|gate| &gate.deny)
    }

    pub(crate) fn gates(&self) -> &[Gate] {
        &self.gates
    }
}
