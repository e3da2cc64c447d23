//! Write denials of a policy, stored for the time when changes are applied.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::pattern::PathGlob;
use crate::policy::CompiledPolicy;
use crate::rule::RuleRef;

/// The globs of `fs.deny_write` and `fs.deny_read` with their rules. They are stored with a change set and checked when
/// it is applied. Hidden files are included because an apply must not overwrite them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileDenials(Vec<FileDenial>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct FileDenial {
    #[serde(with = "as_text")]
    glob: PathGlob,
    rule: RuleRef,
}

impl FileDenials {
    pub(crate) fn of(policy: &CompiledPolicy) -> Self {
        let entries = policy.fs.deny_write.entries().chain(policy.fs.deny_read.entries());
        Self(entries.map(|entry| FileDenial { glob: entry.value.clone(), rule: entry.rule.clone() }).collect())
    }

    /// Returns the rule that denies writing `path`, which is relative to the workspace.
    pub fn rule_denying(&self, path: &Path) -> Option<&RuleRef> {
        self.0.iter().find(|denial| denial.glob.matches(path)).map(|denial| &denial.rule)
    }
}

/// Serializes a glob as text. An invalid glob fails the whole list, so that no denial gets lost.
mod as_text {
    use serde::{Deserialize, Deserializer, Serializer, de};

    use crate::pattern::PathGlob;

    pub(super) fn serialize<S: Serializer>(glob: &PathGlob, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(glob)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<PathGlob, D::Error> {
        let text = String::deserialize(deserializer)?;
        PathGlob::parse(&text).map_err(|bad| de::Error::custom(format!("{bad:?}")))
    }
}
