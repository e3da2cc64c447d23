//! Where a rule comes from: the file and line that every decision names.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The role of the layer a rule came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum LayerName {
    /// Built-in rules and the organisation's file: nothing passes it.
    Ceiling,
    /// What the person chose.
    Base,
    /// What only takes away: an untrusted project file, the session, one call.
    Narrowing,
    /// What a person allowed beside the base.
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

/// The rule that decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleRef {
    /// The file, preset or argument it stands in.
    pub file: String,
    /// Its line, when it stands on one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub line: Option<u32>,
    /// The rule itself, as `key: value`.
    pub text: String,
    /// The layer it came from.
    pub layer: LayerName,
}

impl RuleRef {
    /// What the file of the program's own rules is called.
    pub(crate) const BUILT_IN: &str = "built-in";

    /// A rule of the program itself, which no file can change.
    pub(crate) fn built_in(text: impl Into<String>) -> Self {
        Self { file: Self::BUILT_IN.into(), line: None, text: text.into(), layer: LayerName::Ceiling }
    }

    /// Stands where no layer has said anything.
    pub(crate) fn no_opinion() -> Self {
        Self::built_in("no layer says anything")
    }

    /// `file:line`, or the file alone.
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
/// Two are equal when their values are: policies are compared by what they allow, not by who said so.
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
    /// The smaller of two; on a tie the one that was there first, so that the highest layer is named.
    pub(crate) fn min(&self, other: &Self) -> Self {
        if other.value < self.value { other.clone() } else { self.clone() }
    }
}
