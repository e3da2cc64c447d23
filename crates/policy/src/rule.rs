//! References to rules: the file and line that every decision names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The kind of layer that a rule belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerName {
    /// Built-in and organisation rules. No other layer can allow more.
    Ceiling,
    /// The policy that a person chose.
    Base,
    /// A policy that only takes away: an untrusted project file, a session, or one call.
    Narrowing,
    /// A person's permission for more than the base allows.
    Grant,
}

impl fmt::Display for LayerName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ceiling => "ceiling",
            Self::Base => "base",
            Self::Narrowing => "narrowing",
            Self::Grant => "grant",
        })
    }
}

/// A reference to the rule that decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRef {
    /// The file, preset or argument that contains the rule.
    pub file: String,
    /// The line in the file, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The rule as `key: value`.
    pub text: String,
    /// The layer of the rule.
    pub layer: LayerName,
}

impl RuleRef {
    /// File name of the values of absent keys in a base layer.
    pub(crate) const DEFAULT: &str = "default";

    /// File name of built-in rules.
    pub(crate) const BUILT_IN: &str = "built-in";

    /// Returns a built-in rule, which no file can change.
    pub(crate) fn built_in(text: impl Into<String>) -> Self {
        Self { file: Self::BUILT_IN.into(), line: None, text: text.into(), layer: LayerName::Ceiling }
    }

    /// Returns the rule for a key that no layer sets.
    pub(crate) fn no_opinion() -> Self {
        Self::built_in("no layer sets this key")
    }

    /// Returns whether the rule is the built-in value of a key that the base layer does not set.
    pub fn is_default(&self) -> bool {
        self.file == Self::DEFAULT
    }

    /// Returns `file:line`, or the file alone.
    pub fn location(&self) -> String {
        match self.line {
            Some(line) => format!("{}:{line}", self.file),
            None => self.file.clone(),
        }
    }
}

impl fmt::Display for RuleRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.text, self.location())
    }
}

/// A value and the rule that set it.
///
/// Two instances are equal if their values are equal: policies are compared by their meaning, not by its source.
#[derive(Debug, Clone)]
pub struct WithRule<T> {
    /// The value.
    pub value: T,
    /// The rule that set it.
    pub rule: RuleRef,
}

impl<T: PartialEq> PartialEq for WithRule<T> {
    fn eq(&self, other: &Self) -> bool {
        self.value == other.value
    }
}

impl<T: Eq> Eq for WithRule<T> {}

impl<T> WithRule<T> {
    pub(crate) fn new(value: T, rule: RuleRef) -> Self {
        Self { value, rule }
    }
}

impl<T: Ord + Clone> WithRule<T> {
    /// Returns the smaller value. For equal values it returns the one that a layer set.
    pub(crate) fn min_set(&self, other: &Self) -> Self {
        let unset = self.rule == RuleRef::no_opinion();
        if other.value < self.value || (other.value == self.value && unset) { other.clone() } else { self.clone() }
    }

    /// Returns the smaller value. For equal values it returns `self`, so that the rule of the highest layer is named.
    pub(crate) fn min(&self, other: &Self) -> Self {
        if other.value < self.value { other.clone() } else { self.clone() }
    }
}
