//! What a policy denies to write in its workspace, kept for when the policy itself is gone.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::pattern::PathGlob;
use crate::policy::CompiledPolicy;
use crate::rule::RuleRef;

/// The globs of `fs.deny_write` and `fs.deny_read`, each with its rule: what is hidden must not be overwritten
/// either. Can be stored beside changes, to be asked when they are applied.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FileDenials(Vec<Denial>);

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Denial {
    #[serde(with = "as_text")]
    glob: PathGlob,
    rule: RuleRef,
}

impl FileDenials {
    pub(crate) fn of(policy: &CompiledPolicy) -> Self {
        let entries = policy.fs.deny_write.entries().chain(policy.fs.deny_read.entries());
        Self(entries.map(|entry| Denial { glob: entry.value.clone(), rule: entry.rule.clone() }).collect())
    }

    /// The rule that denies writing `path`, which is relative to the workspace.
    pub fn rule_denying(&self, path: &Path) -> Option<&RuleRef> {
        self.0.iter().find(|denial| denial.glob.matches(path)).map(|denial| &denial.rule)
    }
}

/// A glob that cannot be read fails the whole: a denial must not get lost.
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
